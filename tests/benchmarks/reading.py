"""Reading a topic into Spark through `topic-log`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed, workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(5_000_000, 100_000), scale.of(5, 1)
    folder = workspace(scratch / "reading", copies=0)
    took = probed("probes/read.py", str(folder), str(records), str(repetitions))
    what = f"`topic-log` read into Spark and counted, {records:,} records"
    yield compared(what, "a Python data source with the same batches in memory", took, aim=1.5)
    shutil.rmtree(folder)
