"""Reading a topic of a Kafka cluster into Arrow, beside the client library's consumer into nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed

SEVEN_TENTHS = 1 / 0.7
"""Aim: 0.7 times the speed of the floor."""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:  # noqa: ARG001 - brokers keep their records elsewhere
    records, repetitions = scale.of(3_000_000, 100_000), scale.of(5, 1)
    took = probed("probes/kafka_read.py", str(records), str(repetitions))
    what = f"a Kafka topic of {records:,} records of 210 bytes, 6 partitions, read into Arrow"
    yield compared(what, "librdkafka's consumer into nothing, one process", took, aim=SEVEN_TENTHS)
