"""Groups of a Kafka cluster: whoever names them as topics are named means the flat name."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, TopicPartition

from tests.cli.kafka.conftest import Desk


def _commit(desk: Desk, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": desk.kafka.bootstrap(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
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
