"""Loading and validating a big workspace, without starting anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, compared, in_turns, printed_seconds
from workspaces import write_workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(10_000, 1_000)
    folder = str(write_workspace(scratch / "loading", topics=topics))
    subjects = {
        "floor": lambda: printed_seconds("floors/read_yaml.py", folder),
        "ours": lambda: printed_seconds("probes/load.py", folder),
    }
    what = f"load and validate {topics:,} topics in 100 files"
    yield compared(what, "`yaml.CSafeLoader` on the same bytes", in_turns(subjects, scale.of(5, 1)), aim=2.0)
