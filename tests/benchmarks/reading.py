"""Reading a topic into Spark through `topic-log`, and writing a stream into one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed, workspace

MIB = 1 << 20


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(5_000_000, 100_000), scale.of(5, 1)
    folder = workspace(scratch / "reading", copies=0)
    took = probed("probes/read.py", str(folder), str(records), str(repetitions))
    what = f"`topic-log` read into Spark and counted, {records:,} records"
    yield compared(what, "a Python data source with the same batches in memory", took, aim=1.5)
    shutil.rmtree(folder)
    yield _pruned(scratch / "pruned", records)
    yield _streamed(scratch / "streamed", scale)


def _pruned(folder: Path, records: int) -> Row:
    folder.mkdir()
    fetched = probed("probes/pruned.py", str(folder), str(records))
    shutil.rmtree(folder)
    ours, floor = (f"{fetched[name] / MIB:.1f} MiB" for name in ("ours", "floor"))
    what = f"bytes fetched by `topic-log` for one column (`value`) of one of ten partitions, {records:,} records"
    return Row(what, "the whole topic, all columns", ours, floor, fetched["ours"] / fetched["floor"], 0.2)


def _streamed(folder: Path, scale: Scale) -> Row:
    records, batches = scale.of(500_000, 20_000), scale.of(9, 1)
    took = probed("probes/stream.py", str(workspace(folder, copies=0)), str(records), str(batches))
    shutil.rmtree(folder)
    what = f"`writeStream` into `topic-log`, steady, a batch of {records:,} records, 8 partitions, made durable"
    return compared(what, "`spark.write.parquet` of the same rows, not made durable", took, aim=1.5)
