"""Configs and partitions of mirrors, which follow their sources without anybody's doing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.errors import UserError
from reconciler.resources.mirror_link import ALWAYS_SYNCED, MirrorLinkSpec
from reconciler.resources.mirrors import TOPIC_CONFIGS_SYNC
from tests.embedded.linking.linked import ORDERS
from tests.workflow.linksyncs import Runner, runner


def mirroring(**spec: Any) -> Runner:
    run = runner(**spec)
    run.linked.mirror("east", "west")
    return run


def effective(run: Runner, key: str) -> tuple[str | None, str | None]:
    """Return what holds for the source, and for the mirror."""
    west, east = (cluster.effective_configs(ORDERS)[key].value for cluster in (run.linked.west, run.linked.east))
    return west, east


@pytest.mark.fact("F-C-050", "F-C-051", "F-C-056")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("max.message.bytes", "2097152"),
        ("message.timestamp.type", "LogAppendTime"),
        ("retention.ms", "3600000"),
        ("retention.bytes", "1000000"),
        ("delete.retention.ms", "1000"),
        ("min.compaction.lag.ms", "1000"),
        ("max.compaction.lag.ms", "100000"),
    ],
)
def test_what_is_synced_follows_and_goes_back_with_its_source(key: str, value: str) -> None:
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, {key: value})
    run()
    assert effective(run, key) == (value, value)
    with pytest.raises(UserError, match="follows its source"):
        run.linked.east.alter_topic(ORDERS, {key: value})
    run.linked.west.alter_topic(ORDERS, {key: None})
    run()
    assert effective(run, key)[0] == effective(run, key)[1] != value


@pytest.mark.fact("F-C-050")
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_namespaces_say_at_the_destination_never_comes_between(*, by_hand: bool) -> None:
    run = runner() if by_hand else runner(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run.linked.east.alter_namespace("shop", {"max.message.bytes": "2MiB", "min.insync.replicas": "2"})
    if by_hand:
        run.linked.mirror("east", "west")
    run()
    assert effective(run, "max.message.bytes") == ("1048588", "1048588")
    assert effective(run, "min.insync.replicas") == ("1", "2")
    run.linked.east.alter_namespace("shop", {"max.message.bytes": None})
    run()
    assert "max.message.bytes" not in run.linked.east.topic(ORDERS).configs


@pytest.mark.fact("F-C-050")
def test_what_a_source_inherits_from_its_namespace_is_its_config_too() -> None:
    run = mirroring()
    run.linked.west.alter_namespace("shop", {"retention.ms": "2h"})
    run()
    assert effective(run, "retention.ms") == ("7200000", "7200000")


@pytest.mark.fact("F-C-051", "F-C-052", "F-C-055")
def test_what_a_complete_list_leaves_out_is_the_mirrors_own() -> None:
    run = mirroring(topicConfigSync={"include": list(ALWAYS_SYNCED)})
    run.linked.west.alter_topic(ORDERS, {"retention.ms": "1h", "cleanup.policy": "compact"})
    run()
    assert effective(run, "retention.ms") == ("3600000", "604800000")
    assert effective(run, "cleanup.policy") == ("compact", "compact")
    run.linked.east.alter_topic(ORDERS, {"retention.ms": "2h"})
    run()
    assert effective(run, "retention.ms") == ("3600000", "7200000")


@pytest.mark.fact("F-C-052")
@pytest.mark.parametrize("key", ["min.insync.replicas", "compression.type", "segment.ms"])
def test_what_is_optional_follows_only_where_it_is_listed(key: str) -> None:
    value = "gzip" if key == "compression.type" else "2" if key == "min.insync.replicas" else "7200000"
    plain, listing = mirroring(), mirroring(topicConfigSync={"include": [*ALWAYS_SYNCED, key]})
    for run in (plain, listing):
        run.linked.west.alter_topic(ORDERS, {key: value})
        run()
    assert (effective(plain, key)[1] == value, effective(listing, key)[1] == value) == (False, True)


@pytest.mark.fact("F-C-053")
@pytest.mark.parametrize("key", ["remote.write", "remote.log.delete.on.disable", "local.retention.ms"])
def test_where_records_lie_is_the_destinations_own_and_cannot_be_listed(key: str) -> None:
    with pytest.raises(ValidationError, match=f"names what is never synced: {key}"):
        MirrorLinkSpec.model_validate({"source": "west", "topicConfigSync": {"include": [*ALWAYS_SYNCED, key]}})
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, {key: "1000" if key.endswith("ms") else "false"})
    run()
    assert run.linked.east.topic(ORDERS).configs == {}


@pytest.mark.fact("F-C-008")
def test_partitions_grow_with_their_source_and_are_told_where_a_quota_forbids_that() -> None:
    run = mirroring()
    run.linked.west.alter_topic(ORDERS, partitions=3)
    run()
    assert run.linked.east.topic(ORDERS).partitions == 3
    run.linked.east.limit_namespace("shop", QuotaEntry(partitions=4))
    run.linked.west.alter_topic(ORDERS, partitions=6)
    run()
    told = run.link().tasks[TOPIC_CONFIGS_SYNC]
    assert (told.code, run.linked.east.topic(ORDERS).partitions) == ("POLICY_VIOLATION_ERROR", 3)
    assert "shop:orders: namespace shop may hold 4 partitions" in told.message
    run.linked.east.limit_namespace("shop", None)
    run()
    assert (run.link().tasks, run.linked.east.topic(ORDERS).partitions) == ({}, 6)


@pytest.mark.fact("F-C-061")
def test_a_paused_mirror_follows_nothing_until_it_is_resumed() -> None:
    run = mirroring()
    links = run.linked.provider("east").links
    links.ask(ORDERS, "pause")
    run.linked.west.alter_topic(ORDERS, partitions=2)
    run()
    assert run.linked.east.topic(ORDERS).partitions == 1
    links.ask(ORDERS, "resume")
    run()
    assert run.linked.east.topic(ORDERS).partitions == 2
