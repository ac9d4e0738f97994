"""Reading a Kafka topic into Arrow and into Parquet, beside the client library's consumer into nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed

SEVEN_TENTHS, SIX_TENTHS = 1 / 0.7, 1 / 0.6
"""Aims: so many times the speed of the floor."""
FLOOR = "librdkafka's consumer into nothing, one process"
ARROW = "Where each record begins is found one after another, in Python."
ARCHIVES = (("copied", "archived to Parquet", 1), ("compared", "archived, and every record compared", 2))
"""What is measured, and how often it reads the topic: who compares reads it again."""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(3_000_000, 100_000), scale.of(5, 1)
    took = probed("probes/kafka_read.py", str(records), str(repetitions))
    topic = f"a Kafka topic of {records:,} records of 210 bytes, 6 partitions"
    yield compared(f"{topic}, read into Arrow", FLOOR, took, aim=SEVEN_TENTHS, why=ARROW)
    took = probed("probes/kafka_archive.py", str(scratch / "archives"), str(records), str(scale.of(3, 1)))
    for name, what, reads in ARCHIVES:
        ends = {"ours": took[name], "floor": reads * took["floor"]}
        against = FLOOR if reads == 1 else f"{FLOOR}, twice"
        yield compared(f"{topic}, {what}, Spark warm", against, ends, aim=SIX_TENTHS)
