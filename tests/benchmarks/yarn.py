"""A mirror on YARN, and the same on a standalone cluster of Spark with as many cores and as much memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed, workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(10_000_000, 200_000), scale.of(3, 1)
    folder = workspace(scratch / "yarn", copies=4 * repetitions)
    took = probed("probes/yarn.py", str(folder), str(records), str(repetitions))
    shutil.rmtree(folder)
    what = f"mirror {records:,} records of 100 bytes on YARN, two executors of a core, Spark warm"
    yield compared(what, "the same on a standalone cluster", took["mirror"], aim=1.2)
