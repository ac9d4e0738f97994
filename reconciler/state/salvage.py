"""From which state a repair goes on, and which run wrote last: chosen where that is certain, asked where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.errors import NewerFormatError, UserError
from reconciler.state.runs import read_run, result_key
from reconciler.state.snapshots import Snapshot, read_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.remains import Remains
    from reconciler.state.runs import RunFile
    from reconciler.state.snapshots import SnapshotRow

RESTORE: Final = "Restore it from a backup or the bucket's versions"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run that wrote last; `file` is `None` where its `run.json` is gone or damaged."""

    run: str
    file: RunFile | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """A state to go on from, and what is wrong with newer ones."""

    snapshot: Snapshot
    damaged: tuple[str, ...] = ()


def last_run(store: ObjectStore, remains: Remains) -> LastRun | None:
    """Return the run that wrote last; `None` where there was none. A run that took over counts from its own file."""
    latest = [
        LastRun(trace.run, read_run(store, trace.run)) for trace in remains.runs if trace.epoch == remains.run_epoch
    ]
    return max(latest, key=lambda each: (each.file.epoch if each.file else 0, each.run), default=None)


def newest_base(store: ObjectStore, remains: Remains, last: LastRun | None, *, lineage: str) -> Base:
    """Return the newest state that can be read; the empty one where there never was another.

    Raises:
        UserError: None can be read, one is of a newer version, or two claim to be it.
    """
    damaged: list[str] = []
    for serial in dict.fromkeys(row.serial for row in remains.snapshots):
        good: list[Snapshot] = []
        for row in remains.snapshots:
            if row.serial == serial:
                try:
                    good.append(read_row(store, row))
                except NewerFormatError:
                    raise
                except UserError as error:
                    damaged.append(error.message)
        if good:
            return Base(_committed(good, last), tuple(damaged))
    if damaged:
        hint = f"{RESTORE}. To own nothing and adopt what the files name: reconciler state repair --snapshot 0"
        raise UserError(f"no state can be read: {damaged[0]}", hint=hint)
    return Base(Snapshot(lineage, 0))


def told_base(store: ObjectStore, remains: Remains, told: str, *, lineage: str) -> Base:
    """Return the state that a person named, by serial or by key.

    Raises:
        UserError: There is none, two are meant, or it cannot be read.
    """
    if told == "0":
        return Base(Snapshot(lineage, 0))
    rows = [row for row in remains.snapshots if told in (str(row.serial), row.key)]
    if not rows:
        message = f"{store.url} has no state {told}"
        raise UserError(message, hint=f"There are: {_serials(remains.snapshots)}.")
    if len(rows) > 1:
        raise _two(rows[0].serial, (row.key for row in rows))
    return Base(read_row(store, rows[0]))


def runs_after(store: ObjectStore, remains: Remains, serial: int) -> tuple[RunFile, ...]:
    """Return the runs that began on a state or later, the first one first: what they did is forgotten with it."""
    found: list[RunFile] = []
    for trace in remains.runs:
        file = read_run(store, trace.run)
        if file is not None and file.base_serial < serial:
            break
        found += [file] if file is not None else []
    return tuple(reversed(found))


def has_ended(store: ObjectStore, run: str) -> bool:
    """Tell whether a run left word that it ended, with nothing left of it: it does so after its last commit."""
    stored = store.get(result_key(run))
    try:
        body = orjson.loads(stored.body) if stored is not None else {}
        is_left = body.get("not_started") or body.get("in_doubt")
        return body.get("status") in {"done", "partial"} and not is_left
    except (orjson.JSONDecodeError, AttributeError):
        return False


def _committed(good: Sequence[Snapshot], last: LastRun | None) -> Snapshot:
    """Return, of snapshots with one serial and none after them, the one that was committed.

    A serial stands twice where a run wrote a snapshot and died before it could commit it; whoever came next wrote
    another. So it is the one of the run that wrote last, or the one that this run began on.
    """
    own = [snapshot for snapshot in good if last is not None and snapshot.run == last.run]
    begun = last.file.base_sha256 if last is not None and last.file is not None else None
    left = own or [snapshot for snapshot in good if snapshot.sha256 == begun] or list(good)
    if len(left) > 1:
        raise _two(left[0].serial, (f"{each.key} (run {each.run}, {len(each.record)} resources)" for each in left))
    return left[0]


def _two(serial: int, named: Iterable[str]) -> UserError:
    return UserError(
        f"state #{serial} was written twice, and nothing says which was committed: {', '.join(sorted(named))}",
        hint="Name the one to go on from: reconciler state repair --snapshot KEY",
    )


def _serials(rows: Sequence[SnapshotRow]) -> str:
    serials = list(dict.fromkeys(row.serial for row in rows))
    return ", ".join(f"#{serial}" for serial in serials[:5]) + (" …" if serials[5:] else "") or "none"
