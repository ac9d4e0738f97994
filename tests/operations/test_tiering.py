"""Tiering from the manifest to the cluster: what is declared is set, said, and found again by the next plan."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionFailed
from reconciler.archives.storage import read_storage_id
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.plan_text import format_plan
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.errors import BlockedError, StalePlanError, UserError
from reconciler.lifecycles import TieringState
from reconciler.manifests.positions import ManifestError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.manifest_files import validate
from reconciler.operations.run import run_once
from reconciler.operations.show import explain
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.planning.actions import Reason
from reconciler.planning.plan_rows import build_action_row, encode_plan
from reconciler.resources.cluster_properties import (
    ACCESS_KEY,
    ALIASES,
    AZURE_ACCOUNT,
    AZURE_KEY,
    EMBEDDED_PROPERTIES,
    MEANINGLESS,
    SECRET_KEY,
    TRUST_FILE,
)
from tests.embedded.maintenance.tiny_segments import TOPIC, TWO_PARTS, head_of
from tests.embedded.samples import NOW, ids
from tests.embedded.tiered.tiered_cluster import Tiered, upload_by_hand
from tests.operations.stage import CLUSTER, MIRROR, alter_topic, create_namespace, mirroring, move_topics

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.applying.engine import RunResult
    from reconciler.resources.kafka_configs import ConfigKey
    from tests.servers.weed import S3Server


BUCKET = "file://bucket"
KEYS = {ACCESS_KEY, SECRET_KEY, AZURE_ACCOUNT, AZURE_KEY}
"""Of buckets, not of folders."""


def declare(bench: Bench, *lines: str, storage: str | None = BUCKET) -> None:
    """Write the cluster with more lines below its spec."""
    said = "" if storage is None else f"  objectStorage: {storage}\n"
    below = "".join(f"  {line}\n" for line in lines)
    text = f"""\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec:
  embedded: {{root: "file://.clusters/west"}}
{said}{below}---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: west}}
"""
    bench.write("manifests/west.yaml", text)


def topic(bench: Bench, *, policy: str = "", configs: str = "{}") -> None:
    bench.write(
        "manifests/orders.yaml",
        f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: orders, namespace: shop, cluster: west}}
spec:
  partitions: 1
  configs: {configs}
{f"  tieringPolicy: {policy}" if policy else ""}
""",
    )


def policies(bench: Bench, **specs: str) -> None:
    documents = (
        f"apiVersion: reconciler/v1\nkind: TieringPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        for name, spec in specs.items()
    )
    bench.write("manifests/policies.yaml", "---\n".join(documents))


def opened(bench: Bench, storage: str = "bucket") -> EmbeddedCluster:
    root, bucket = bench.folder / ".clusters" / "west", bench.folder / storage
    return EmbeddedCluster.open(DirectoryStore(root), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(bucket))


def is_settled(bench: Bench) -> bool:
    planned = bench.plan()
    return planned.plan.is_empty and not planned.plan.errors


def errors(bench: Bench) -> list[str]:
    return [f"{error.source}: {error.address}: {error.message}" for error in bench.plan().plan.errors]


def sample(key: ConfigKey) -> str:
    """Return a value of a property that is not its default."""
    special = {
        "cloud_storage_cache_directory": "/cache",
        "cloud_storage_cache_size_percent": "10",
        "cloud_storage_idle_threshold_rps": "2",
        "cloud_storage_cache_trim_walk_concurrency": "8",
        **dict.fromkeys(chain.from_iterable(ALIASES), "1h"),
        **dict.fromkeys(ALIASES[1], "128KiB"),
        TRUST_FILE: "ca.pem",
    }
    if key.name in special:
        return special[key.name]
    match key.type:
        case "boolean":
            return "false" if key.default == "true" else "true"
        case "enum":
            return next(value for value in key.values if value != key.default)
        case "double":
            return "1"
        case "duration":
            return "7s"
        case "size":
            return "64KiB" if key.default != "65536" else "128KiB"
        case _:
            return "300"


@pytest.mark.fact("F-R-014")
def test_every_property_is_set_found_again_and_put_back(bench: Bench) -> None:
    declare(bench)
    bench.apply()
    bench.write("ca.pem", "")
    wanted = {name: sample(key) for name, key in EMBEDDED_PROPERTIES.items() if name not in KEYS}
    declare(bench, f"properties: {json.dumps(wanted)}")
    bench.apply()
    assert opened(bench).catalog.read().cluster.properties.keys() == wanted.keys()
    assert is_settled(bench)
    declare(bench, "properties: {cloud_storage_enabled: true}")
    planned = bench.plan().plan
    [update] = planned.actions
    bench.apply()
    assert opened(bench).catalog.read().cluster.properties == {"cloud_storage_enabled": "true"}
    assert update.id == "update:cluster/west"
    assert is_settled(bench)


def test_a_property_that_means_nothing_here_is_refused_with_its_reason(bench: Bench) -> None:
    wanted = dict.fromkeys(MEANINGLESS, "1")
    declare(bench, f"properties: {json.dumps(wanted)}")
    found = {error.message: error.hint for error in bench.plan().plan.errors}
    assert found == {
        f"properties.{name} has no meaning on an embedded cluster: {why}": hint
        for name, (why, hint) in MEANINGLESS.items()
    }
    declare(bench)
    bench.apply()
    for name, (why, _) in MEANINGLESS.items():
        with pytest.raises(UserError, match=f"{name} has no meaning on an embedded cluster: {re.escape(why)}"):
            opened(bench).alter_cluster({name: "1"})


@pytest.mark.parametrize(
    ("properties", "storage", "said"),
    [
        ({ACCESS_KEY: "AKIA", SECRET_KEY: "hunter2"}, "s3://b/p", "a secret must be a reference, never the secret"),
        ({AZURE_ACCOUNT: "me", AZURE_KEY: "hunter2"}, "az://box/p", "a secret must be a reference, never the secret"),
        ({ACCESS_KEY: "${env:RECONCILER_A}"}, "s3://bucket/p", f"{ACCESS_KEY} is set without {SECRET_KEY}"),
        ({AZURE_KEY: "${env:RECONCILER_A}"}, "az://box/p", f"{AZURE_KEY} is set without {AZURE_ACCOUNT}"),
        ({SECRET_KEY: "${env:RECONCILER_A}"}, "gs://bucket/p", "is for s3:// locations, and objectStorage is gs://"),
        ({AZURE_ACCOUNT: "me"}, "s3://bucket/p", "is for az:// locations, and objectStorage is s3://"),
        ({AZURE_ACCOUNT: "me"}, None, "is set, and there is no object storage"),
        (dict(zip(ALIASES[1], ("64KiB", "128KiB"), strict=True)), None, " and ".join(ALIASES[1])),
    ],
)
def test_how_object_storage_is_reached_is_judged_before_anybody_asks_it(
    bench: Bench, properties: dict[str, str], storage: str | None, said: str
) -> None:
    declare(bench, f"properties: {json.dumps(properties)}", storage=storage)
    problems = [finding.message for finding in validate(bench.invocation, Select()).findings]
    assert any(said in message for message in problems), problems
    assert "hunter2" not in " ".join(problems)


@pytest.mark.fact("F-R-067")
@pytest.mark.parametrize("name", ALIASES[1])
def test_the_size_of_a_manifests_page_has_two_names(bench: Bench, name: str) -> None:
    declare(bench, f"properties: {{{name}: 128KiB}}")
    topic(bench, configs="{remote.write: true}")
    bench.apply()
    cluster = opened(bench)
    found = find_tiering(cluster.catalog.read(), "shop:orders", cluster.cluster_id)
    assert found is not None
    assert found.spill_bytes == 128 * 1024
    with pytest.raises(UserError, match="are two names of one property, with different values"):
        cluster.alter_cluster(dict(zip(ALIASES[1], ("1KiB", "2KiB"), strict=True)))


def test_a_property_somebody_else_set_is_drift_and_is_set_back(bench: Bench) -> None:
    declare(bench, "properties: {cloud_storage_max_connections: 7}")
    bench.apply()
    opened(bench).alter_cluster({"cloud_storage_max_connections": "9", "cloud_storage_cache_max_objects": "5"})
    [found] = bench.plan().plan.drift
    assert (found.path, found.recorded, found.observed) == ("properties.cloud_storage_max_connections", "7", "9")
    bench.apply()
    properties = opened(bench).catalog.read().cluster.properties
    assert properties["cloud_storage_max_connections"] == "7"
    assert properties["cloud_storage_cache_max_objects"] == "5"


def test_a_cluster_that_is_there_is_bound_by_an_update_that_is_seen(bench: Bench) -> None:
    bench.apply()
    assert opened(bench).catalog.read().cluster.storage_id is None
    declare(bench)
    [update] = bench.plan().plan.actions
    assert update.id == "update:cluster/west"
    bench.apply()
    cluster = opened(bench)
    assert cluster.catalog.read().cluster.storage_id == read_storage_id(DirectoryStore(bench.folder / "bucket"))
    assert cluster.remote is not None
    assert is_settled(bench)


def test_two_clusters_share_one_bucket_on_purpose(bench: Bench) -> None:
    declare(bench)
    east = (bench.folder / "manifests" / "west.yaml").read_text().replace("west", "east")
    bench.write("manifests/east.yaml", east)
    assert bench.apply().verdict is None
    assert is_settled(bench)


@pytest.mark.fact("F-R-013")
def test_topics_do_not_move_to_another_bucket(bench: Bench) -> None:
    declare(bench)
    topic(bench, configs="{remote.write: true}")
    bench.apply()
    declare(bench, storage="file://elsewhere")
    assert [error for error in errors(bench) if "file://elsewhere holds nothing of it, and topic shop:orders" in error]
    with pytest.raises(UserError, match="topics do not move between buckets"):
        bench.apply()
    declare(bench, storage=None)
    assert [error for error in errors(bench) if "no objectStorage any more" in error]
    (bench.folder / "bucket").rename(bench.folder / "elsewhere")
    declare(bench, storage="file://elsewhere")
    assert [action.id for action in bench.plan().plan.actions] == ["adopt:cluster/west"]
    bench.apply()
    assert is_settled(bench)


def test_object_storage_that_lost_its_id_is_told_from_another_and_how_to_restore_it(bench: Bench) -> None:
    declare(bench)
    topic(bench, configs="{remote.write: true}")
    bench.apply()
    file = bench.folder / "bucket" / "storage.json"
    (bench.folder / "bucket" / "topics" / "some").mkdir(parents=True)
    (bench.folder / "bucket" / "topics" / "some" / "segment").write_text("records")
    content = file.read_text()
    bound = read_storage_id(DirectoryStore(bench.folder / "bucket"))
    file.unlink()
    (error,) = (found for found in bench.plan().plan.errors if found.address == "cluster/west")
    assert (
        "bucket has no storage.json, though remote objects of topics are there: this cluster's topics are stored in "
        in (error.message)
    )
    assert str(bound) in error.message
    assert f"write {content.strip()} there" in error.hint
    with pytest.raises(UserError, match="has no storage"):
        bench.apply()
    assert not file.exists(), "nobody gives it another id"
    file.write_text(content)
    assert is_settled(bench)


def test_another_cluster_gives_no_new_id_to_object_storage_that_lost_its_own(bench: Bench) -> None:
    declare(bench)
    (bench.folder / "bucket" / "topics" / "some").mkdir(parents=True)
    (bench.folder / "bucket" / "topics" / "some" / "segment").write_text("records")
    with pytest.raises(UserError, match="where none is left, any new one"):
        bench.plan()
    assert not (bench.folder / ".clusters").exists()
    assert not (bench.folder / "bucket" / "storage.json").exists()
    (bench.folder / "bucket" / "storage.json").write_text('{"format":"reconciler.object-storage/1","id":"mine"}')
    assert bench.apply().verdict is None
    assert is_settled(bench)


def test_object_storage_that_cannot_be_used_is_said_before_anything_is_made(bench: Bench) -> None:
    bench.write("bucket", "this is a file")
    declare(bench)
    with pytest.raises(UserError, match="its objectStorage cannot be used: cannot list"):
        bench.apply()
    assert not (bench.folder / ".clusters").exists()
    (bench.folder / "bucket").unlink()
    assert bench.apply().verdict is None
    assert is_settled(bench)


def test_what_a_policy_says_is_set_and_a_changed_policy_changes_its_topics(bench: Bench) -> None:
    declare(bench)
    policies(
        bench, standard="{remoteWrite: true, remoteRead: true, retention: {time: 30d}, localRetention: {time: 6h}}"
    )
    topic(bench, policy="standard")
    bench.apply()
    assert is_settled(bench)
    cluster = opened(bench)
    found = find_tiering(cluster.catalog.read(), "shop:orders", cluster.cluster_id)
    assert found is not None
    assert (found.uploads, found.serves, found.targets.total_ms, found.targets.local_ms) == (
        True,
        True,
        30 * 86_400_000,
        6 * 3_600_000,
    )
    policies(bench, standard="{remoteWrite: true, remoteRead: true, retention: {time: 30d}}")
    [update] = bench.plan().plan.actions
    assert update.id == "update:topic/west/shop:orders"


@pytest.mark.fact("F-R-004")
def test_topics_of_one_plan_have_the_defaults_of_that_plan(bench: Bench) -> None:
    declare(bench)
    topic(bench)
    bench.apply()
    declare(bench, "properties: {cloud_storage_enable_remote_write: true}")
    bench.write(
        "manifests/refunds.yaml", (bench.folder / "manifests" / "orders.yaml").read_text().replace("orders", "refunds")
    )
    bench.apply()
    topics = opened(bench).catalog.read().topics
    assert topics["shop:orders"].tiering is None
    assert topics["shop:refunds"].tiering is not None
    assert is_settled(bench)


def explained(bench: Bench, *, planned: bool = False) -> dict[str, tuple[str, str]]:
    found = explain(bench.invocation, Select(), "topic/west/shop:orders")
    return {row.key: (row.value, row.rule) for row in (found.tiering_planned if planned else found.tiering)}


@pytest.mark.fact("F-R-027")
def test_each_number_is_explained_by_the_rule_behind_it(bench: Bench) -> None:
    declare(bench, "properties: {cloud_storage_enable_remote_write: true, log_retention_ms: 3d}")
    policies(bench, standard="{remoteRead: true, localRetention: {time: 5d, bytes: 20GiB}, retention: {bytes: 30GiB}}")
    topic(bench, policy="standard")
    day = 86_400_000
    expected = {
        "remote.write": ("true", "the cluster's default when it was made"),
        "remote.read": ("true", "set by policy/standard"),
        "remote.delete": ("true", "not set: the default"),
        "remote.log.disable.policy": ("retain", "set by policy/standard"),
        "retention.ms": (str(5 * day), "raised to the local target: nothing local is kept longer than in total"),
        "retention.bytes": (str(30 * 2**30), "set by policy/standard"),
        "retention.local.target.ms": (str(5 * day), "set by policy/standard"),
        "retention.local.target.bytes": (str(20 * 2**30), "set by policy/standard"),
        "retention.local.strict": ("false", "not set: the default"),
    }
    assert explained(bench, planned=True) == expected
    bench.apply()
    assert explained(bench) == expected
    assert explained(bench, planned=True) == {}


@pytest.mark.fact("F-R-001")
def test_it_is_explained_why_a_topic_is_not_tiered_though_it_asks_to_be(bench: Bench) -> None:
    declare(bench, "properties: {cloud_storage_enabled: false}")
    topic(bench, configs="{remote.write: true}")
    bench.apply()
    assert explained(bench)["remote.write"] == ("false", "cloud_storage_enabled of cluster/west is not true")
    assert [warning for warning in bench.plan().plan.warnings if "nothing is uploaded or fetched" in warning.message]


def passed(bench: Bench, *values: str) -> tuple[list[Path], list[str]]:
    """Produce values, each a segment of its own, and do one pass; return the objects, and what can be read."""
    cluster = opened(bench)
    for value in values:
        with cluster.producer() as producer:
            producer.send("shop:orders", value)
    reach = SiteOptions(invocation=bench.invocation, select=Select())
    ran = run_once(reach, report=bench.events.append, stop=bench.stop)
    assert not [job.error for job in ran.jobs if job.error]
    objects = sorted((bench.folder / "bucket").rglob("*.parquet"))
    return objects, [(each.value or b"").decode() for each in opened(bench).consume("shop:orders")]


LOCAL = "segment.bytes: 14, retention.local.target.bytes: 1, retention.local.strict: true"
"""Each record is a segment, and what is uploaded leaves the local tier."""


@pytest.mark.fact("F-R-001")
def test_with_the_switch_of_the_cluster_off_nothing_is_uploaded_and_nothing_is_fetched(bench: Bench) -> None:
    on, off = (f"properties: {{cloud_storage_enabled: {value}}}" for value in ("true", "false"))
    declare(bench, off)
    topic(bench, configs=f"{{remote.write: true, remote.read: true, retention.ms: infinite, {LOCAL}}}")
    assert bench.apply().verdict is None
    assert passed(bench, "a", "b", "c") == ([], ["a", "b", "c"])
    declare(bench, on)
    assert bench.apply().verdict is None
    archived, values = passed(bench, "d")
    assert (len(archived), values) == (3, ["a", "b", "c", "d"])
    declare(bench, off)
    assert bench.apply().verdict is None
    assert passed(bench, "e", "f") == (archived, ["d", "e", "f"])


@pytest.mark.fact("F-R-038")
def test_writes_that_are_switched_off_keep_what_is_archived_until_a_lower_retention_deletes_it(bench: Bench) -> None:
    declare(bench, "properties: {cloud_storage_enabled: true}")
    configs = f"remote.log.disable.policy: retain, remote.read: true, {LOCAL}"
    topic(bench, configs=f"{{remote.write: true, retention.ms: infinite, {configs}}}")
    assert bench.apply().verdict is None
    archived, _ = passed(bench, "a", "b", "c", "d")
    assert len(archived) == 3
    topic(bench, configs=f"{{remote.write: false, retention.ms: infinite, {configs}}}")
    assert bench.apply().verdict is None
    assert passed(bench, "e", "f") == (archived, ["a", "b", "c", "d", "e", "f"])
    topic(bench, configs=f"{{remote.write: false, retention.ms: 1h, {configs}}}")
    assert bench.apply(Select(allow=("update:topic/west/shop:orders",))).verdict is None
    objects, values = passed(bench)
    assert (objects, values) == ([], ["f"])


@pytest.mark.fact("F-R-006")
def test_a_topic_that_is_there_is_not_recovered(bench: Bench) -> None:
    declare(bench)
    topic(bench)
    bench.apply()
    topic(bench, configs="{remote.recovery: true}")
    [found] = bench.plan().plan.errors
    assert found.message.startswith("it exists already, and remote.recovery works only when a topic is created")


def test_what_cannot_be_is_told_with_its_reason_and_on_its_line(bench: Bench) -> None:
    declare(bench, "properties: {cloud_storage_cache_sise: 1, log_retention_ms: soon}")
    policies(bench, standard="{remoteWrite: true, retention: {time: 1d}, localRetention: {time: 2d}}")
    topic(bench, policy="standard")
    unknown, value, limits = errors(bench)
    assert unknown.startswith(
        "manifests/west.yaml:7: cluster/west: properties.cloud_storage_cache_sise is not a property"
    )
    assert value.startswith(
        "manifests/west.yaml:7: cluster/west: properties.log_retention_ms: 'soon' is not a duration"
    )
    assert limits.startswith("manifests/orders.yaml:7: topic/west/shop:orders: retention.local.target.ms")
    assert "is 2d, above retention.ms (of policy/standard) of 1d" in limits
    assert limits.endswith("(see manifests/policies.yaml:4)")
    found = [f"{finding.source} {finding.message}" for finding in validate(bench.invocation, Select()).findings]
    assert [text for text in found if "cloud_storage_cache_sise" in text]


@pytest.mark.parametrize(
    ("configs", "policy", "said"),
    [
        (
            "{remote.write: true,\n    remote.storage.enable: true}",
            "",
            ["orders.yaml:7:", "says what remote.write on line 6 says"],
        ),
        (
            "{local.retention.ms: 1h,\n    retention.local.target.ms: 2h}",
            "",
            ["orders.yaml:6:", "says what retention.local.target.ms on line 7 says"],
        ),
        (
            "{remote.storage.enable: true}",
            "standard",
            ["orders.yaml:6:", "is set twice: here, and by the tieringPolicy standard on line 7"],
        ),
        pytest.param("{}", "nobody", ["orders.yaml:7:", "there is no tiering policy nobody"], id="no-such-policy"),
        pytest.param(
            "{remote.log.disable.policy: keep}",
            "",
            ["orders.yaml:6:", "not one of retain, delete"],
            marks=pytest.mark.fact("F-K-053"),
        ),
    ],
)
def test_the_files_say_each_thing_once_and_know_what_they_name(
    bench: Bench, configs: str, policy: str, said: list[str]
) -> None:
    declare(bench)
    policies(bench, standard="{remoteWrite: true}")
    topic(bench, configs=configs, policy=policy)
    with pytest.raises(ManifestError) as refused:
        validate(bench.invocation, Select())
    assert all(part in str(refused.value) for part in said)


@pytest.mark.fact("F-K-053")
def test_a_policy_of_disabling_that_nobody_knows_is_refused_on_its_line(bench: Bench) -> None:
    declare(bench)
    policies(bench, standard="{onDisable: keep}")
    with pytest.raises(ManifestError, match=r"policies\.yaml:4:"):
        validate(bench.invocation, Select())


@pytest.mark.fact("F-K-052")
def test_a_policy_that_does_not_say_what_disabling_does_retains(bench: Bench) -> None:
    declare(bench)
    policies(bench, standard="{remoteWrite: true}")
    topic(bench, policy="standard")
    bench.apply()
    assert explained(bench)["remote.log.disable.policy"] == ("retain", "set by policy/standard")


@pytest.mark.fact("F-R-013")
def test_upkeep_touches_no_cluster_whose_records_lie_in_another_bucket(bench: Bench) -> None:
    declare(bench)
    topic(bench, configs="{remote.write: true}")
    bench.apply()
    declare(bench, storage="file://elsewhere")
    ran = run_once(
        SiteOptions(invocation=bench.invocation, select=Select()), report=bench.events.append, stop=bench.stop
    )
    [outcome] = ran.jobs
    assert "file://elsewhere holds nothing of it" in str(outcome.error)
    assert not (bench.folder / "elsewhere" / "topics").exists()


@pytest.mark.parametrize(
    ("identity", "said"),
    [("nobody", "s3:GetObject"), ("unlisted", "s3:ListBucket")],
)
def test_a_bucket_that_may_not_be_read_or_listed_is_said_by_the_plan(
    bench: Bench, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, identity: str, said: str
) -> None:
    bench.apply()
    declare(bench, storage=s3_server.url("topics"))
    for name, value in s3_server.environ(identity).items():
        monkeypatch.setenv(name, value)
    [error] = bench.plan().plan.errors
    assert error.message.startswith("its objectStorage cannot be used: cannot ")
    assert said in error.hint


def test_a_bucket_that_may_not_be_written_is_said_before_the_cluster_is_bound_to_it(
    bench: Bench, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.apply()
    declare(bench, storage=s3_server.url("topics"))
    for name, value in s3_server.environ("reader").items():
        monkeypatch.setenv(name, value)
    assert not bench.plan().plan.errors
    applied = bench.apply()
    assert applied.verdict is not None
    [failed] = [event for event in bench.events if isinstance(event, ActionFailed)]
    assert "s3:PutObject" in failed.hint
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    assert bench.apply().verdict is None
    assert is_settled(bench)


def test_a_cluster_whose_making_was_cut_short_is_bound_by_the_next_apply(bench: Bench) -> None:
    root = DirectoryStore(bench.folder / ".clusters" / "west")
    EmbeddedCluster.create(root, now_ms=lambda: NOW, new_id=ids())
    declare(bench, "properties: {cloud_storage_max_connections: 7}")
    assert [action.id for action in bench.plan().plan.actions][:2] == ["adopt:cluster/west", "update:cluster/west"]
    assert bench.apply().verdict is None
    found = opened(bench).catalog.read().cluster
    assert found.storage_id is not None
    assert found.properties == {"cloud_storage_enabled": "true", "cloud_storage_max_connections": "7"}
    assert is_settled(bench)


def test_an_approved_plan_binds_a_cluster_and_a_stale_one_does_not(bench: Bench) -> None:
    bench.apply()
    declare(bench, "properties: {cloud_storage_max_connections: 7}")
    bench.plan(out=Path("p.json"))
    opened(bench).alter_cluster({"cloud_storage_max_connections": "9"})
    with pytest.raises(StalePlanError):
        bench.apply(options=ApplyOptions(file=Path("p.json")))
    assert opened(bench).catalog.read().cluster.properties == {"cloud_storage_max_connections": "9"}
    bench.plan(out=Path("p.json"))
    assert bench.apply(options=ApplyOptions(file=Path("p.json"))).verdict is None
    assert is_settled(bench)


# Tiering switched off and on again by files alone: what the plan says first, and what is there afterwards.


WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
  objectStorage: "file://.storage"
  properties: {cloud_storage_enabled: true}
"""

ORDERS = f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {TOPIC}, cluster: west}}
spec: {{partitions: 2, tieringPolicy: standard, configs: {{segment.bytes: {TWO_PARTS}, retention.ms: infinite}}}}
"""

POLICY = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {{name: standard}}
spec: {{remoteWrite: {on}, remoteRead: {on}, onDisable: {policy}}}
"""

ALLOWED = Select(allow=(f"disable-tiering:topic/west/{TOPIC}",))


def switch(bench: Bench, *, on: bool, policy: str = "retain") -> None:
    bench.write("manifests/policy.yaml", POLICY.format(on=str(on).lower(), policy=policy))


def done(result: RunResult | None) -> list[str]:
    return [] if result is None else list(result.done)


@pytest.fixture
def it(bench: Bench) -> Tiered:
    """A tiered topic of twelve records a partition: eight uploaded, of which four lie in object storage alone."""
    bench.write("manifests/west.yaml", WEST)
    bench.write("manifests/orders.yaml", ORDERS)
    switch(bench, on=True)
    bench.apply()
    found = Tiered(DirectoryStore(bench.folder / ".clusters/west"), DirectoryStore(bench.folder / ".storage"))
    for partition in range(2):
        found.fill(6, partition=partition)
        upload_by_hand(found, 8, evicts=4, partition=partition)
    return found


@pytest.mark.fact("F-K-057")
def test_retained_data_costs_nothing_and_the_next_plan_is_empty(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False)
    applied = bench.apply()
    assert done(applied.result) == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLED
    assert head_of(it.cluster).start == 0
    assert bench.plan().plan.is_empty
    assert bench.plan().plan.waiting == ()


@pytest.mark.fact("F-K-065")
def test_deleting_it_is_shown_in_offsets_and_bytes_and_blocked_until_it_is_allowed(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    plan = bench.plan().plan
    lost = sum(entry.bytes for entry in it.segments()[:2])
    row = json.loads(encode_plan(plan))["actions"][0]
    assert [each | {"bytes": None} for each in row["estimate"]["unreadable"]] == [
        {"topic": f"topic/west/{TOPIC}", "partition": partition, "start": 0, "stop": 4, "bytes": None}
        for partition in range(2)
    ]
    assert row["estimate"]["unreadable"][0]["bytes"] == lost
    text = to_plain_text(format_plan(plan))
    assert re.search(r"tiering off, remote data deleted  .*\n +remote.log.disable.policy retain → delete\n", text)
    assert "data loss: 8 offsets of 2 partitions become unreadable, about " in text
    assert f"--allow disable-tiering:topic/west/{TOPIC}" in text
    with pytest.raises(BlockedError):
        bench.apply()
    assert it.tiering().state is TieringState.ENABLED
    assert done(bench.apply(ALLOWED).result) == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLED
    assert (head_of(it.cluster).start, it.manifest().entries) == (4, ())
    assert bench.plan().plan.is_empty


@pytest.mark.fact("F-K-064")
@pytest.mark.fact("F-R-012")
def test_switched_on_again_it_says_what_will_be_missing_and_how_much_it_uploads(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    bench.apply(ALLOWED)
    expire(it, 6)
    switch(bench, on=True, policy="delete")
    planned = bench.plan().plan
    assert [action.id for action in planned.actions] == [f"enable-tiering:topic/west/{TOPIC}"]
    estimate = planned.actions[0].estimate
    assert estimate.uploads == sum(head_of(it.cluster, partition).stored_bytes for partition in range(2))
    assert [warning.message for warning in planned.warnings] == [
        "uploads were off for some time: object storage will never contain 2 offsets (partition 0: 4 to 5)"
    ]
    bench.apply()
    assert it.tiering().state is TieringState.ENABLED
    assert it.tiering().uploads
    assert bench.plan().plan.is_empty


def expire(it: Tiered, start: int) -> None:
    """Let retention take what lies below an offset of partition 0."""
    topic_id = it.cluster.catalog.read().topics[TOPIC].id
    swap_head(
        it.store,
        Partition(TOPIC, topic_id, 0),
        lambda head: replace(
            head,
            start=start,
            local_start=start,
            entries=tuple(entry for entry in head.entries if entry.base >= start),
        ),
    )


@pytest.mark.fact("F-K-063")
def test_what_apply_could_not_finish_is_waited_for_and_finished_without_being_asked(bench: Bench, it: Tiered) -> None:
    whole = it.storage.get(it.remote(1).key)
    assert whole is not None
    it.storage.put(it.remote(1).key, b"{}")
    switch(bench, on=False)
    result = bench.apply().result
    assert result is not None
    assert [item.id for item in result.failed] == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLING
    waiting = bench.plan().plan
    assert [(each.address, each.state) for each in waiting.waiting] == [(f"topic/west/{TOPIC}", "DISABLING")]
    assert not waiting.errors
    it.storage.put(it.remote(1).key, whole.body)
    assert it.cluster.finish_disablings() == 1
    bench.apply()
    assert bench.plan().plan.is_empty


def test_a_saved_plan_is_applied_as_it_was_approved(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    file = bench.folder / "plan.json"
    bench.plan(ALLOWED, out=file)
    bench.apply(options=ApplyOptions(yes=True, file=file))
    assert it.tiering().state is TieringState.DISABLED


def test_altering_a_topic_by_hand_never_deletes_what_lies_in_object_storage(bench: Bench, it: Tiered) -> None:
    off = {"remote.write": "false", "remote.read": "false"}
    deleting = {**off, "remote.log.disable.policy": "delete"}
    with pytest.raises(UserError, match="deletes what is in object storage") as refused:
        alter_topic(bench.acting(), f"topic/west/{TOPIC}", deleting)
    assert "plan" in refused.value.hint
    assert it.tiering().state is TieringState.ENABLED
    alter_topic(bench.acting(), f"topic/west/{TOPIC}", off)
    assert (it.tiering().state, it.tiering().policy) == (TieringState.DISABLED, "retain")


def test_altering_a_mirror_by_hand_never_deletes_what_lies_in_object_storage(bench: Bench) -> None:
    mirroring(bench)
    east = CLUSTER.replace("NAME", "east").replace(
        '"file://.clusters/east"}',
        '"file://.clusters/east"}\n  objectStorage: "file://.storage"\n  properties: {cloud_storage_enabled: true}',
    )
    bench.write("manifests/east.yaml", east)
    assert bench.apply().verdict is None
    on, off = ({"remote.write": value, "remote.read": value} for value in ("true", "false"))
    alter_topic(bench.acting(no_state=True), MIRROR, on)
    deleting = {**off, "remote.log.disable.policy": "delete"}
    with pytest.raises(UserError, match="deletes what is in object storage"):
        alter_topic(bench.acting(no_state=True), MIRROR, deleting)
    storage = DirectoryStore(bench.folder / ".storage")
    cluster = EmbeddedCluster.open(
        DirectoryStore(bench.folder / ".clusters/east"), now_ms=lambda: NOW, new_id=ids(), storage=storage
    )
    tiering = find_tiering(cluster.catalog.read(), "shop:orders", cluster.cluster_id)
    assert tiering is not None
    assert tiering.state is TieringState.ENABLED
    alter_topic(bench.acting(no_state=True), MIRROR, off)


def test_a_topic_is_not_moved_by_hand_to_where_tiering_is_off(bench: Bench) -> None:
    on = "cloud_storage_enabled: true, cloud_storage_enable_remote_write: true, cloud_storage_enable_remote_read: true"
    bench.write("manifests/west.yaml", WEST.replace("cloud_storage_enabled: true", on))
    bench.write("manifests/orders.yaml", ORDERS.replace("tieringPolicy: standard", "protect: true"))
    bench.apply()
    it = Tiered(DirectoryStore(bench.folder / ".clusters/west"), DirectoryStore(bench.folder / ".storage"))
    it.fill(6)
    upload_by_hand(it, 8, evicts=4)
    deleting = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}
    create_namespace(bench.acting(), "west", "scratch", deleting)
    with pytest.raises(BlockedError, match="4 offsets in object storage would be deleted by what it inherits") as no:
        move_topics(bench.acting(), "west", "", "scratch", [TOPIC])
    assert "--allow move:topic/west/scratch:orders" in no.value.hint
    assert (it.tiering().state, len(it.segments())) == (TieringState.ENABLED, 4)


# The plan that deletes a tiered topic says what becomes of what it has in object storage.


REMOTE = frozenset({Reason.REMOTE_DELETED, Reason.REMOTE_KEPT})


@pytest.mark.fact("F-R-008", "F-R-009", "F-R-010")
@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ("remote.write: true, remote.read: true", Reason.REMOTE_DELETED),
        ("remote.write: true, remote.read: true, remote.delete: false", Reason.REMOTE_KEPT),
        ("remote.write: true", Reason.REMOTE_KEPT),
        ("remote.write: false", None),
    ],
)
def test_what_becomes_of_remote_objects_is_in_the_plan(bench: Bench, configs: str, reason: Reason | None) -> None:
    declare(bench)
    topic(bench, configs=f"{{{configs}}}")
    assert bench.apply().verdict is None
    (bench.folder / "manifests" / "orders.yaml").unlink()
    plan = bench.plan().plan
    (action,) = plan.actions
    assert REMOTE.intersection(action.reasons) == ({reason} if reason else set())
    location = build_action_row(action)["estimate"]["location"]
    assert (location or "").startswith("shop:orders/" if reason else "")
    text = to_plain_text(format_plan(plan))
    assert ("its remote data goes too: shop:orders/" in text) == (reason is Reason.REMOTE_DELETED)
    assert ("its remote data is kept, recoverable from shop:orders/" in text) == (reason is Reason.REMOTE_KEPT)


def test_what_a_namespace_says_counts_where_only_the_topic_is_planned(bench: Bench) -> None:
    declare(bench)
    path = bench.folder / "manifests" / "west.yaml"
    path.write_text(path.read_text() + "spec: {configs: {remote.delete: false}}\n")
    topic(bench, configs="{remote.write: true, remote.read: true}")
    assert bench.apply().verdict is None
    (bench.folder / "manifests" / "orders.yaml").unlink()
    plan = bench.plan(Select(targets=("topic/west/shop:orders",))).plan
    assert Reason.REMOTE_KEPT in plan.actions[0].reasons
