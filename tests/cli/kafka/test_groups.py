"""Groups of a Kafka cluster: whoever names them as topics are named means the flat name."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import TopicPartition as KafkaPlace

from tests.cli.kafka.conftest import Desk


def _commit(desk: Desk, group: str, topic: str, offset: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": desk.kafka.bootstrap(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


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
