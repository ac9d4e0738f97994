"""Records that name a partition which is not there, by the command, on brokers and on a cluster of ours."""

from __future__ import annotations

import pytest

from tests.cli.kafka.conftest import Desk
from tests.servers.rawrecords import ODD, read_raw, write_raw

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
