"""Jobs with a shuffle: a topic copied into another number of partitions, and a partition of many keys compacted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    folder, records = scratch / "rekey", scale.of(10_000_000, 100_000)
    folder.mkdir()
    took = probed("probes/rekey.py", str(folder), str(records), str(scale.of(3, 1)))
    shutil.rmtree(folder)
    what = f"re-key {records:,} records of 100 bytes from 6 to 12 partitions, Spark warm, into Parquet"
    yield compared(what, "Spark with one shuffle of the same files, into Parquet", took, aim=1.5)

    folder, keys = scratch / "compact", scale.of(20_000_000, 100_000)
    folder.mkdir()
    took = probed("probes/compact.py", str(folder), str(keys), str(scale.of(3, 1)))
    shutil.rmtree(folder)
    what = f"compact a partition of {keys:,} keys and write what stays, Spark warm"
    yield compared(what, "`groupBy(key).max(offset)` of the same files, written nowhere", took, aim=2.0)
