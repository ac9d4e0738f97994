"""`state history`: the snapshots that are kept, and the runs that made them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.state.lockfile import read_lockfile
from reconciler.state.runs import read_run
from reconciler.state.snapshots import SnapshotRow, history, run_of
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.looking.outdated import warn_of_outdated

if TYPE_CHECKING:
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One snapshot; of its run what its `run.json` says, where it is still there."""

    serial: int
    key: str
    bytes: int
    is_current: bool
    run: str | None
    command: str | None
    who: str | None
    started: str | None
    git_commit: str | None


@dataclass(frozen=True, slots=True)
class History:
    """The newest snapshots, newest first, and how many older ones there are beside them."""

    rows: tuple[HistoryRow, ...]
    older: int = 0


def state_history(invocation: Invocation, select: Select, *, limit: int | None = None) -> History:
    """Return the newest `limit` snapshots (`None`: all): one LIST, then two reads for each of them."""
    site = open_state(invocation, select, is_reader=True)
    current = read_lockfile(site.state, owner=site.owner)
    pointer = current.lockfile.state if current else None
    kept = history(site.state)
    warn_of_outdated(site, current.lockfile if current else None, kept)
    shown = kept[:limit]
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="history") as threads:
        rows = threads.map(lambda row: _row(site, row, pointer.key if pointer else None), shown)
        return History(tuple(rows), len(kept) - len(shown))


def _row(site: Site, row: SnapshotRow, current: str | None) -> HistoryRow:
    run = run_of(site.state, row)
    known = read_run(site.state, run) if run else None
    return HistoryRow(
        row.serial,
        row.key,
        row.bytes,
        is_current=row.key == current,
        run=run,
        command=known.command if known else None,
        who=known.who if known else None,
        started=known.started if known else None,
        git_commit=known.git_commit if known else None,
    )
