"""What a plan and an apply say of topics that cannot be, that were replaced meanwhile, and that brokers refuse."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import TopicPartition as KafkaPlace

from reconciler.providers import kafka
from reconciler.providers.brokers.translate import KAFKA
from tests.cli.kafka.conftest import CLUSTER, TOPIC, Desk
from tests.servers.kafka import Kafka
from tests.servers.rawrecords import ODD, read_raw, write_raw

MANY: Final = 380
CONFIGS: Final = {
    "cleanup.policy": "delete",
    "compression.gzip.level": 5,
    "compression.lz4.level": 7,
    "compression.type": "zstd",
    "compression.zstd.level": 4,
    "delete.retention.ms": "2h",
    "file.delete.delay.ms": "10s",
    "flush.messages": 100000,
    "flush.ms": "1m",
    "index.interval.bytes": "8KiB",
    "max.compaction.lag.ms": "30d",
    "max.message.bytes": "2MiB",
    "message.timestamp.after.max.ms": "1d",
    "message.timestamp.before.max.ms": "30d",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": 0.3,
    "min.compaction.lag.ms": "1m",
    "min.insync.replicas": 1,
    "preallocate": False,
    "retention.bytes": "1GiB",
    "retention.ms": "7d",
    "segment.bytes": "2MiB",
    "segment.index.bytes": "1MiB",
    "segment.jitter.ms": 1000,
    "segment.ms": "1h",
}
"""With the topic and its partition 27 records of the controller."""


def refused(desk: Desk, *words: str) -> str:
    said = desk.plan()
    text = said.out + said.err
    assert said.code == 1, text
    for each in words:
        assert each in text, text
    return text


@pytest.mark.soak
def test_a_topic_made_anew_under_its_name_is_not_changed_by_a_plan_of_before(either: Desk) -> None:
    name = either.topic("orders", configs={"retention.ms": "1d"})
    either.apply()
    either.topic("orders", configs={"retention.ms": "2d"})
    assert either.plan("--out", "plan.json").code == 0
    either.kafka.topics("--delete", "--topic", name)
    either.kafka.topics("--create", "--topic", name, "--config", "retention.ms=86400000")
    said = either.typed("apply", "plan.json")
    assert said.code == 6, said.out + said.err
    assert either.own(name) == {"retention.ms": "86400000"}
    either.apply()
    assert either.own(name) == {"retention.ms": "172800000"}
    either.settled()


@pytest.mark.soak
def test_a_topic_made_anew_under_its_name_is_not_deleted_by_a_plan_of_before(desk: Desk) -> None:
    name = desk.topic("orders")
    desk.apply()
    desk.drop("orders")
    allowed = ("--allow", f"delete:{desk.address('orders')}")
    assert desk.plan("--out", "plan.json", *allowed).code == 0
    desk.kafka.topics("--delete", "--topic", name)
    desk.kafka.topics("--create", "--topic", name)
    said = desk.typed("apply", "plan.json")
    assert said.code in {0, 6}, said.out + said.err
    assert name in desk.kafka.names()
    desk.apply(*allowed)
    assert name in desk.kafka.names()


@pytest.mark.soak
def test_a_saved_plan_is_done_as_it_was_approved_and_not_when_the_files_went_on(desk: Desk) -> None:
    name = desk.topic("orders", configs={"retention.ms": "1d"})
    assert desk.plan("--out", "plan.json").code == 0
    assert desk.typed("apply", "plan.json").code == 0
    desk.settled()
    desk.topic("orders", configs={"retention.ms": "2d"})
    assert desk.plan("--out", "plan.json").code == 0
    desk.by_hand(name, {"retention.ms": "3600000"})
    said = desk.typed("apply", "plan.json")
    assert said.code == 6, said.out + said.err
    assert desk.own(name) == {"retention.ms": "3600000"}


@pytest.mark.soak
@pytest.mark.fact("F-K-031")
def test_names_that_fold_onto_what_is_there_are_refused_at_plan(desk: Desk) -> None:
    there = f"{desk.prefix}_orders"
    desk.kafka.topics("--create", "--topic", there)
    desk.topic("orders")
    refused(desk, f"{desk.prefix}.orders folds onto {there}, which is there", "manifests/orders.yaml")


@pytest.mark.soak
@pytest.mark.fact("F-K-031")
def test_a_name_of_249_characters_is_made_and_a_longer_one_refused(either: Desk) -> None:
    longest = "n" * (249 - len(either.prefix) - 1)
    either.write(
        "long", TOPIC.format(name=longest, namespace=either.prefix, spec="{partitions: 1, replicationFactor: 1}")
    )
    either.apply()
    either.settled()
    assert f"{either.prefix}.{longest}" in either.kafka.names()
    either.write("long", TOPIC.format(name=longest + "n", namespace=either.prefix, spec="{partitions: 1}"))
    refused(either, "249")


@pytest.mark.soak
def test_topics_that_kafka_keeps_for_itself_are_neither_declared_nor_shown(desk: Desk) -> None:
    desk.write("inner", TOPIC.format(name="__consumer_offsets", namespace="", spec="{partitions: 8}"))
    refused(desk, "__consumer_offsets is a name reserved by the platform")
    desk.drop("inner")
    desk.apply()
    assert "__" not in desk.typed("topic", "list").out


@pytest.mark.soak
def test_what_a_version_does_not_know_is_refused_at_plan_with_its_line(either: Desk) -> None:
    either.topic("orders", configs={"message.timestamp.difference.max.ms": "1d"})
    if either.kafka.version < "4":
        either.apply()
        either.settled()
    else:
        words = "configs.message.timestamp.difference.max.ms is not a config of platform kafka"
        refused(either, f"manifests/orders.yaml:2  {either.address('orders')}: {words}")


@pytest.mark.soak
def test_an_older_version_takes_what_a_newer_one_refuses_at_plan(either: Desk) -> None:
    either.topic("orders", configs={"segment.bytes": 10_000})
    if either.kafka.version < "4":
        either.apply()
        either.settled()
    else:
        refused(either, "segment.bytes", "10000 is out of range: at least 1048576", "manifests/orders.yaml:2")


@pytest.mark.soak
@pytest.mark.parametrize("is_new", [True, False], ids=["made", "changed"])
def test_what_only_the_broker_refuses_is_told_in_its_words_and_at_our_line(desk: Desk, *, is_new: bool) -> None:
    key = "leader.replication.throttled.replicas"
    if not is_new:
        desk.topic("orders")
        desk.apply()
    desk.topic("orders", configs={"retention.ms": "1d", key: "nonsense"})
    fine = desk.topic("fine", configs={"retention.ms": "1d"})
    said = desk.apply(code=8)
    text = said.out + said.err
    assert f"Invalid value [nonsense] for configuration {key}" in text, text
    assert "manifests/orders.yaml:5" in text, text
    assert desk.own(fine) == {"retention.ms": "86400000"}
    desk.topic("orders", configs={"retention.ms": "1d"})
    desk.apply()
    desk.settled()


@pytest.mark.soak
@pytest.mark.fact("F-K-083")
def test_fewer_partitions_and_more_replicas_than_brokers_are_refused_at_plan(desk: Desk) -> None:
    name = desk.topic("orders", partitions=3)
    desk.apply()
    desk.topic("orders", partitions=2)
    desk.topic("wide", replicationFactor=2)
    refused(desk, "it has 3 partitions and 2 are declared", "replication factor 2 is more than 1: one broker is alive")
    desk.topic("orders", partitions=5)
    desk.drop("wide")
    said = desk.plan()
    assert "irreversible" in said.out
    desk.apply()
    desk.settled()
    assert "PartitionCount: 5" in desk.kafka.topics("--describe", "--topic", name)


@pytest.mark.thorough
@pytest.mark.fact("F-K-082")
def test_more_than_the_controller_takes_at_once_is_split_and_one_refusal_stands_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [TOPIC.format(name=f"t{n}", namespace=desk.prefix, spec=_spec(n)) for n in range(MANY)]
    desk.write("many", "".join(documents))
    with monkeypatch.context() as all_at_once:
        all_at_once.setattr(kafka, "DIALECT", replace(KAFKA, records_at_once=20_000))
        said = desk.apply(code=8)
        assert "excessively large batch" in said.out + said.err
        assert not any(desk.prefix in name for name in desk.kafka.names())
    said = desk.apply(code=8)
    (failed,) = [line for line in said.out.splitlines() if line.startswith("✗") and "nonsense" in line]
    assert desk.address("t7") in failed
    names = {name for name in desk.kafka.names() if name.startswith(f"{desk.prefix}.t")}
    assert names == {f"{desk.prefix}.t{n}" for n in range(MANY) if n != 7}
    Path("manifests/many.yaml").unlink()
    allowed = [part for n in range(MANY) for part in ("--allow", f"delete:{desk.address(f't{n}')}")]
    desk.apply(*allowed)
    assert not any(desk.prefix in name for name in desk.kafka.names())


@pytest.mark.soak
def test_another_cluster_than_the_declared_or_recorded_one_is_refused_with_both_ids(
    desk: Desk, kafka_39: Kafka
) -> None:
    desk.topic("orders")
    desk.apply()
    here, there = (cluster_id(kafka) for kafka in (desk.kafka, kafka_39))
    desk.write("cluster", CLUSTER.format(broker=kafka_39.bootstrap()))
    refused(desk, f"cluster live was {here} when it was recorded, but {there} answers")
    said = desk.apply(code=1)
    assert there in said.out + said.err
    assert desk.prefix not in kafka_39.topics("--list")
    declared = CLUSTER.replace("provider: kafka,", "provider: kafka, clusterId: {id},")
    desk.write("cluster", declared.format(broker=desk.kafka.bootstrap(), id=there))
    refused(desk, f"cluster live should be {there}, but {here} answers")


def _spec(number: int) -> str:
    configs = dict(CONFIGS) | ({"leader.replication.throttled.replicas": "nonsense"} if number == 7 else {})
    return str({"partitions": 1, "replicationFactor": 1, "configs": configs}).replace("False", "false")


def cluster_id(kafka: Kafka) -> str:
    said = kafka.tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", kafka.bootstrap())
    return said.rsplit(" ", 1)[-1].strip()


# Records that name a partition which is not there, by the command, on brokers and on a cluster of ours.


OURS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: live}
spec: {embedded: {root: "file://live"}}
"""


@pytest.mark.parametrize("where", ["brokers", "ours"])
def test_a_partition_that_is_not_there_is_refused_with_those_that_are(desk: Desk, where: str) -> None:
    if where == "ours":
        desk.write("cluster", OURS)
    desk.topic("orders", partitions=3)
    desk.apply()
    typed = ("topic", "produce", desk.address("orders"), "-i", "-", "--input-format")
    for named, options, given in (
        (9, ("jsonl", "--partition", "9"), b'{"name": "a"}\n'),
        (3, ("records",), b'{"value": "a", "partition": 2}\n{"value": "b", "partition": 3}\n'),
    ):
        said = desk.typed(*typed, *options, stdin=given)
        assert said.code == 1, said.out + said.err
        assert f"partition {named}: the topic does not have it" in said.err
        assert "Its partitions are 0 to 2; leave the partition out to have it chosen by the key" in said.err
        assert "Traceback" not in said.err


def test_records_with_any_bytes_and_times_are_printed_safely_and_produced_again(desk: Desk) -> None:
    kept = {"configs": {"retention.ms": -1}}
    orders, again = desk.topic("orders", **kept), desk.topic("again", **kept)
    desk.apply()
    records = ODD
    write_raw(desk.kafka, orders, records)
    said = desk.typed("topic", "consume", desk.address("orders"), "--output-format", "records")
    assert said.code == 0, said.err
    assert '[{"base64":"//4="},{"base64":"/w=="}]' in said.out
    assert "\x1b" not in said.out
    done = desk.typed(
        "topic", "produce", desk.address("again"), "-i", "-", "--input-format", "records", stdin=said.out.encode()
    )
    assert done.code == 0, done.err
    assert read_raw(desk.kafka, again) == records


# Groups of a Kafka cluster: whoever names them as topics are named means the flat name.


def _commit(desk: Desk, group: str, topic: str, offset: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": desk.kafka.bootstrap(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_the_name_on_the_brokers_is_answered_with_the_address(desk: Desk) -> None:
    desk.topic("orders")
    desk.apply()
    on_brokers = desk.address("orders").replace(":", ".")
    said = desk.typed("topic", "describe", on_brokers)
    assert said.code == 1
    assert f"{on_brokers} does not exist" in said.err
    assert f"hint: Did you mean {desk.address('orders')}?" in said.err


def test_a_group_is_found_by_its_full_name_too(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    _commit(desk, f"{desk.prefix}.bill", topic)
    for name in (f"{desk.prefix}:bill", f"{desk.prefix}.bill"):
        said = desk.typed("group", "describe", "live", name, "--format", "json")
        assert said.code == 0, said.err
        assert f"{desk.prefix}.bill" in json.dumps(json.loads(said.out))
    gone = desk.typed("group", "delete", "live", f"{desk.prefix}:bill", "--yes")
    assert gone.code == 0, gone.err
    assert desk.typed("group", "describe", "live", f"{desk.prefix}.bill").code != 0


def test_a_new_group_of_a_full_name_gets_the_flat_one(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    assert (
        desk.typed(
            "topic", "produce", desk.address("orders"), "--input", "-", "--input-format", "jsonl", stdin=b'{"n": 1}\n'
        ).code
        == 0
    )
    reading = ("topic", "consume", desk.address("orders"), "--group", f"{desk.prefix}:read", "--output", "read.jsonl")
    assert desk.typed(*reading).code == 0
    reset = ("group", "reset", "live", f"{desk.prefix}:set", "--topic", f"{desk.prefix}:orders", "--to", "earliest")
    assert desk.typed(*reset, "--yes").code == 0
    listed = {each for each in desk.typed("group", "list", "live").out.split() if each.startswith(desk.prefix)}
    assert listed == {f"{desk.prefix}.read", f"{desk.prefix}.set"}
    assert desk.typed("group", "describe", "live", f"{desk.prefix}:read").code == 0
    assert topic in desk.admin.list_topics()


def test_a_group_with_members_is_refused_in_words_of_brokers(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    group = f"{desk.prefix}.members"
    _commit(desk, group, topic)
    member = Consumer({"bootstrap.servers": desk.kafka.bootstrap(), "group.id": group})
    member.subscribe([topic])
    deadline = time.monotonic() + 60
    while not member.assignment():
        assert time.monotonic() < deadline, "it has not joined"
        member.poll(0.1)
    for options in ((), ("--force",)):
        said = desk.typed("group", "delete", "live", group, "--yes", *options)
        assert said.code == 7
        assert "is reading: it has members" in said.err
        assert "24 hours" not in said.err
    member.close()


def test_records_for_an_internal_topic_and_an_unknown_config_are_refused_with_a_way_on(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    _commit(desk, f"{desk.prefix}.any", topic)  # with the first group brokers make the topic
    fed = desk.typed(
        "topic",
        "produce",
        "topic/live/__consumer_offsets",
        "--input",
        "-",
        "--input-format",
        "jsonl",
        stdin=b'{"n": 1}\n',
    )
    assert fed.code == 1
    assert "topic/live/__consumer_offsets is internal: brokers or reconciler alone write to it" in fed.err
    altered = desk.typed("topic", "alter", desk.address("orders"), "--set", "nonsense=1")
    assert f"List them with: reconciler topic describe {desk.address('orders')}" in altered.err


def test_a_topic_is_created_where_a_manifest_says_and_altered_though_no_workspace_owns_it(desk: Desk) -> None:
    desk.topic("orders")
    desk.apply()
    rescue = desk.address("rescue")
    created = desk.typed("topic", "create", rescue, "--no-state", "--cluster", "manifests/cluster.yaml")
    assert (created.code, created.out) == (0, f"✓ {rescue}  created\n"), created.err
    altered = desk.typed("topic", "alter", rescue, "--set", "retention.ms=9d", "--yes")
    assert altered.code == 0, altered.err
    assert "nothing to do" in desk.plan().out


def test_a_group_that_is_called_with_a_colon_there_is_that_one(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    for separator in ".:":
        _commit(desk, f"{desk.prefix}{separator}bill", topic)
    assert desk.typed("group", "delete", "live", f"{desk.prefix}:bill", "--yes").code == 0
    listed = desk.typed("group", "list", "live").out
    assert f"{desk.prefix}.bill" in listed
    assert f"{desk.prefix}:bill" not in listed


def test_what_is_committed_is_shown_as_it_is_also_where_the_log_has_moved_on(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    producer = Producer({"bootstrap.servers": desk.kafka.bootstrap()})
    for _ in range(10):
        producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    desk.admin.delete_records({KafkaPlace(topic, 0): 5})
    for committed, lag, told in ((2, 8, "behind the log's start"), (7, 3, ""), (12, 0, "beyond the log's end")):
        group = f"{desk.prefix}.at-{committed}"
        _commit(desk, group, topic, committed)
        said = desk.typed("group", "describe", "live", group)
        assert said.out.splitlines()[-1].endswith(told or "10"), said.out
        (row,) = json.loads(desk.typed("group", "describe", "live", group, "--format", "json").out)["offsets"]
        assert (row["committed"], row["lag"], row["start"], row["end"]) == (committed, lag, 5, 10)
    moved = desk.typed("group", "reset", "live", f"{desk.prefix}.at-2", "--to", "earliest", "--yes", "--format", "json")
    (move,) = json.loads(moved.out)["moves"]
    assert (move["before"], move["after"]) == (2, 5)


def test_a_trim_deletes_records_on_brokers_and_leaves_those_of_an_open_transaction(desk: Desk) -> None:
    topic = desk.topic("orders")
    desk.apply()
    address, servers = desk.address("orders"), {"bootstrap.servers": desk.kafka.bootstrap()}
    producer = Producer(servers)
    for _ in range(6):
        producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    _commit(desk, f"{desk.prefix}.slow", topic, 2)
    blocked = desk.typed("topic", "trim", address, "--before", "4", "--yes")
    assert (blocked.code, f"--allow trim:{address}" in blocked.err) == (7, True), blocked.err
    allowed = ("--allow", f"trim:{address}", "--yes")
    done = desk.typed("topic", "trim", address, "--before", "4", *allowed)
    assert done.code == 0, done.err
    assert f"{desk.prefix}.slow have not read all of these records" in done.out
    open_producer = Producer({**servers, "transactional.id": f"{desk.prefix}-open"})
    open_producer.init_transactions(30)
    open_producer.begin_transaction()
    open_producer.produce(topic, b"uncommitted", partition=0)
    assert open_producer.flush(30) == 0
    emptied = desk.typed("topic", "trim", address, "--before", "2100-01-01T00:00:00Z", *allowed)
    assert emptied.code == 0, emptied.err
    open_producer.commit_transaction(30)
    described = json.loads(desk.typed("topic", "describe", address, "--format", "json").out)
    assert [(row["start"], row["end"]) for row in described["partitions"]] == [(6, 8)]
    assert "nothing to do" in desk.plan().out


def test_a_topic_that_is_only_compacted_is_not_trimmed(desk: Desk) -> None:
    desk.topic("keys", configs={"cleanup.policy": "compact"})
    desk.apply()
    said = desk.typed("topic", "trim", desk.address("keys"), "--before", "1")
    assert (said.code, "only a topic whose policy has delete can be trimmed" in said.err) == (1, True), said.err
