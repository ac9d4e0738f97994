"""A plan with nothing to do of many clusters: are they read at once, and in little memory?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, in_seconds, process
from workspaces import write_fleet

TOPICS = 50


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    clusters = scale.of(200, 4)
    folders = {count: write_fleet(scratch / f"fleet-{count}", clusters=count, topics=TOPICS) for count in (1, clusters)}
    runs = {count: [] for count in folders}
    for folder in folders.values():
        process(RECONCILER, "apply", "--yes", folder=folder)
    for _ in range(scale.of(5, 1)):
        for count, folder in folders.items():
            runs[count].append(process(RECONCILER, "plan", folder=folder))
    ours, one = (statistics.median(run.seconds for run in runs[count]) for count in (clusters, 1))
    what = f"an empty plan of {clusters} embedded clusters of {TOPICS} topics"
    yield Row(what, f"of one cluster of {TOPICS} topics", in_seconds(ours), in_seconds(one), ours / one, 4)
    peak = max(run.peak_bytes for run in runs[clusters]) / 1e6
    yield Row("memory of that plan", "—", f"{peak:.0f} MB", "—", peak, 400, " MB")
