"""The emulated Redpanda brings topics back from its bucket as the contract says: one, some by a pattern, a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.servers.emulation.faults import RECOVERY
from tests.servers.redpanda.server import Redpanda
from tests.servers.test_redpanda_server import (
    SECONDS,
    WRITTEN,
    call,
    configs_of,
    connect,
    create,
    failure_of_a_write,
    read,
    refused,
    write,
)
from tests.servers.test_redpanda_shadow_links import commits_of
from tests.waiting import until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.thorough

KEPT = {**WRITTEN, "redpanda.remote.delete": "false"}
RECOVERED = {"redpanda.remote.recovery": "true"}
TOPICS, CLUSTER = "/v1/cloud_storage/topic_recovery", "/v1/cloud_storage/automated_recovery"


@pytest.fixture
def admin(redpanda: Redpanda) -> AdminClient:
    return connect(redpanda)


def offload(server: Redpanda, admin: AdminClient, name: str, **configs: str) -> list[tuple[int, str]]:
    """Leave a topic in the bucket; return its records."""
    create(admin, name, 2, **{**KEPT, "cleanup.policy": "compact,delete", **configs})
    write(server, name, ["a", "b", "c"])
    admin.delete_records([TopicPartition(name, 0, 1)])[TopicPartition(name, 0, 1)].result(SECONDS)
    admin.delete_topics([name])[name].result(SECONDS)
    return [(1, "b"), (2, "c")]


def until_inactive(server: Redpanda, path: str) -> None:
    until(lambda: call(server, "GET", path)[1]["state"] == "inactive", server.log)


def test_a_topic_is_recovered_at_its_creation_with_its_records_at_the_same_offsets(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    records = offload(redpanda, admin, kafka_prefix)
    assert kafka_prefix not in admin.list_topics(timeout=SECONDS).topics
    create(admin, kafka_prefix, 1, **RECOVERED)
    assert read(redpanda, kafka_prefix, 2) == records
    assert len(admin.list_topics(kafka_prefix, SECONDS).topics[kafka_prefix].partitions) == 2
    found = configs_of(admin, kafka_prefix)
    assert (found["redpanda.remote.delete"].value, found["cleanup.policy"].value) == ("false", "compact,delete")
    write(redpanda, kafka_prefix, ["d"])
    assert read(redpanda, kafka_prefix, 3)[-1] == (3, "d")


def test_a_topic_that_the_bucket_has_not_is_created_empty(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    offload(redpanda, admin, kafka_prefix, **{"redpanda.remote.delete": "true"})
    create(admin, kafka_prefix, 1, **RECOVERED)
    write(redpanda, kafka_prefix, ["new"])
    assert read(redpanda, kafka_prefix, 1) == [(0, "new")]


def test_topics_are_recovered_by_a_pattern_and_their_states_are_kept(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    good, bad, other = (f"{kafka_prefix}.{name}" for name in ("good", "bad", "other"))
    records, *_ = [offload(redpanda, admin, name) for name in (good, bad, other)]
    redpanda.faults.add("fails", RECOVERY, f"{bad}/")
    redpanda.faults.add("slow", RECOVERY, f"{good}/", seconds=0.5)
    request = {"topic_names_pattern": f"{kafka_prefix}.(good|bad)", "retention_bytes": 5000}
    assert call(redpanda, "POST", TOPICS, request) == (202, {"status": "recovery started"})
    assert refused(redpanda, TOPICS, request)[0] == 409
    until_inactive(redpanda, TOPICS)
    log = call(redpanda, "GET", f"{TOPICS}?extended=true")[1]
    assert [row["state"] for row in log][-3:] == ["recovering_data", "recovering_data", "inactive"]
    counts = {row["topic_namespace"]: row for row in log[-1]["topic_download_counts"]}
    assert {name: (row["successful_downloads"], row["failed_downloads"]) for name, row in counts.items()} == {
        f"{{kafka/{good}}}": (2, 0),
        f"{{kafka/{bad}}}": (0, 2),
    }
    assert log[-1]["request"] == {**request, "retention_ms": -1}
    assert read(redpanda, good, 2) == records
    assert configs_of(admin, good)["retention.local.target.bytes"].value == "5000"
    write(redpanda, bad, ["first"])
    assert read(redpanda, bad, 1) == [(0, "first")]
    assert other not in admin.list_topics(timeout=SECONDS).topics
    for body in ({"pattern": "x"}, {"topic_names_pattern": "("}, {"retention_bytes": 1, "retention_ms": 1}):
        assert refused(redpanda, TOPICS, body)[0] == 400


def test_no_client_writes_to_a_topic_that_comes_back(redpanda: Redpanda, admin: AdminClient, kafka_prefix: str) -> None:
    records = offload(redpanda, admin, kafka_prefix)
    redpanda.faults.add("slow", RECOVERY, f"{kafka_prefix}/", seconds=2)
    assert call(redpanda, "POST", TOPICS, {"topic_names_pattern": kafka_prefix})[0] == 202
    until(lambda: kafka_prefix in admin.list_topics(timeout=SECONDS).topics, redpanda.log)
    assert failure_of_a_write(redpanda, kafka_prefix) == "TOPIC_EXCEPTION"
    until_inactive(redpanda, TOPICS)
    assert read(redpanda, kafka_prefix, 2) == records


def test_a_new_cluster_restores_what_a_lost_one_left_in_the_bucket(
    start_redpanda: Callable[..., Redpanda], tmp_path: Path
) -> None:
    lost = start_redpanda(bucket=tmp_path, properties={"log_segment_size": 1_000_000})
    admin = connect(lost)
    create(admin, "tiered", 2, replicas=3, **WRITTEN)
    create(admin, "local", 3)
    for topic in ("tiered", "local"):
        write(lost, topic, ["a", "b"])
    consumer = Consumer({"bootstrap.servers": lost.kafka, "group.id": "group"})
    consumer.commit(offsets=[TopicPartition("tiered", 0, 1)], asynchronous=False)
    consumer.close()
    lost.close()
    new = start_redpanda(bucket=tmp_path)
    assert call(new, "GET", CLUSTER)[1] == {"state": "inactive"}
    unknown = {"cluster_uuid_override": new.cluster.uuid}
    assert refused(new, CLUSTER, unknown) == (500, "Error starting cluster recovery request: No matching metadata")
    new.faults.add("fails", RECOVERY, "cluster/", message="no such manifest")
    assert call(new, "POST", CLUSTER) == (202, {"status": "Recovery initialized"})
    failed = {"state": "recovery_stage::failed", "error": "no such manifest"}
    until(lambda: call(new, "GET", CLUSTER)[1] == failed)
    new.faults.add("slow", RECOVERY, "cluster/", seconds=0.3)
    assert call(new, "POST", CLUSTER, {"cluster_uuid_override": lost.cluster.uuid})[0] == 202
    assert call(new, "GET", CLUSTER)[1]["state"].startswith("recovery_stage::")
    assert refused(new, CLUSTER, {}) == (409, "Recovery already active")
    until_inactive(new, CLUSTER)
    admin = connect(new)
    assert read(new, "tiered", 2) == [(0, "a"), (1, "b")]
    sizes = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=SECONDS).topics.items()}
    assert (sizes["tiered"], sizes["local"]) == (2, 3)
    write(new, "local", ["new"])
    assert read(new, "local", 1) == [(0, "new")]
    assert commits_of(admin, "group") == [("tiered", 1)]
    assert call(new, "GET", "/v1/cluster_config?key=log_segment_size")[1] == {"log_segment_size": 1_000_000}


def test_without_a_licence_nothing_is_recovered(start_redpanda: Callable[..., Redpanda]) -> None:
    server = start_redpanda(license_status="expired")
    for path in (TOPICS, CLUSTER):
        assert refused(server, path, {})[0] == 500
