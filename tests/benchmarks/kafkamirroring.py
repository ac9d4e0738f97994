"""A Kafka topic mirrored to another Kafka cluster, exactly once, beside bare loops and MirrorMaker 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from mirroring import failing_over
from sparkbench import probed

AIMS = {
    "loops": ("two bare librdkafka loops side by side", 1 / 0.6),
    "tuned": ("MirrorMaker 2, tuned, not exactly once", 1.0),
    "once": ("MirrorMaker 2, exactly once", 1 / 4),
}
"""At most so many times what each of them needs."""

WHY = "Two brokers, Spark and its two tasks share the cores. Most of the time the copy waits for brokers."


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(2_000_000, 20_000), scale.of(3, 1)
    took = probed("probes/kafka_mirror.py", str(scratch), str(records), str(repetitions))
    what = f"mirror {records:,} records of 210 bytes, 6 partitions, Kafka to Kafka, exactly once, Spark warm"
    for name, (against, aim) in AIMS.items():
        ends = {"ours": took["ours"], "floor": took[name]}
        yield compared(what, against, ends, aim=aim, why=WHY)
    yield failing_over(scale.of(1_000, 20), scratch / "failover", "kafka")
