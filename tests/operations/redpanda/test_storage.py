"""Storage of tiered topics, and recovery from object storage, on the emulated Redpanda."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.topics_text import format_storage
from reconciler.errors import IncompleteError, UserError
from reconciler.operations.clusters.cluster_recovery import RecoveredCluster, recover_cluster
from reconciler.operations.clusters.topics import read_topic_storage, read_topic_storages
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.planning.actions import Adopt, Transition
from reconciler.providers.registry import open_provider
from reconciler.resources.measures import TierUsage
from tests.contracts.names import own
from tests.contracts.providers import create, done, topic
from tests.contracts.redpanda import declared_on_redpanda
from tests.operations.redpanda.test_redpanda import ORDERS, TIERED, Desk, desk_on, document, mounting, orders
from tests.servers.emulation.faults import RECOVERY as RECOVERIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bench

    from reconciler.resources.measures import TopicStorage
    from tests.servers.redpanda.server import Redpanda

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.xdist_group("redpanda"),
    pytest.mark.emulated("injects answers, and leaves topics in the bucket"),
]
RECOVERY = "remote.recovery"
WHEN = int(time.time() * 1000) - 60_000
STATUS = "/v1/cloud_storage/status/"
PLAIN = {"partitions": 1, "replicationFactor": 1}
EVICTED = {
    "cloud_storage_mode": "full",
    "total_log_size_bytes": 1000,
    "cloud_log_size_bytes": 800,
    "local_log_size_bytes": 400,
    "cloud_log_segment_count": 4,
    "local_log_segment_count": 2,
    "cloud_log_start_offset": 0,
    "cloud_log_last_offset": 14,
    "local_log_start_offset": 10,
    "local_log_last_offset": 19,
}
"""Status of a partition with 20 records: the first 10 are only in object storage, the last 5 only on disk."""


@pytest.fixture
def desk(bench: Bench, redpanda: Redpanda) -> Desk:
    made = desk_on(bench, redpanda)
    del redpanda.requests[:]
    return made


def report(desk: Desk, name: str, **status: object) -> None:
    """Let the Admin API report this status of a topic's partition 0."""
    text = json.dumps({**EVICTED, **status})
    desk.server.faults.add("text", "GET", f"{STATUS}{own(name)}/0", message=text, times=100)


def read_storage(desk: Desk, name: str = "orders") -> TopicStorage:
    reach = SiteOptions(invocation=desk.bench.invocation, select=Select())
    return read_topic_storage(reach, f"topic/west/{own(name)}")


def write_records(desk: Desk, name: str, count: int) -> None:
    """Write records with keys, headers and times to both partitions of a topic."""
    producer = Producer(desk.settings)
    for number in range(count):
        headers = [("n", b"%d" % number), ("none", None)]
        value = None if number == 1 else b"value-%d" % number
        producer.produce(own(name), value, b"key-%d" % number, number % 2, timestamp=WHEN + number, headers=headers)
    assert producer.flush(30) == 0


def read_records(desk: Desk, name: str, count: int) -> dict[tuple[int, int], tuple[object, ...]]:
    """Return the records of a topic by partition and offset."""
    consumer = Consumer({**desk.settings, "group.id": own("reader"), "enable.auto.commit": False})
    consumer.assign([TopicPartition(own(name), number, OFFSET_BEGINNING) for number in range(2)])
    deadline, seen = time.monotonic() + 30, dict[tuple[int, int], tuple[object, ...]]()
    while len(seen) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            content = message.key(), message.value(), message.timestamp(), message.headers()
            seen[message.partition(), message.offset()] = content
    consumer.close()
    return seen


def offload(desk: Desk, name: str) -> dict[tuple[int, int], tuple[object, ...]]:
    """Leave a topic in the bucket, as its deletion does without remote.delete; return its records."""
    made = topic(name, partitions=2, replicationFactor=1, configs={**TIERED, "remote.delete": "false"})
    done(open_provider(desk.cluster, desk.edge), create(made))
    write_records(desk, name, 20)
    records = read_records(desk, name, 20)
    assert len(records) == 20
    admin = kafka_admin.AdminClient(desk.settings)
    admin.delete_topics([own(name)])[own(name)].result(30)
    return records


def recovered(name: str = "orders", **spec: object) -> dict[str, object]:
    spec = {"partitions": 2, "replicationFactor": 1, "configs": {**TIERED, RECOVERY: "true"}, **spec}
    return document("Topic", name, spec)


def recover(bench: Bench, tell: Callable[[str], object] = print) -> RecoveredCluster:
    return recover_cluster(bench.acting("cluster recover"), "west", None, confirm=lambda: True, tell=tell)


def count_statuses(desk: Desk) -> int:
    return sum(path.startswith(STATUS) for _, _, path in desk.server.requests)


def test_the_storage_of_a_tiered_topic_is_shown_by_tier_and_of_another_without_a_request(desk: Desk) -> None:
    desk.apply(orders(), document("Topic", "plain", PLAIN))
    desk.produce(ORDERS, 20)
    desk.produce(own("plain"), 20)
    seen = read_storage(desk)
    assert seen.tiering is not None
    assert (seen.tiering.mode, seen.tiering.state, seen.tiering.location) == ("full", "ENABLED", None)
    assert seen.tiering.url == f"remote://{desk.server.cluster.get_text('cloud_storage_bucket')}"
    (partition,) = seen.partitions
    assert partition.remote is not None
    assert (partition.remote.start, partition.remote.end, partition.pending_bytes) == (0, 20, 0)
    assert partition.remote.uploaded_ms is not None
    asked = count_statuses(desk)
    plain = read_storage(desk, "plain")
    assert (plain.tiering, plain.pending_bytes, count_statuses(desk)) == (None, None, asked)
    assert "unknown   20   unknown  " in to_plain_text(format_storage(plain))


def test_offsets_and_sizes_of_both_tiers_are_those_that_redpanda_reports(desk: Desk) -> None:
    desk.apply(orders())
    desk.produce(ORDERS, 20)
    report(desk, "orders")
    seen = read_storage(desk)
    (partition,) = seen.partitions
    assert (partition.start, partition.local_start, partition.end) == (0, 10, 20)
    assert (seen.local, seen.remote, seen.log_bytes) == (TierUsage(400, 2), TierUsage(800, 4), 1000)
    assert seen.pending_bytes == 200, "half of the records on disk"
    assert partition.remote is not None
    assert (partition.remote.uploaded_ms, partition.remote.garbage) == (None, None)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "status", "status": 404, "message": "could not be found on the node."}, "could not be found"),
        ({"kind": "text", "message": '{"cloud_storage_mode": "full"}'}, "does not report local_log_size_bytes"),
    ],
)
def test_what_one_partition_does_not_report_stays_unknown(desk: Desk, fault: dict[str, str], message: str) -> None:
    desk.apply(document("Topic", "orders", {**PLAIN, "partitions": 2, "configs": TIERED}))
    desk.produce(ORDERS, 3)
    desk.server.faults.add(method="GET", path=f"{STATUS}{ORDERS}/0", times=10, **fault)
    unread, read = (partition for partition in read_storage(desk).partitions)
    assert message in str(unread.problem)
    assert (unread.remote, unread.pending_bytes, unread.local_start) == (None, None, None)
    assert read.problem is None
    desk.declare(mounting("unmounted"))
    (unmount,) = [action for action in desk.bench.plan().plan.actions if isinstance(action, Transition)]
    assert "unmeasured" in {reason.value for reason in unmount.reasons}


def test_an_outage_of_the_admin_api_is_the_problem_of_tiered_topics(desk: Desk) -> None:
    connection = {
        "redpanda": desk.cluster.spec.connection.model_copy(update={"admin_timeout": 500}).model_dump(
            by_alias=True, exclude_none=True
        )
    }
    desk.apply(orders(), document("Topic", "plain", PLAIN), **connection)
    desk.produce(ORDERS, 3)
    desk.server.faults.add("status", path="/v1", status=503, message="Service unavailable", times=10_000)
    reach = SiteOptions(invocation=desk.bench.invocation, select=Select())
    tiered, plain = read_topic_storages(reach, ["topic/west/*"]).topics
    assert "503: Service unavailable" in str(tiered.problem)
    assert (tiered.log_bytes > 0, tiered.remote, tiered.pending_bytes) == (True, TierUsage(), None)
    assert (plain.problem, plain.tiering) == (None, None)


def test_a_plan_names_the_offsets_that_only_object_storage_has(desk: Desk) -> None:
    desk.apply(orders())
    desk.produce(ORDERS, 20)
    report(desk, "orders")
    desk.declare(orders(**{"remote.read": "false"}))
    warnings = [warning.message for warning in desk.bench.plan().plan.warnings]
    assert "without remote.read these offsets cannot be read: 10 offsets (partition 0: 0 to 9)" in " ".join(warnings)


def test_an_unmount_estimates_the_bytes_to_upload(desk: Desk) -> None:
    desk.apply(orders())
    desk.produce(ORDERS, 20)
    report(desk, "orders")
    desk.declare(mounting("unmounted"))
    (unmount,) = [action for action in desk.bench.plan().plan.actions if isinstance(action, Transition)]
    assert (unmount.estimate.bytes, unmount.estimate.uploads) == (1000, 200)


@pytest.mark.fact("F-R-006")
def test_a_topic_comes_back_from_the_bucket_record_by_record_and_once(desk: Desk) -> None:
    records = offload(desk, "orders")
    desk.declare(recovered())
    plan = desk.bench.plan().plan
    assert [action.id for action in plan.actions if action.address == f"topic/west/{ORDERS}"] == [
        f"create:topic/west/{ORDERS}"
    ]
    assert "it is created empty" in " ".join(warning.message for warning in plan.warnings)
    desk.apply(recovered())
    assert read_records(desk, "orders", 20) == records
    assert not [warning for warning in desk.bench.warned if "came back" in warning or "empty" in warning]
    desk.apply(document("Topic", "orders", {"partitions": 2, "replicationFactor": 1, "configs": TIERED}))
    desk.apply(recovered())
    assert read_records(desk, "orders", 20) == records


def test_a_topic_that_the_bucket_does_not_have_is_created_empty_and_told(desk: Desk) -> None:
    desk.apply(recovered("fresh"))
    assert [warning for warning in desk.bench.warned if "was created empty" in warning] == [
        f"topic {own('fresh')} was created empty: object storage has no topic of this name, or no records of it"
    ]


def test_a_topic_whose_recovery_fails_is_told_and_one_with_other_partitions(desk: Desk) -> None:
    offload(desk, "failed")
    offload(desk, "grown")
    desk.server.faults.add("fails", RECOVERIES, f"{own('failed')}/")
    desk.declare(recovered("failed"), recovered("grown", partitions=1))
    assert desk.bench.apply().verdict is None
    told = " ".join(desk.bench.warned)
    assert f"topic {own('failed')} was created empty" in told
    assert f"topic {own('grown')} came back with 2 partitions: declare as many, not 1" in told


def test_a_recovered_topic_is_not_grown_to_what_its_file_says(desk: Desk) -> None:
    offload(desk, "orders")
    desk.declare(recovered(partitions=3))
    assert desk.bench.apply().verdict is None
    planned = desk.bench.plan().plan
    assert [action for action in planned.actions if action.address == f"topic/west/{ORDERS}"] == []
    assert "it has 2 partitions and 3 are declared" in " ".join(error.message for error in planned.errors)


def test_a_topic_is_recovered_by_its_name_where_tiering_can_be_used(
    bench: Bench, start_redpanda: Callable[..., Redpanda]
) -> None:
    desk = desk_on(bench, start_redpanda(license_status="expired"))
    desk.declare(recovered())
    assert any("its licence is expired" in error.message for error in desk.bench.plan().plan.errors)
    with pytest.raises(UserError, match="cannot be recovered from object storage: its licence is expired"):
        recover(desk.bench)
    desk.server.cluster.license_status = "valid"
    located = document("Topic", "orders", {"recoverFrom": "orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"})
    desk.declare(located)
    (problem,) = desk.bench.plan().plan.errors
    assert "recovers a topic by its name, not a location" in problem.message
    assert 'configs: {remote.recovery: "true"}' in problem.hint


def test_a_new_cluster_recovers_what_a_lost_one_left_and_the_next_plan_adopts_it(
    bench: Bench, start_redpanda: Callable[..., Redpanda], tmp_path: Path
) -> None:
    lost = desk_on(bench, start_redpanda(bucket=tmp_path / "bucket"))
    lost.declare(recovered("tiered", configs=TIERED), document("Topic", "local", PLAIN))
    for made in (topic("tiered", partitions=2, replicationFactor=1, configs=TIERED), topic("local", **PLAIN)):
        done(open_provider(lost.cluster, lost.edge), create(made))
    write_records(lost, "tiered", 20)
    records = read_records(lost, "tiered", 20)
    lost.server.close()
    server = start_redpanda(bucket=tmp_path / "bucket")
    new = Desk(lost.bench, server, declared_on_redpanda("west", server))
    new.declare(recovered("tiered", configs=TIERED), document("Topic", "local", PLAIN))

    server.faults.add("fails", RECOVERIES, "cluster/", message="no such manifest")
    with pytest.raises(UserError, match=r"its recovery failed.*: no such manifest"):
        recover(new.bench)

    server.faults.add("slow", RECOVERIES, "cluster/", seconds=0.5)

    stopped = replace(new.bench, stop=Stop())
    with pytest.raises(IncompleteError, match="the recovery of cluster west continues") as caught:
        recover(stopped, lambda _: stopped.stop.request())
    assert "it follows the recovery" in caught.value.hint

    stages: list[str] = []
    assert recover(new.bench, stages.append).topics == 2
    assert "recovery of cluster west: recovered topic data" in stages
    assert (
        sum(path == "/v1/cloud_storage/automated_recovery" for _, verb, path in server.requests if verb == "POST") == 2
    )
    assert read_records(new, "tiered", 20) == records
    with pytest.raises(UserError, match="cluster west has 2 topics and is not recovered"):
        recover(new.bench)
    planned = new.bench.plan().plan
    assert {type(action) for action in planned.actions} == {Adopt}
    assert planned.errors == ()
    assert new.bench.apply().verdict is None
    assert new.bench.plan().plan.actions == ()


def test_a_bucket_without_another_cluster_recovers_nothing(desk: Desk) -> None:
    desk.declare()
    with pytest.raises(UserError, match="its bucket has no metadata of another cluster") as caught:
        recover(desk.bench)
    assert "cloud_storage_bucket" in caught.value.hint


def test_another_platform_names_its_own_way(bench: Bench) -> None:
    with pytest.raises(UserError, match="a cluster of platform embedded does not recover itself") as caught:
        recover(bench)
    assert "reconciler export west --from-object-storage" in caught.value.hint
