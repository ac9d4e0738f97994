"""Reading back what lies in object storage: through an empty cache, a filled one, and one old offset of a long log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared, script

SIX_TENTHS, EIGHT_TENTHS = 1 / 0.6, 1 / 0.8
"""Aims: 0.6 and 0.8 times the speed of the floor."""
POINT = 5
"""Requests of a point read: the head, two manifests, one index and one chunk."""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    mib, rounds, segments = scale.of(512, 64), scale.of(5, 1), scale.of(100_000, 2_000)
    folder = scratch / "fetching"
    sizes = (str(size) for size in (mib, rounds, segments))
    found = json.loads(script("probes/fetch.py", str(folder), *sizes).output.splitlines()[-1])
    shutil.rmtree(folder)
    what = f"read {mib} MiB of remote segments back"
    yield compared(f"{what}, nothing cached", "pyarrow reading the same objects", found["cold"], aim=SIX_TENTHS)
    yield compared(f"{what}, all of it cached", "the same records, local", found["warm"], aim=EIGHT_TENTHS)
    peak = found["peak_mib"]
    yield Row(
        f"memory for that beside what pyarrow takes for it, {mib} MiB", "—", f"{peak} MiB", "—", peak, 256, " MiB"
    )
    what = f"requests for one old offset of {segments:,} remote segments"
    yield Row(what, "—", str(found["point"]), "—", found["point"], POINT, "")
