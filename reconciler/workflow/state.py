"""`state list|show|history|unlock`: what this workspace owns, and whose turn it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.applying.threads import ThreadEffects
from reconciler.errors import UserError
from reconciler.resources.address import Address, rank
from reconciler.state.lockfile import read_lockfile
from reconciler.state.runs import read_run
from reconciler.state.snapshots import SnapshotRow, history, run_of
from reconciler.state.unlock import Unlocked, Unlocking, unlock
from reconciler.workflow.opening import open_state
from reconciler.workflow.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.resources.inventory import Recorded
    from reconciler.workflow.invocation import Invocation, Select
    from reconciler.workflow.opening import Site
    from reconciler.workflow.stopping import Stop


@dataclass(frozen=True, slots=True)
class StateListing:
    """Everything we own. `lineage` is `None` where nothing was ever applied."""

    url: str
    lineage: str | None
    serial: int
    rows: tuple[tuple[Address, Recorded], ...]


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


def state_list(invocation: Invocation, select: Select) -> StateListing:
    """Return what this workspace owns, in the order of plans."""
    site = open_state(invocation, select)
    snapshot = read_state(site)
    if snapshot is None:
        return StateListing(site.state.url, None, 0, ())
    rows = tuple((address, snapshot.record[address]) for address in sorted(snapshot.record, key=rank))
    return StateListing(site.state.url, snapshot.lineage, snapshot.serial, rows)


def state_show(invocation: Invocation, select: Select, address: str) -> Recorded:
    """Return one resource as it was last applied.

    Raises:
        UserError: It is not ours.
    """
    snapshot = read_state(open_state(invocation, select))
    recorded = snapshot.record.get(Address(address)) if snapshot else None
    if recorded is None:
        raise UserError(f"{address} is not recorded", hint="List what is with: reconciler state list")
    return recorded


def state_history(invocation: Invocation, select: Select) -> tuple[HistoryRow, ...]:
    """Return every snapshot kept, newest first."""
    site = open_state(invocation, select)
    current = read_lockfile(site.state, owner=site.owner)
    pointer = current.lockfile.state if current else None
    return tuple(
        _row(site, row, is_current=pointer is not None and row.key == pointer.key) for row in history(site.state)
    )


def state_unlock(
    invocation: Invocation, select: Select, run: str | None, *, confirm: Callable[[str], bool], stop: Stop
) -> Unlocked:
    """Free a lease whose holder is dead: at once with its run, else after watching one whole lease.

    `confirm` gets one line that says who holds it; where nobody does there is nothing to ask.

    Raises:
        LeaseError: It is alive, or another run holds it.
        UserError: Not confirmed.
    """
    site = open_state(invocation, select)
    found = read_lockfile(site.state, owner=site.owner)
    if found is None or found.lockfile.lease.status == "free":
        return Unlocked(was_free=True, epoch=found.lockfile.lease.epoch if found else 0)
    lease = found.lockfile.lease
    if not confirm(f"The lease is held by {lease.who} since {lease.since}, run {lease.run}."):
        raise UserError("not confirmed: nothing was changed", hint="Only 'yes' confirms.")
    effects = ThreadEffects()
    wanted = Unlocking(owner=site.owner, run=run, is_stopped=lambda: stop.is_requested)
    try:
        with stop.ends(lambda: None):
            return asyncio.run(unlock(site.state, effects, wanted))
    finally:
        effects.close()


def _row(site: Site, row: SnapshotRow, *, is_current: bool) -> HistoryRow:
    run = run_of(site.state, row)
    known = read_run(site.state, run) if run else None
    return HistoryRow(
        row.serial,
        row.key,
        row.bytes,
        is_current=is_current,
        run=run,
        command=known.command if known else None,
        who=known.who if known else None,
        started=known.started if known else None,
        git_commit=known.git_commit if known else None,
    )
