"""A plan with nothing to do: what every pipeline run costs when nobody changed anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import RECONCILER, Row, Scale, compared, in_turns, process
from workspaces import write_workspace


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    topics = scale.of(10_000, 1_000)
    folders = {count: write_workspace(scratch / f"steady-{count}", topics=count) for count in (topics, 10 * topics)}
    peaks: dict[int, int] = dict.fromkeys(folders, 0)
    for folder in folders.values():
        process(RECONCILER, "apply", "--yes", folder=folder)

    def plan(count: int) -> float:
        finished = process(RECONCILER, "plan", "--detailed-exitcode", folder=folders[count])
        peaks[count] = max(peaks[count], finished.peak_bytes)
        return finished.seconds

    subjects = {
        "floor": lambda: process(RECONCILER, "validate", folder=folders[topics]).seconds,
        "ours": lambda: plan(topics),
    }
    what = f"a plan with nothing to do, {topics:,} topics, start to exit"
    why = "The plan also reads the state and the cluster, and compares three versions of each topic."
    found = in_turns(subjects, scale.of(5, 1))
    yield compared(what, "`reconciler validate` of the same", found, aim=1.4, why=why)
    yield _memory(peaks[topics], 400)
    sizes = {"floor": lambda: plan(topics), "ours": lambda: plan(10 * topics)}
    what = f"a plan with nothing to do, {10 * topics:,} topics, start to exit"
    yield compared(what, f"of {topics:,} topics", in_turns(sizes, scale.of(3, 1)), aim=10)
    yield _memory(peaks[10 * topics], 1_200)


def _memory(peak_bytes: int, aim: float) -> Row:
    peak = peak_bytes / 1e6
    return Row("memory of that plan", "—", f"{peak:.0f} MB", "—", peak, aim, " MB")
