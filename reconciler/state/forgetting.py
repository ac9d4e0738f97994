"""What a repair forgets: the runs whose work stays on the clusters, and in no record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.state.runs import read_end, read_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.remains import Remains, RunTrace
    from reconciler.state.runs import RunFile


@dataclass(frozen=True, slots=True)
class ForgottenRun:
    """A run, and the ids of what it set out to do, or did."""

    run: str
    actions: tuple[str, ...]
    command: str = ""
    """Empty where only its result is left."""
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        """Name it."""
        return f"run {self.run} ({self.command})" if self.command else f"run {self.run}"

    @classmethod
    def of(cls, file: RunFile) -> ForgottenRun:
        """Say what a run set out to do."""
        actions = tuple(str(action["id"]) for action in file.actions)
        return cls(file.run, actions, file.command, file.who, file.started or None)


def runs_after(store: ObjectStore, remains: Remains, serial: int) -> tuple[ForgottenRun, ...]:
    """Return the runs that began on a state or later, the first one first: what they did is forgotten with it."""
    found: list[ForgottenRun] = []
    for trace in remains.runs:
        file = read_run(store, trace.run)
        if file is not None and file.base_serial < serial:
            break
        found += [ForgottenRun.of(file)] if file is not None else []
    return (*reversed(found), *_told_by_results(store, remains.runs, serial))


def _told_by_results(store: ObjectStore, runs: Iterable[RunTrace], serial: int) -> Iterable[ForgottenRun]:
    """Yield the runs of which nothing but a result is left, and that ended with a later state."""
    for trace in runs:
        end = read_end(store, trace.run) if trace.has_result and trace.file_bytes is None else None
        if end is not None and end.serial > serial:
            yield ForgottenRun(trace.run, end.done)
