"""Mirroring many records in a Spark that is already warm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared
from sparkbench import probed, workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    records, repetitions = scale.of(10_000_000, 200_000), scale.of(3, 1)
    folder = workspace(scratch / "mirroring", copies=repetitions + 1)
    took = probed("probes/mirror.py", str(folder), str(records), str(repetitions))
    what = f"mirror {records:,} records of 100 bytes, Spark warm"
    yield compared(what, "copying the same files", {"ours": took["ours"], "floor": took["floor"]}, aim=1.5)
    synced = {"ours": took["ours"], "floor": took["synced"]}
    yield compared(what, "copying them and making each durable, as ours are", synced, aim=1.5)
    shutil.rmtree(folder)
