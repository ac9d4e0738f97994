"""The emulated Redpanda answers plain clients as the contract says: topics, migrations, records, refusals, faults."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaAdminClient, KafkaConsumer

from examples import kafkajars
from tests.servers.certificates import Authority
from tests.servers.emulation import wire
from tests.servers.redpanda.server import Redpanda
from tests.waiting import until

pytestmark = pytest.mark.thorough

WRITTEN = {"redpanda.remote.write": "true", "redpanda.remote.read": "true"}
SECONDS = 30
OLD = ["24.3.1"] * 3
NEWEST = ["26.1.2"] * 3


def call(
    server: Redpanda, method: str, path: str, body: Any = None, *, node: int = 1, password: str | None = None
) -> tuple[int, Any]:
    """Return the status and the document of an answer."""
    login = f"{server.user}:{server.password if password is None else password}".encode()
    headers = {"Authorization": "Basic " + base64.b64encode(login).decode()}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.admin[node - 1] + path, data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


@pytest.fixture
def admin(redpanda: Redpanda) -> AdminClient:
    return connect(redpanda)


def connect(server: Redpanda) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.kafka, "log_level": 0, "error_cb": lambda _: None})


def create(admin: AdminClient, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
    admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(SECONDS)


def code_of(future: Any) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result(SECONDS)
    return str(caught.value.args[0].name())


def configs_of(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(SECONDS)
    return found


def alter(admin: AdminClient, name: str, kind: Any = ConfigResource.Type.TOPIC, **configs: str | None) -> Any:
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return admin.incremental_alter_configs([resource])[resource]


def write(server: Redpanda, topic: str, values: list[str], partition: int = 0, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, "log_level": 0, **settings})
    if "transactional.id" in settings:
        producer.init_transactions()
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key="k", partition=partition, timestamp=1_500_000_000_000)
    if "transactional.id" in settings:
        producer.commit_transaction()
    assert producer.flush(SECONDS) == 0


def failure_of_a_write(server: Redpanda, topic: str) -> str:
    producer = Producer({"bootstrap.servers": server.kafka, "log_level": 0})
    failures: list[str] = []
    producer.produce(topic, "c", on_delivery=lambda error, _: failures.append(error.name()))
    producer.flush(SECONDS)
    (failure,) = failures
    return failure


def read(server: Redpanda, topic: str, count: int, partition: int = 0) -> list[tuple[int, str]]:
    """Return offset and value of the first records; an error ends it."""
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, partition, -2)])
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        message = consumer.poll(1)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            found.append((message.offset(), message.value().decode()))
    consumer.close()
    return found


def until_gone(server: Redpanda, migration: int) -> None:
    until(
        lambda: call(server, "GET", f"/v1/migrations/{migration}")[0] == 404,
        lambda: (server.log, call(server, "GET", "/v1/migrations")),
    )


def until_state(server: Redpanda, migration: int, state: str) -> None:
    until(lambda: state_of(server, migration) == state, lambda: (state_of(server, migration), server.log))


def state_of(server: Redpanda, migration: int) -> Any:
    return call(server, "GET", f"/v1/migrations/{migration}")[1].get("state")


def unmount(server: Redpanda, *names: str) -> int:
    status, document = call(server, "POST", "/v1/topics/unmount", {"topics": [{"topic": name} for name in names]})
    assert status == 200, document
    return int(document["id"])


def mount(server: Redpanda, reference: str, alias: str | None = None) -> int:
    topic: dict[str, Any] = {"source_topic_reference": {"topic": reference, "ns": "kafka"}}
    if alias:
        topic["alias"] = {"topic": alias}
    status, document = call(server, "POST", "/v1/topics/mount", {"topics": [topic]})
    assert status == 200, document
    return int(document["id"])


def refused(server: Redpanda, path: str, body: Any, method: str = "POST") -> tuple[int, str]:
    status, document = call(server, method, path, body)
    assert document["code"] == status
    return status, document["message"]


def location_of(server: Redpanda, name: str) -> str:
    topics = call(server, "GET", "/v1/topics/mountable")[1]["topics"]
    (found,) = (topic["topic_location"] for topic in topics if topic["topic"] == name)
    return str(found)


# The Admin API


def test_the_cluster_says_what_it_is(redpanda: Redpanda, admin: AdminClient) -> None:
    status, brokers = call(redpanda, "GET", "/v1/brokers")
    assert status == 200
    assert [broker["version"].split(" ")[0] for broker in brokers] == ["v25.3.1"] * 3
    uuid = call(redpanda, "GET", "/v1/cluster/uuid")[1]["cluster_uuid"]
    metadata = admin.list_topics(timeout=SECONDS)
    assert metadata.cluster_id == f"redpanda.{uuid}"
    assert sorted(metadata.brokers) == [broker["node_id"] for broker in brokers]
    assert admin.describe_cluster().result(SECONDS).cluster_id == f"redpanda.{uuid}"
    assert call(redpanda, "GET", "/v1/features/enterprise")[1]["license_status"] == "valid"
    assert call(redpanda, "GET", "/v1/features/license")[1]["loaded"] is True
    assert call(redpanda, "GET", "/v1/features")[1]["features"]
    assert call(redpanda, "GET", "/v1/status/ready")[1] == {"status": "ready"}
    assert call(redpanda, "GET", "/v1/migrations") == call(redpanda, "GET", "/v1/migrations/", node=2)


def test_a_wrong_password_is_refused(redpanda: Redpanda) -> None:
    assert call(redpanda, "GET", "/v1/brokers", password="wrong")[0] == 401  # noqa: S106
    assert call(redpanda, "GET", "/v1/cluster_config/schema", password="wrong")[0] == 200  # noqa: S106


def test_properties_are_checked_and_versioned_and_some_wait_for_a_restart(redpanda: Redpanda) -> None:
    path = "/v1/cluster_config"
    assert call(redpanda, "PUT", path, {"upsert": {}})[0] == 400
    assert call(redpanda, "PUT", path, {"upsert": {"nonsense": 1}, "remove": []}) == (
        400,
        {"nonsense": "Unknown property"},
    )
    assert call(redpanda, "PUT", path, {"upsert": {}, "remove": ["cloud_storage_bucket"]})[0] == 400
    assert call(redpanda, "GET", f"{path}?key=nonsense")[0] == 400
    assert call(redpanda, "GET", f"{path}?key=cloud_storage_secret_key")[1] == {"cloud_storage_secret_key": "[secret]"}
    redpanda.lag(2, polls=2)
    wanted = {"cloud_storage_max_connections": 30}
    version = call(redpanda, "PUT", path, {"upsert": wanted, "remove": []})[1]["config_version"]
    first = call(redpanda, "GET", f"{path}/status")[1]
    assert [node["config_version"] == version for node in first] == [True, False, True]
    second = call(redpanda, "GET", f"{path}/status")[1]
    assert [(node["config_version"], node["restart"]) for node in second] == [(version, True)] * 3
    assert call(redpanda, "GET", f"{path}?key=cloud_storage_max_connections")[1] == wanted
    redpanda.restart()
    assert not any(node["restart"] for node in call(redpanda, "GET", f"{path}/status")[1])
    assert call(redpanda, "GET", f"{path}/schema")[1]["properties"]["cloud_storage_enabled"]["needs_restart"] is True


# Topics


def test_a_topic_keeps_configs_that_the_broker_does_not_know(admin: AdminClient, kafka_prefix: str) -> None:
    admin.create_topics(
        [
            NewTopic(
                kafka_prefix,
                2,
                3,
                config={**WRITTEN, "retention.ms": "5000000", "nonsense": "x", "redpanda.remote.delete": "true"},
            )
        ]
    )[kafka_prefix].result(SECONDS)
    partitions = admin.list_topics(kafka_prefix, SECONDS).topics[kafka_prefix].partitions
    assert [len(partition.replicas) for partition in partitions.values()] == [3, 3]
    found = configs_of(admin, kafka_prefix)
    assert found["redpanda.remote.write"].value == "true"
    assert found["redpanda.remote.write"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["retention.ms"].value == "5000000"
    assert found["redpanda.remote.delete"].source == ConfigSource.DEFAULT_CONFIG.value  # set, and equal to the default
    assert not {"nonsense", "min.insync.replicas", "replication.factor", "redpanda.remote.recovery"} & found.keys()
    assert code_of(alter(admin, kafka_prefix, nonsense="x")) == "INVALID_CONFIG"
    alter(admin, kafka_prefix, min_insync_replicas="2", redpanda_remote_read="false").result(SECONDS)
    assert configs_of(admin, kafka_prefix)["redpanda.remote.read"].value == "false"
    alter(admin, kafka_prefix, redpanda_remote_write=None, replication_factor="1").result(SECONDS)
    assert configs_of(admin, kafka_prefix)["redpanda.remote.write"].value == "false"
    partitions = admin.list_topics(kafka_prefix, SECONDS).topics[kafka_prefix].partitions
    assert [len(partition.replicas) for partition in partitions.values()] == [1, 1]


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"redpanda.remote.write": "maybe"}, "INVALID_CONFIG"),
        ({"delete.retention.ms": "1000", **WRITTEN}, "INVALID_CONFIG"),
        ({"redpanda.remote.readreplica": "bucket", **WRITTEN}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_with_wrong_configs_is_refused(
    admin: AdminClient, kafka_prefix: str, configs: dict[str, str], code: str
) -> None:
    assert code_of(admin.create_topics([NewTopic(kafka_prefix, 1, 1, config=configs)])[kafka_prefix]) == code
    assert kafka_prefix not in admin.list_topics(timeout=SECONDS).topics


def test_replication_is_odd_and_configs_of_one_broker_cannot_be_changed(admin: AdminClient, kafka_prefix: str) -> None:
    topic = NewTopic(kafka_prefix, 1, 2)
    assert code_of(admin.create_topics([topic])[kafka_prefix]) == "INVALID_REPLICATION_FACTOR"
    create(admin, kafka_prefix)
    assert code_of(alter(admin, kafka_prefix, replication_factor="2")) == "INVALID_CONFIG"
    assert code_of(alter(admin, "1", ConfigResource.Type.BROKER, log_retention_ms="1")) == "INVALID_REQUEST"


def test_versions_are_those_of_redpanda(redpanda: Redpanda, start_redpanda: Callable[..., Redpanda]) -> None:
    newer = start_redpanda(versions=NEWEST)
    for server, offsets in ((redpanda, 4), (newer, 6)):
        client = KafkaAdminClient(bootstrap_servers=server.kafka.split(","))
        offered = client._manager.broker_version_data.api_versions
        client.close()
        limits = {"ListOffsets": offsets, "Metadata": 11, "CreateTopics": 7, "DeleteTopics": 6, "DescribeConfigs": 4}
        assert {name: offered[wire.REQUESTS[name].API_KEY][1] for name in limits} == limits


def test_storage_modes_decide_which_configs_are_allowed(
    start_redpanda: Callable[..., Redpanda], kafka_prefix: str
) -> None:
    admin = connect(start_redpanda(versions=NEWEST))
    create(admin, kafka_prefix)
    assert configs_of(admin, kafka_prefix)["redpanda.storage.mode"].value == "unset"
    alter(admin, kafka_prefix, redpanda_storage_mode="local").result(SECONDS)
    assert code_of(alter(admin, kafka_prefix, redpanda_remote_write="true")) == "INVALID_CONFIG"
    alter(admin, kafka_prefix, redpanda_storage_mode=None).result(SECONDS)
    assert configs_of(admin, kafka_prefix)["redpanda.storage.mode"].value == "local"
    alter(admin, kafka_prefix, redpanda_storage_mode="tiered", redpanda_remote_write="true").result(SECONDS)
    assert code_of(alter(admin, kafka_prefix, redpanda_storage_mode="cloud")) == "INVALID_CONFIG"


def test_group_offsets_are_kept_and_special_offsets_are_unknown(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    create(admin, kafka_prefix)
    write(redpanda, kafka_prefix, ["a", "b"])
    consumer = KafkaConsumer(
        kafka_prefix,
        bootstrap_servers=redpanda.kafka.split(","),
        group_id=kafka_prefix,
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS * 1000,
    )
    assert [next(consumer).value, next(consumer).value] == [b"a", b"b"]
    consumer.commit()
    consumer.close()
    groups = [group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid]
    assert groups.count(kafka_prefix) == 1
    topics = [{"name": kafka_prefix, "partitions": [{"partition_index": 0, "timestamp": -4}]}]
    with wire.BrokerConnection(redpanda.front.ports[0]) as connection:
        answer = connection.ask("ListOffsets", 4, replica_id=-1, topics=topics)
    assert answer.topics[0].partitions[0].error_code == wire.UNSUPPORTED_VERSION


def test_a_read_replica_takes_no_records(redpanda: Redpanda, admin: AdminClient, kafka_prefix: str) -> None:
    create(admin, kafka_prefix, **{"redpanda.remote.readreplica": "bucket"})
    assert failure_of_a_write(redpanda, kafka_prefix) == "TOPIC_EXCEPTION"
    assert "redpanda.remote.readreplica" not in configs_of(admin, kafka_prefix)


def test_the_storage_status_tells_sizes_and_offsets_and_no_cloud_of_a_local_topic(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    local = f"{kafka_prefix}.local"
    create(admin, kafka_prefix, **WRITTEN)
    create(admin, local)
    for topic in (kafka_prefix, local):
        write(redpanda, topic, ["a", "b", "c"])
        admin.delete_records([TopicPartition(topic, 0, 1)])[TopicPartition(topic, 0, 1)].result(SECONDS)
    path = "/v1/cloud_storage/status"
    tiered, plain = (call(redpanda, "GET", f"{path}/{topic}/0")[1] for topic in (kafka_prefix, local))
    assert tiered["cloud_storage_mode"] == "full"
    assert tiered["cloud_log_size_bytes"] == tiered["local_log_size_bytes"] == tiered["total_log_size_bytes"] > 0
    assert (tiered["cloud_log_start_offset"], tiered["cloud_log_last_offset"]) == (1, 2)
    assert (plain["cloud_storage_mode"], plain["cloud_log_size_bytes"]) == ("disabled", 0)
    assert (plain["local_log_start_offset"], plain["local_log_last_offset"]) == (1, 2)
    assert not {"cloud_log_start_offset", "cloud_log_last_offset"} & plain.keys()
    assert refused(redpanda, f"{path}/{kafka_prefix}/1", None, "GET")[0] == 404
    assert refused(redpanda, f"{path}/{kafka_prefix}.none/0", None, "GET")[0] == 404


# Migrations


def test_an_unmounted_topic_comes_back_under_an_alias_with_its_records_at_the_same_offsets(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    values = [f"value {number}" for number in range(500)]
    create(admin, kafka_prefix, 2, **{**WRITTEN, "cleanup.policy": "compact,delete"})
    write(redpanda, kafka_prefix, values)
    write(redpanda, kafka_prefix, ["x"], 1)
    admin.delete_records([TopicPartition(kafka_prefix, 0, 100)])[TopicPartition(kafka_prefix, 0, 100)].result(SECONDS)
    until_gone(redpanda, unmount(redpanda, kafka_prefix))
    assert kafka_prefix not in admin.list_topics(timeout=SECONDS).topics
    location = location_of(redpanda, kafka_prefix)
    assert location.startswith(f"{kafka_prefix}/{redpanda.cluster.uuid}/")
    alias = f"{kafka_prefix}.alias"
    until_gone(redpanda, mount(redpanda, kafka_prefix, alias))
    assert read(redpanda, alias, 400) == list(enumerate(values))[100:]
    assert read(redpanda, alias, 1, 1) == [(0, "x")]
    found = configs_of(admin, alias)
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("-1", "compact,delete")
    assert found["redpanda.remote.write"].value == "true"
    assert call(redpanda, "GET", f"/v1/cloud_storage/status/{alias}/0")[1]["cloud_storage_mode"] == "full"
    until_gone(redpanda, unmount(redpanda, alias))
    assert location_of(redpanda, kafka_prefix) == location


def test_transactions_leave_markers_and_the_records_stay_where_they_were(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    create(admin, kafka_prefix, 1, **WRITTEN)
    for number in range(3):
        write(redpanda, kafka_prefix, [f"{number}a", f"{number}b"], **{"transactional.id": kafka_prefix})
    before = read(redpanda, kafka_prefix, 6)
    assert [offset for offset, _ in before] == [0, 1, 3, 4, 6, 7]
    until_gone(redpanda, unmount(redpanda, kafka_prefix))
    until_gone(redpanda, mount(redpanda, location_of(redpanda, kafka_prefix)))
    assert read(redpanda, kafka_prefix, 6) == before


def test_two_clusters_share_a_bucket(
    redpanda: Redpanda, start_redpanda: Callable[..., Redpanda], kafka_prefix: str
) -> None:
    bucket = redpanda.bucket
    other = start_redpanda(bucket=bucket, versions=OLD)
    create(connect(other), kafka_prefix, **WRITTEN, segment_ms="700000")
    write(other, kafka_prefix, ["a"])
    until_gone(other, unmount(other, kafka_prefix))
    until_gone(redpanda, mount(redpanda, kafka_prefix))
    assert read(redpanda, kafka_prefix, 1) == [(0, "a")]
    until_gone(redpanda, unmount(redpanda, kafka_prefix))
    until_gone(other, mount(other, kafka_prefix))
    assert configs_of(connect(other), kafka_prefix)["segment.ms"].value == "1209600000"  # 24.3 restores a few only


def test_states_are_moved_by_hand_and_decide_what_clients_may_do(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    redpanda.faults.pace = "told"
    create(admin, kafka_prefix, **WRITTEN)
    write(redpanda, kafka_prefix, ["a"])
    body = {"migration_type": "outbound", "topics": [{"topic": kafka_prefix}], "consumer_groups": []}
    number = call(redpanda, "PUT", "/v1/migrations", body)[1]["id"]
    path = f"/v1/migrations/{number}"
    assert state_of(redpanda, number) == "planned"
    assert refused(redpanda, f"{path}?action=cancel", None) == (
        400,
        "Invalid data migration state transition requested",
    )
    assert code_of(alter(admin, kafka_prefix, retention_ms="1")) == "POLICY_VIOLATION"
    assert code_of(admin.delete_topics([kafka_prefix])[kafka_prefix]) == "POLICY_VIOLATION"
    assert code_of(admin.create_partitions([NewPartitions(kafka_prefix, 2)])[kafka_prefix]) == "POLICY_VIOLATION"
    assert code_of(admin.create_topics([NewTopic(kafka_prefix, 1, 1)])[kafka_prefix]) == "POLICY_VIOLATION"
    write(redpanda, kafka_prefix, ["b"])
    for action, states in (("prepare", ("preparing", "prepared")), ("execute", ("executing", "executed"))):
        assert call(redpanda, "POST", f"{path}/?action={action}")[0] == 200
        for state in states:
            assert state_of(redpanda, number) == state
            redpanda.advance(number)
    assert state_of(redpanda, number) == "executed"
    assert failure_of_a_write(redpanda, kafka_prefix) == "TOPIC_EXCEPTION"
    assert read(redpanda, kafka_prefix, 2) == [(0, "a"), (1, "b")]
    assert refused(redpanda, "/v1/topics/unmount", {"topics": [{"topic": kafka_prefix}]})[0] == 400
    assert call(redpanda, "POST", f"{path}?action=cancel")[0] == 200
    redpanda.advance(number)
    assert state_of(redpanda, number) == "cancelled"
    assert "completed_timestamp" in call(redpanda, "GET", path)[1]
    write(redpanda, kafka_prefix, ["c"])
    assert call(redpanda, "DELETE", path) == (200, None)
    assert refused(redpanda, path, None, "GET") == (404, "Data migration does not exist")


def test_a_mount_of_nothing_stays_in_preparing_until_it_is_cancelled_and_deleted(
    redpanda: Redpanda, kafka_prefix: str
) -> None:
    number = mount(redpanda, kafka_prefix)
    until_state(redpanda, number, "preparing")
    time.sleep(0.2)
    assert state_of(redpanda, number) == "preparing"
    assert call(redpanda, "DELETE", f"/v1/migrations/{number}")[0] == 400
    call(redpanda, "POST", f"/v1/migrations/{number}?action=cancel")
    until_state(redpanda, number, "cancelled")
    time.sleep(0.2)
    assert number in [migration["id"] for migration in call(redpanda, "GET", "/v1/migrations")[1]]
    assert call(redpanda, "DELETE", f"/v1/migrations/{number}")[0] == 200
    assert state_of(redpanda, number) is None


def test_an_ambiguous_name_is_mounted_by_location_only(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    for value in ("first", "second"):
        create(admin, kafka_prefix, **WRITTEN)
        write(redpanda, kafka_prefix, [value])
        until_gone(redpanda, unmount(redpanda, kafka_prefix))
    topics = call(redpanda, "GET", "/v1/topics/mountable")[1]["topics"]
    _, second = [topic["topic_location"] for topic in topics if topic["topic"] == kafka_prefix]
    number = mount(redpanda, kafka_prefix)
    time.sleep(0.2)
    assert state_of(redpanda, number) == "preparing"
    call(redpanda, "POST", f"/v1/migrations/{number}?action=cancel")
    until_state(redpanda, number, "cancelled")
    until_gone(redpanda, mount(redpanda, second))
    assert read(redpanda, kafka_prefix, 1) == [(0, "second")]


@pytest.mark.parametrize(("versions", "status"), [(None, 400), (OLD, 500)], ids=["today", "24.3"])
def test_refusals_have_the_words_of_their_version(
    redpanda: Redpanda, start_redpanda: Callable[..., Redpanda], kafka_prefix: str, versions: Any, status: int
) -> None:
    server = redpanda if versions is None else start_redpanda(versions=versions)
    admin = connect(server)
    local = f"{kafka_prefix}.local"
    create(admin, kafka_prefix, **WRITTEN)
    create(admin, local)
    unmounting = {"topics": [{"topic": kafka_prefix, "ns": "kafka"}]}
    mounting = {"topics": [{"source_topic_reference": {"topic": kafka_prefix}}]}
    expected: list[tuple[str, Any, int, str]] = [
        ("mount", mounting, status, "The topic has already been created"),
        ("unmount", {"topics": [{"topic": "gone"}]}, 400, "Topic does not exists"),
        ("unmount", {"topics": [{"topic": local}]}, 400, "resources that are not eligible"),
        ("unmount", {"topics": [{"topic": kafka_prefix, "ns": "other"}]}, 400, "resources that are not eligible"),
        ("unmount", {"topics": []}, 400, "Data migration definition contains errors"),
        ("unmount", unmounting["topics"], 400, "does not conform to schema"),
        ("unmount", {**unmounting, "more": 1}, 400, "does not conform to schema"),
    ]
    for path, body, code, message in expected:
        found = refused(server, f"/v1/topics/{path}", body)
        assert found[0] == code, found
        assert message in found[1]
    server.faults.pace = "told"
    number = unmount(server, kafka_prefix)
    found = refused(server, "/v1/topics/unmount", unmounting)
    assert found[0] == status
    assert "resource is undergoing data migration" in found[1]
    assert refused(server, f"/v1/migrations/{number}?action=dance", None)[0] == 400
    server.faults.clear()
    until_gone(server, number)


def test_without_a_licence_nothing_tiered_begins(start_redpanda: Callable[..., Redpanda], kafka_prefix: str) -> None:
    server = start_redpanda(license_status="expired")
    admin = connect(server)
    topic = NewTopic(kafka_prefix, 1, 1, config=WRITTEN)
    assert code_of(admin.create_topics([topic])[kafka_prefix]) == "INVALID_CONFIG"
    found = refused(server, "/v1/topics/unmount", {"topics": [{"topic": kafka_prefix}]})
    assert found[0] == 500
    assert "Requested feature is disabled" in found[1]
    assert refused(server, "/v1/migrations", None, "GET")[0] == 500
    assert call(server, "GET", "/v1/features/enterprise")[1]["violation"] is True


def test_a_gap_that_cannot_be_written_is_named(redpanda: Redpanda, admin: AdminClient, kafka_prefix: str) -> None:
    create(admin, kafka_prefix, **WRITTEN)
    write(redpanda, kafka_prefix, ["a"])
    number = unmount(redpanda, kafka_prefix)
    until_gone(redpanda, number)
    location = location_of(redpanda, kafka_prefix)
    log = redpanda.bucket / "data" / location / "0.log"
    first = log.read_bytes()
    log.write_bytes(first + (500).to_bytes(8, "big") + first[8:])
    number = mount(redpanda, kafka_prefix)
    until(lambda: any(f"{kafka_prefix}/0: the gap of 499 offsets at 1" in line for line in redpanda.log), redpanda.log)
    assert state_of(redpanda, number) == "cut_over"


def test_a_log_with_a_gap_comes_back_with_it(redpanda: Redpanda, admin: AdminClient, kafka_prefix: str) -> None:
    create(admin, kafka_prefix, **WRITTEN)
    write(redpanda, kafka_prefix, ["a"])
    until_gone(redpanda, unmount(redpanda, kafka_prefix))
    folder = redpanda.bucket / "data" / location_of(redpanda, kafka_prefix)
    first = (folder / "0.log").read_bytes()
    (folder / "0.log").write_bytes(first + (5).to_bytes(8, "big") + first[8:])
    document = json.loads((folder / "topic.json").read_text())
    (folder / "topic.json").write_text(json.dumps({**document, "bounds": {"0": [0, 6]}}))
    until_gone(redpanda, mount(redpanda, kafka_prefix))
    assert read(redpanda, kafka_prefix, 2) == [(0, "a"), (5, "a")]


# Faults


def test_a_lost_answer_is_of_a_mount_that_was_begun(redpanda: Redpanda, kafka_prefix: str) -> None:
    redpanda.faults.add("lost", "POST", "/v1/topics/mount")
    with pytest.raises(OSError, match="closed connection"):
        mount(redpanda, kafka_prefix)
    found = [
        migration["id"]
        for migration in call(redpanda, "GET", "/v1/migrations")[1]
        if migration["migration"]["topics"][0].get("source_topic_reference", {}).get("topic") == kafka_prefix
    ]
    assert len(found) == 1


def test_faults_are_answered_once_each_and_can_be_set_from_outside(redpanda: Redpanda) -> None:
    path = "/v1/features"
    for status in (500, 503, 504):
        redpanda.faults.add("status", "GET", path, status=status, message="Service unavailable")
        assert call(redpanda, "GET", path) == (status, {"message": "Service unavailable", "code": status})
    assert call(redpanda, "POST", "/control/faults", {"kind": "redirect", "path": path, "node": 1, "to": 2})[0] == 200
    assert call(redpanda, "GET", path)[0] == 200
    assert [node for node, _, asked in redpanda.requests if asked == path][-2:] == [1, 2]
    redpanda.faults.add("text", "GET", path, message="<html>")
    with pytest.raises(json.JSONDecodeError):
        call(redpanda, "GET", path)
    redpanda.faults.add("slow", "GET", path, seconds=0.3)
    before = time.monotonic()
    call(redpanda, "GET", path)
    assert time.monotonic() - before > 0.3


def test_a_node_that_restarts_does_not_answer(redpanda: Redpanda) -> None:
    redpanda.restart(2, seconds=60)
    with pytest.raises(OSError, match="closed connection"):
        call(redpanda, "GET", "/v1/brokers", node=2)
    assert [node["is_alive"] for node in call(redpanda, "GET", "/v1/brokers")[1]] == [True, False, True]
    redpanda.restart(2)
    assert call(redpanda, "GET", "/v1/brokers", node=2)[0] == 200


def test_a_migration_moves_after_so_many_polls_and_has_an_unknown_state_if_asked(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    create(admin, kafka_prefix, **WRITTEN)
    redpanda.faults.pace, redpanda.faults.polls_per_step = "polls", 2
    number = unmount(redpanda, kafka_prefix)
    assert [state_of(redpanda, number) for _ in range(4)] == ["planned", "planned", "preparing", "preparing"]
    redpanda.faults.add("state", "GET", "/v1/migrations", message="dancing")
    assert state_of(redpanda, number) == "dancing"
    redpanda.faults.clear()
    until_gone(redpanda, number)


def test_a_lost_answer_of_the_kafka_api_is_of_a_topic_that_was_created(
    redpanda: Redpanda, admin: AdminClient, kafka_prefix: str
) -> None:
    redpanda.faults.add("lost", "KAFKA", "CreateTopics")
    future = admin.create_topics([NewTopic(kafka_prefix, 1, 1)], request_timeout=5)[kafka_prefix]
    assert code_of(future) in {"_TRANSPORT", "_TIMED_OUT", "TOPIC_ALREADY_EXISTS"}
    assert kafka_prefix in admin.list_topics(timeout=SECONDS).topics


def test_the_admin_api_has_certificates_and_asks_for_them_if_told(
    start_redpanda: Callable[..., Redpanda], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = start_redpanda(certificate=authority.issued("server"), client_ca=authority.ca)
    context = ssl.create_default_context(cafile=str(authority.ca))
    with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|broken|EOF"):
        urllib.request.urlopen(f"{server.admin[0]}/v1/status/ready", context=context, timeout=SECONDS)  # noqa: S310
    context.load_cert_chain(*authority.issued("client"))
    with urllib.request.urlopen(f"{server.admin[0]}/v1/status/ready", context=context, timeout=SECONDS) as answer:  # noqa: S310
        assert json.loads(answer.read()) == {"status": "ready"}


def test_the_program_prints_one_line_and_serves_until_its_input_ends() -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(kafkajars._CACHE.parents[1])}  # where the jars are already
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.redpanda", "--version", "26.1.2"],
        env=environ,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    found = json.loads(program.stdout.readline())
    assert list(found) == ["kafka", "admin", "user", "password"]
    assert len(AdminClient({"bootstrap.servers": found["kafka"]}).list_topics(timeout=SECONDS).brokers) == 3
    assert len(found["admin"]) == 3
    program.communicate()
    assert program.returncode == 0
