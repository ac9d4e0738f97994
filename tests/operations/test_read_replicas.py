"""Read replicas by plan, apply and run: what is shown, what follows when, and what replaces one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import BlockedError, ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.topics import describe_topic, read_topic_storage
from reconciler.operations.drift import drift
from reconciler.operations.export import ExportOptions, export
from reconciler.operations.manifest_files import validate
from reconciler.operations.metrics import MetricsReader, build_metrics
from reconciler.operations.mirrors.mirror_rounds import PassResult
from reconciler.operations.run import run_once, run_repeatedly
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.resources.topic import FOLLOWING, SOURCE_GONE
from tests.embedded.mounts.recovered_topics import TOPIC, fill, records_in, say
from tests.embedded.samples import NOW, ids
from tests.embedded.tiered.tiered_cluster import archive
from tests.operations.stage import STORED_CLUSTER
from tests.operations.test_recovery import ORDERS

if TYPE_CHECKING:
    from conftest import Bench

REPLICA = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: east}
spec: {readReplicaOf: "LOCATION"MORE}
"""
ADDRESS = "topic/east/shop:orders"
INTERVAL_MS = 30_000


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    root, storage = bench.folder / ".clusters" / name, bench.folder / "bucket"
    return EmbeddedCluster.open(DirectoryStore(root), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(storage))


@pytest.fixture
def location(bench: Bench) -> str:
    """A cluster `west` with a topic that lies in object storage, and a cluster `east` that is declared."""
    bench.write("manifests/west.yaml", STORED_CLUSTER.replace("NAME", "west"))
    bench.write("manifests/orders.yaml", ORDERS)
    bench.apply()
    west = opened(bench, "west")
    upload(west, 0)
    say(west)
    bench.write("manifests/east.yaml", STORED_CLUSTER.replace("NAME", "east"))
    return f"{TOPIC}/{west.cluster_id}/1"


def upload(west: EmbeddedCluster, first: int) -> None:
    for partition in (0, 1):
        fill(west, 3, first=first, partition=partition)
        archive(west, TOPIC, partition)


def declare(bench: Bench, location: str, more: str = "") -> None:
    bench.write("manifests/replica.yaml", REPLICA.replace("LOCATION", location).replace("MORE", more))


def followed(bench: Bench) -> PassResult:
    return run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=["replicas"],
        report=bench.events.append,
        stop=bench.stop,
    )


def kept(bench: Bench) -> dict[str, bytes]:
    topics = bench.folder / "bucket" / "topics"
    return {str(path): path.read_bytes() for path in sorted(topics.rglob("*")) if path.is_file()}


def test_it_is_planned_made_and_then_there_is_nothing_to_do_and_no_drift(bench: Bench, location: str) -> None:
    declare(bench, location)
    action = next(each for each in bench.plan().plan.actions if each.address == ADDRESS)
    assert action.parameters == {"readReplicaOf": location, "partitions": 2}
    assert (action.estimate.records, action.estimate.bytes, action.risk) == (0, 0, "none")
    before = kept(bench)
    assert bench.apply().verdict is None
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))
    assert bench.plan().plan.is_empty
    assert drift(bench.invocation, Select()).findings == ()
    opened(bench, "west").alter_topic(TOPIC, partitions=3)
    say(opened(bench, "west"))
    assert followed(bench).verdict is None
    assert opened(bench, "east").topic(TOPIC).partitions == 3
    assert ADDRESS not in {action.address for action in bench.plan().plan.actions}
    assert ADDRESS not in {found.address for found in drift(bench.invocation, Select()).findings}
    assert before.keys() == kept(bench).keys()


def test_what_it_shows_its_lag_and_its_source_can_be_seen(bench: Bench, location: str) -> None:
    declare(bench, location)
    bench.apply()
    upload(opened(bench, "west"), 12)
    described = describe_topic(SiteOptions(invocation=bench.invocation, select=Select()), ADDRESS)
    assert [(row.start, row.end) for row in described.partitions] == [(0, 12), (0, 12)]
    assert described.configs == ()
    storage = read_topic_storage(SiteOptions(invocation=bench.invocation, select=Select()), ADDRESS)
    assert storage.tiering is not None
    shown = storage.tiering.mode, storage.tiering.state, storage.tiering.location, storage.lag
    assert shown == ("read_replica", FOLLOWING, location, 24)
    upkeep = followed(bench)
    assert [(job.cluster, job.upkept.done) for job in upkeep.jobs] == [("east", 2), ("west", 0)]
    assert read_topic_storage(SiteOptions(invocation=bench.invocation, select=Select()), ADDRESS).lag == 0
    assert described.records == 24
    measured = MetricsReader(SiteOptions(invocation=bench.invocation, select=Select())).read_clusters()
    metrics = {each.name: each for each in build_metrics(measured, upkeep, now_ms=NOW)}
    lags = metrics["cloud_storage_read_replica_offset_lag"].samples
    assert [value for _, value in lags] == [0.0]


def test_run_follows_each_interval_and_at_once_where_it_is_told_to(bench: Bench, location: str) -> None:
    declare(bench, location)
    bench.apply()
    began_ms, later_ms = bench.invocation.now_ms(), 0
    clocked = bench.with_(now_ms=lambda: began_ms + later_ms)
    followed(clocked)
    ends = []
    for number, later_ms in enumerate((INTERVAL_MS - 1, INTERVAL_MS, INTERVAL_MS + 1)):  # noqa: B007 - the clock reads it
        upload(opened(bench, "west"), 12 * (number + 1))
        passes = run_repeatedly(
            SiteOptions(invocation=clocked.invocation, select=Select()), 0, report=bench.events.append, stop=bench.stop
        )
        assert isinstance(next(passes), PassResult)
        ends.append(opened(bench, "east").log(TOPIC).read_bounds()[0].end)
    assert ends == [12, 36, 36]
    followed(clocked)
    assert opened(bench, "east").log(TOPIC).read_bounds()[0].end == 48


def test_one_pass_brings_a_replica_to_what_a_later_cluster_uploads_in_it(bench: Bench, location: str) -> None:
    declare(bench, location)
    bench.apply()
    followed(bench)
    west = opened(bench, "west")
    west.alter_topic(TOPIC, {"segment.bytes": "14"})
    for partition in (0, 1):
        fill(west, 3, first=12, partition=partition)
    reach = SiteOptions(invocation=bench.invocation, select=Select())
    upkeep = run_once(reach, only=["upload", "replicas"], report=bench.events.append, stop=bench.stop)
    done = {job.name: job.upkept.done for job in upkeep.jobs if job.upkept.done}
    assert done == {"upload:west": 2, "replicas:east": 2}
    assert read_topic_storage(reach, ADDRESS).lag == 0
    assert opened(bench, "east").log(TOPIC).read_bounds()[0].end > 12


def test_a_source_that_is_gone_is_told_by_run_show_and_describe(bench: Bench, location: str) -> None:
    declare(bench, location)
    bench.apply()
    opened(bench, "west").delete_topic(TOPIC)
    upkeep = followed(bench)
    (error,) = (error for job in upkeep.jobs for error in job.errors)
    assert f"read replica {TOPIC}: its source {location} was deleted" in error.message
    assert upkeep.verdict is not None
    storage = read_topic_storage(SiteOptions(invocation=bench.invocation, select=Select()), ADDRESS)
    assert storage.tiering is not None
    assert (storage.tiering.state, storage.lag) == (SOURCE_GONE, None)
    assert "was deleted" in str(storage.problem)
    assert not any(action.address == ADDRESS for action in bench.plan().plan.actions)


def test_export_says_it_again_and_the_next_plan_finds_nothing(bench: Bench, location: str) -> None:
    declare(bench, location, ', acls: [{principal: "User:audit", operations: [read]}]')
    bench.apply()
    found = export(bench.invocation, Select(), "east", ExportOptions(out=bench.folder / "exported"))
    text = "\n".join(path.read_text() for path in sorted((bench.folder / "exported").rglob("*.yaml")))
    assert f'readReplicaOf: "{location}"' in text
    assert "partitions" not in text
    assert "User:audit" in text
    assert ADDRESS in found.addresses
    (bench.folder / "manifests" / "replica.yaml").write_text(text)
    bench.write("manifests/east.yaml", STORED_CLUSTER.replace("NAME", "east").split("---")[0])
    assert bench.plan().plan.is_empty


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (", partitions: 2", "partitions"),
        (", replicationFactor: 3", "replicationFactor"),
        (", configs: {retention.ms: 1d}", "configs"),
        (", tieringPolicy: standard", "tieringPolicy"),
        (', recoverFrom: "orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"', "recoverFrom"),
    ],
)
def test_nothing_is_declared_beside_it_and_validate_and_plan_say_where(
    bench: Bench, location: str, more: str, field: str
) -> None:
    bench.write(
        "manifests/policy.yaml",
        "apiVersion: reconciler/v1\nkind: TieringPolicy\nmetadata: {name: standard}\nspec: {remoteWrite: true}\n",
    )
    declare(bench, location, more)
    message = f"spec.{field} cannot be set together with readReplicaOf"
    assert any(message in each.message for each in bench.plan().plan.errors)
    assert any(message in each.message for each in validate(bench.invocation, Select()).findings)


def test_another_location_replaces_it_once_that_is_allowed_and_its_source_keeps_all(
    bench: Bench, location: str
) -> None:
    west = opened(bench, "west")
    bench.write("manifests/more.yaml", ORDERS.replace("name: orders", "name: more"))
    declare(bench, location)
    bench.apply()
    say(west, "shop:more")
    other = f"shop:more/{location.split('/')[1]}/2"
    declare(bench, other)
    before = kept(bench)
    with pytest.raises(BlockedError):
        bench.apply()
    assert len(records_in(opened(bench, "east"))[0]) == 12
    allowing = Select(allow=(f"delete:{ADDRESS}",))
    assert bench.apply(allowing, ApplyOptions(yes=True)).verdict is None
    replica = opened(bench, "east").topic(TOPIC).replica
    assert replica is not None
    assert replica.location == other
    assert bench.plan().plan.is_empty
    bench.write("manifests/replica.yaml", REPLICA.replace('{readReplicaOf: "LOCATION"MORE}', "{partitions: 1}"))
    assert bench.apply(allowing).verdict is None
    assert opened(bench, "east").topic(TOPIC).replica is None
    fill(opened(bench, "east"), 1)
    declare(bench, location)
    planned = bench.plan().plan
    assert [(each.verb, each.risk) for each in planned.actions if each.address == ADDRESS] == [
        ("delete", "data-loss"),
        ("create", "none"),
    ]
    assert bench.apply(allowing).verdict is None
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))
    assert kept(bench) == before


def test_it_is_deleted_when_that_is_allowed_and_the_object_storage_stays_as_it_is(bench: Bench, location: str) -> None:
    declare(bench, location)
    bench.apply()
    before = kept(bench)
    (bench.folder / "manifests" / "replica.yaml").unlink()
    action = next(each for each in bench.plan().plan.actions if each.address == ADDRESS)
    assert (action.verb, action.risk) == ("delete", "irreversible")
    assert action.blocked is not None
    assert "its source still has every record" in action.blocked.message
    bench.apply(Select(allow=(f"delete:{ADDRESS}",)))
    jobs = ["deletions", "replicas", "sweep"]
    run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=jobs,
        report=bench.events.append,
        stop=bench.stop,
    )
    assert TOPIC not in opened(bench, "east").topics()
    assert kept(bench) == before


def test_one_that_was_made_by_hand_is_adopted(bench: Bench, location: str) -> None:
    bench.apply()
    opened(bench, "east").replicate_topic(TOPIC, location)
    declare(bench, location)
    assert [each.verb for each in bench.plan().plan.actions] == ["adopt"]
    bench.apply()
    assert bench.plan().plan.is_empty


def test_a_location_that_is_not_there_is_refused_at_plan_by_file_and_line(bench: Bench, location: str) -> None:
    declare(bench, f"{location}7")
    (error,) = bench.plan().plan.errors
    assert (error.address, error.source) == (ADDRESS, "manifests/replica.yaml:1")
    assert "there is no topic at" in error.message
    with pytest.raises(ReconcilerError):
        bench.apply()
    declare(bench, "orders")
    with pytest.raises(UserError, match="not a location: <topic>/<cluster-uuid>/<revision>"):
        bench.plan()
