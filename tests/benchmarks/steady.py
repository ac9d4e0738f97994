"""A plan with nothing to do: what every pipeline run costs when nobody changed anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, compared, in_turns, process
from workspaces import write_workspace

MIB = 1024 * 1024


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(10_000, 1_000)
    folder = write_workspace(scratch / "steady", topics=topics)
    process(RECONCILER, "apply", "--yes", folder=folder)
    peaks: list[int] = []

    def plan() -> float:
        finished = process(RECONCILER, "plan", "--detailed-exitcode", folder=folder)
        peaks.append(finished.peak_bytes)
        return finished.seconds

    subjects = {"floor": lambda: process(RECONCILER, "validate", folder=folder).seconds, "ours": plan}
    what = f"a plan with nothing to do, {topics:,} topics, start to exit"
    why = "The plan also reads the state and the cluster, and compares three versions of each topic."
    found = in_turns(subjects, scale.of(5, 1))
    yield compared(what, "`reconciler validate` of the same", found, aim=1.5, why=why)
    peak = max(peaks) / MIB
    yield Row("memory of that plan", "—", f"{peak:.0f} MiB", "—", max(peaks) / 1e6, 400, " MB")
