from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.resources.cluster import MachineryTiering
from reconciler.resources.inventory import MANIFEST_KINDS, read_resource
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mount import Mounting
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import Guards, SparkSpec


def test_a_resource_of_any_kind_reads_back_from_its_json() -> None:
    topic = Topic.model_validate({"metadata": {"name": "orders", "cluster": "west"}, "spec": {"partitions": 3}})
    assert read_resource(topic.to_json()) == topic
    assert read_resource(json.loads(topic.model_dump_json())) == topic


@pytest.mark.parametrize("kind", MANIFEST_KINDS)
def test_resources_are_values_that_nobody_changes(kind: str) -> None:
    assert MANIFEST_KINDS[kind].model_config["frozen"]
    assert MANIFEST_KINDS[kind].model_config["extra"] == "forbid"


def test_what_is_not_written_is_not_in_the_json() -> None:
    topic = Topic.model_validate({"metadata": {"name": "orders", "cluster": "west"}, "spec": {"partitions": 3}})
    assert set(topic.to_json()["spec"]) == {"partitions", "configs", "acls"}


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[4,2]",
        "local-cluster[2,1,1024]",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://host",
    ],
)
def test_what_spark_takes_as_its_master_is_taken(master: str) -> None:
    assert SparkSpec(master=master).master == master


@pytest.mark.parametrize("master", ["", "lokal", "local[]", "host:7077", "spark://"])
def test_what_is_no_master_of_spark_is_refused(master: str) -> None:
    with pytest.raises(ValidationError, match="is not a Spark master"):
        SparkSpec(master=master)


@pytest.mark.parametrize(
    "url", ["spark://host:7077", "http://host", "sc://", "sc://host:port", "sc://spark..local", "host:15002", ""]
)
def test_a_url_that_is_none_of_spark_connect_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="names no Spark Connect server"):
        SparkSpec(remote=url)


@pytest.mark.parametrize(
    "twice",
    [
        {"master": "yarn", "remote": "sc://host"},
        {"conf": {"spark.master": "local[2]"}},
        {"remote": "sc://host", "conf": {"spark.remote": "sc://other"}},
    ],
)
def test_where_spark_runs_is_said_once(twice: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"Spark runs at a master, or|is set by spec\.spark\.(master|remote)"):
        SparkSpec.model_validate(twice)


def test_addresses_leave_the_default_namespace_out() -> None:
    metadata = {"name": "orders", "cluster": "west"}
    assert Topic.model_validate({"metadata": metadata, "spec": {"partitions": 3}}).address == "topic/west/orders"
    metadata["namespace"] = "shop:eu"
    assert (
        Topic.model_validate({"metadata": metadata, "spec": {"partitions": 3}}).address == "topic/west/shop:eu:orders"
    )


def test_a_mounted_topic_is_called_by_its_alias() -> None:
    metadata = {"name": "clicks", "namespace": "shop", "cluster": "east"}
    mounting = Mounting.model_validate({"metadata": metadata, "spec": {"state": "MOUNTED", "as": "clicks-2025"}})
    assert (mounting.address, mounting.topic_name) == ("mounting/east/shop:clicks", "shop:clicks-2025")


@pytest.mark.parametrize("interval", ["infinite", -1, 0, "1500ms"])
def test_open_segments_are_uploaded_after_whole_seconds(interval: Any) -> None:
    with pytest.raises(ValidationError, match="whole number of seconds"):
        MachineryTiering.model_validate({"upload": {"maxInterval": interval}})


def test_a_mounting_with_an_infinite_timeout_has_none() -> None:
    metadata = {"name": "clicks", "cluster": "east"}
    mounting = Mounting.model_validate({"metadata": metadata, "spec": {"state": "mounted", "timeout": "infinite"}})
    assert mounting.spec.timeout is None


def test_the_prefix_goes_before_the_topics_own_name_and_the_namespace_stays() -> None:
    link = MirrorLink.model_validate(
        {
            "metadata": {"name": "from-west", "cluster": "east"},
            "spec": {
                "source": "west",
                "prefix": "west.",
                "mirrorTopics": [{"source": "shop:eu:orders", "state": "FAILED_OVER"}],
            },
        }
    )
    (mirror,) = link.mirrors()
    assert mirror.address == "mirror/east/shop:eu:west.orders"
    assert (mirror.source_cluster, mirror.source, mirror.state) == ("west", "shop:eu:orders", "failed-over")


def test_rules_hold_the_strings_that_platforms_store() -> None:
    guards = Guards.model_validate(
        {
            "rules": [
                {
                    "match": "*",
                    "require": {"configs": {"retention.ms": ["7d"], "cleanup.policy": [["compact", "delete"]]}},
                    "message": "m",
                }
            ]
        }
    )
    assert guards.rules[0].require.configs == {"retention.ms": ("604800000",), "cleanup.policy": ("compact,delete",)}


@pytest.mark.parametrize("limit", [-1, "101%", "x", True, 1.5, "1e1%", None])
def test_what_bounds_no_deletes_is_refused(limit: Any) -> None:
    with pytest.raises(ValidationError, match="not a number or a percentage"):
        Guards.model_validate({"maxDeletes": limit})


@pytest.mark.parametrize("limit", [0, 5, "0%", "10%", "100%"])
def test_deletes_are_bounded_by_number_or_percentage(limit: Any) -> None:
    assert Guards.model_validate({"maxDeletes": limit}).max_deletes == limit
