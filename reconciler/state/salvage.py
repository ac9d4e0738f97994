"""From which state a repair goes on, and which run wrote last: chosen where that is certain, asked where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import NewerFormatError, UserError
from reconciler.state.lockfile import KEY
from reconciler.state.runs import read_end, read_run
from reconciler.state.snapshots import Snapshot, read_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.remains import Remains
    from reconciler.state.runs import RunEnd, RunFile
    from reconciler.state.snapshots import SnapshotRow

RESTORE: Final = "Restore it from a backup or the bucket's versions"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run that wrote last; `file` is `None` where its `run.json` is gone or damaged."""

    run: str
    file: RunFile | None = None
    end: RunEnd | None = None
    """What it said of its end, if it did."""

    @property
    def begun(self) -> int:
        """The serial of the state it began on; 0 where that cannot be told."""
        return self.file.base_serial if self.file is not None else 0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the state surely was, and what says so: a snapshot may be missing that something else names."""

    serial: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """A state to go on from, and what is wrong with newer ones."""

    snapshot: Snapshot
    damaged: tuple[str, ...] = ()
    """Why each newer one cannot be read; the newest first."""
    is_older: bool = False
    """A newer one can be read: a person goes back on purpose."""


def last_run(store: ObjectStore, remains: Remains) -> LastRun | None:
    """Return the run that wrote last; `None` where there was none. A run that took over counts from its own file."""
    latest = [
        LastRun(trace.run, read_run(store, trace.run), read_end(store, trace.run))
        for trace in remains.runs
        if trace.epoch == remains.run_epoch and (trace.file_bytes is not None or trace.last_page)
    ]
    return max(latest, key=lambda each: (each.file.epoch if each.file else 0, each.run), default=None)


def reached(store: ObjectStore, remains: Remains, last: LastRun | None) -> Reached:
    """Return how far the state surely was, by everything that names a state."""
    found = [Reached(remains.top), Reached(remains.named, f"{KEY} names it")]
    if last is not None:
        found.append(Reached(last.begun, f"run {last.run} began on it"))
    for trace in remains.runs:
        is_last = last is not None and trace.run == last.run
        if trace.has_result and (is_last or trace.file_bytes is None):
            end = read_end(store, trace.run)
            found.append(Reached(end.serial if end is not None else 0, f"run {trace.run} ended with it"))
    return max(found, key=lambda each: each.serial)


def newest_base(store: ObjectStore, remains: Remains, last: LastRun | None, far: Reached, *, lineage: str) -> Base:
    """Return the newest state that can be read; the empty one where there never was another.

    Raises:
        UserError: None can be read, one is of a newer version, or two claim to be it.
    """
    damaged = list(_missing(store, remains, far))
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
    if damaged and remains.snapshots:
        hint = f"{RESTORE}. To own nothing and adopt what the files name: reconciler state repair --snapshot 0"
        raise UserError(f"no state can be read: {damaged[0]}", hint=hint)
    return Base(Snapshot(lineage, 0), tuple(damaged))


def told_base(store: ObjectStore, remains: Remains, told: str, far: Reached, *, lineage: str) -> Base:
    """Return the state that a person named, by serial or by key.

    Raises:
        UserError: There is none, two are meant, or it cannot be read.
    """
    if told == "0":
        return _told(store, remains, Snapshot(lineage, 0), far)
    rows = [row for row in remains.snapshots if told in (str(row.serial), row.key)]
    if not rows:
        message = f"{store.url} has no state {told}"
        raise UserError(message, hint=f"There are: {_serials(remains.snapshots)}.")
    if len(rows) > 1:
        raise _two(rows[0].serial, (row.key for row in rows))
    return _told(store, remains, read_row(store, rows[0]), far)


def _told(store: ObjectStore, remains: Remains, snapshot: Snapshot, far: Reached) -> Base:
    """Return a state that was named, with what became of newer ones."""
    newer = [row for row in remains.snapshots if row.serial > snapshot.serial]
    damaged: list[str] = []
    for row in newer:
        try:
            read_row(store, row)
        except NewerFormatError:
            raise
        except UserError as error:
            damaged.append(error.message)
        else:
            return Base(snapshot, is_older=True)
    return Base(snapshot, _missing(store, remains, far) + tuple(damaged))


def _missing(store: ObjectStore, remains: Remains, far: Reached) -> tuple[str, ...]:
    """Say that the newest state is not there, where something names it."""
    return () if far.serial <= remains.top else (f"{store.url} has no state #{far.serial} any more, and {far.why}",)


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
