"""Creating many topics with one apply."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, compared, in_turns, process
from workspaces import write_workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(10_000, 1_000)
    written = write_workspace(scratch / "creating", topics=topics)
    folder = scratch / "creating-run"

    def apply() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(written, folder)
        return process(RECONCILER, "apply", "--yes", folder=folder).seconds

    subjects = {"floor": lambda: process(RECONCILER, "plan", folder=written).seconds, "ours": apply}
    what = f"create {topics:,} topics by one apply, start to exit"
    yield compared(what, "`reconciler plan` of the same", in_turns(subjects, scale.of(3, 1)), aim=2.0)
    root = folder / ".clusters" / "west"
    swaps = json.loads((root / "catalog" / "head.json").read_bytes())["serial"]
    yield Row("catalog swaps of that apply", "—", str(swaps), "—", swaps, 10, "")
    objects = sum(1 for path in root.rglob("*") if path.is_file() and path.parts[len(root.parts)] in _PER_TOPIC)
    yield Row("objects it made for a topic or partition", "—", str(objects), "—", objects, 0, "")


_PER_TOPIC = ("heads", "pages", "topics")
