"""Uploading to a bucket, and what upkeep of many partitions and of a long one costs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared, in_seconds, script

SEVEN_TENTHS = 1 / 0.7
FEW = 50
"""Requests of a pass beside the listing, however many partitions there are."""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    mib, rounds = scale.of(512, 32), scale.of(5, 1)
    partitions, segments = scale.of(10_000, 200), scale.of(100_000, 2_000)
    folder = scratch / "uploading"
    sizes = (str(size) for size in (mib, rounds, partitions, segments))
    found = json.loads(script("probes/upload.py", str(folder), *sizes).output.splitlines()[-1])
    shutil.rmtree(folder)
    what = f"upload {mib} MiB of segments to a bucket"
    yield compared(what, "pyarrow copying the same files", found["upload"], aim=SEVEN_TENTHS)
    idle = found["idle"]
    what = f"requests of a pass of `run` with nothing to do, {partitions:,} partitions"
    yield Row(what, "—", str(idle), "—", idle, FEW, "")
    few, many = found["segments"]["few"], found["segments"]["many"]
    what = f"append and upload one more segment to {segments:,}"
    yield Row(what, f"to {max(10, segments // 100):,}", in_seconds(many), in_seconds(few), many / few, 1.5)
