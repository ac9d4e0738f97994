"""`topic list` of ten thousand topics, against the same command where there are none, and one GET."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, compared, in_turns, printed_seconds, process
from workspaces import write_workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(10_000, 1_000)
    full, empty = scratch / "listing", scratch / "listing-none"
    for folder, count in ((full, topics), (empty, 0)):
        write_workspace(folder, topics=count, files=1)
        process(RECONCILER, "apply", "--yes", folder=folder)
    # What is listed is on the cluster; the files need only say where that is.
    for path in (full / "manifests").glob("*.yaml"):
        if "kind: Cluster" not in path.read_text(encoding="utf-8"):
            path.unlink()
    catalog = str(next(full.rglob("catalog")))
    subjects = {
        "floor": lambda: (
            process(RECONCILER, "topic", "list", folder=empty).seconds
            + printed_seconds("floors/read_catalog.py", catalog)
        ),
        "ours": lambda: process(RECONCILER, "topic", "list", folder=full).seconds,
    }
    against = "the same command where there are none, and one GET of the catalog"
    yield compared(
        f"`reconciler topic list` of {topics:,} topics", against, in_turns(subjects, scale.of(5, 1)), aim=1.3
    )
