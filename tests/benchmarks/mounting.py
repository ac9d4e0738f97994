"""Mounting: the flush beside a bare copy, and that a mount costs the same whatever it holds, partition by partition."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared, in_seconds, script

SEVEN_TENTHS = 1 / 0.7


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    mib, rounds, partitions = scale.of(512, 32), scale.of(5, 1), scale.of(1_000, 40)
    folder = scratch / "mounting"
    sizes = (str(size) for size in (mib, rounds, partitions))
    found = json.loads(script("probes/mount.py", str(folder), *sizes).output.splitlines()[-1])
    shutil.rmtree(folder)
    what = f"flush {mib} MiB of a topic to a bucket, to unmount it"
    yield compared(what, "pyarrow copying the same files", found["flush"], aim=SEVEN_TENTHS)
    small, large = found["requests"]["small"], found["requests"]["large"]
    yield Row("requests of a mount of 10 GiB", "of 1 MiB", str(large), str(small), large / small, 1.0)
    mounts = found["mounts"]
    what, one, many = f"mount {partitions:,} partitions, time for each", mounts["one"], mounts["many"] / partitions
    yield Row(what, "mounting one", in_seconds(many), in_seconds(one), many / one, 1.0)
    what = f"mount {partitions:,} partitions of a bucket"
    yield Row(what, "—", in_seconds(mounts["many"]), "—", mounts["many"], 60, " s")
