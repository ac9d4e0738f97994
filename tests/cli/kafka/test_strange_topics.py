"""What a plan and an apply say of topics that cannot be, that were replaced meanwhile, and that brokers refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cli.kafka.conftest import CLUSTER, TOPIC, Desk
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


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


@pytest.mark.fact("F-K-031")
def test_names_that_fold_onto_what_is_there_are_refused_at_plan(desk: Desk) -> None:
    there = f"{desk.prefix}_orders"
    desk.kafka.topics("--create", "--topic", there)
    desk.topic("orders")
    refused(desk, f"{desk.prefix}.orders folds onto {there}, which is there", "manifests/orders.yaml")


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


def test_topics_that_kafka_keeps_for_itself_are_neither_declared_nor_shown(desk: Desk) -> None:
    desk.write("inner", TOPIC.format(name="__consumer_offsets", namespace="", spec="{partitions: 8}"))
    refused(desk, "__consumer_offsets is a name that the platform or its tools keep for themselves")
    desk.drop("inner")
    desk.apply()
    assert "__" not in desk.typed("topic", "list").out


def test_what_a_version_does_not_know_is_refused_at_plan_with_its_line(either: Desk) -> None:
    either.topic("orders", configs={"message.timestamp.difference.max.ms": "1d"})
    if either.kafka.version < "4":
        either.apply()
        either.settled()
    else:
        words = "configs.message.timestamp.difference.max.ms is not a config of platform kafka"
        refused(either, f"manifests/orders.yaml:2  {either.address('orders')}: {words}")


def test_an_older_version_takes_what_a_newer_one_refuses_at_plan(either: Desk) -> None:
    either.topic("orders", configs={"segment.bytes": 10_000})
    if either.kafka.version < "4":
        either.apply()
        either.settled()
    else:
        refused(either, "segment.bytes", "10000 is out of range: at least 1048576", "manifests/orders.yaml:2")


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


@pytest.mark.fact("F-K-082")
def test_more_than_the_controller_takes_at_once_is_split_and_one_refusal_stands_alone(desk: Desk) -> None:
    documents = [TOPIC.format(name=f"t{n}", namespace=desk.prefix, spec=_spec(n)) for n in range(MANY)]
    desk.write("many", "".join(documents))
    said = desk.apply(code=8)
    assert "nonsense" in said.out + said.err
    names = [name for name in desk.kafka.names() if name.startswith(f"{desk.prefix}.t")]
    assert len(names) == MANY - 1
    Path("manifests/many.yaml").unlink()
    allowed = [part for n in range(MANY) for part in ("--allow", f"delete:{desk.address(f't{n}')}")]
    desk.apply(*allowed)
    assert not any(desk.prefix in name for name in desk.kafka.names())


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
