"""Find problems in a state's files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from reconciler.errors import LeaseError, MissingObjectError, NewerFormatError, RetryableError, UserError
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import shorten_run_id
from reconciler.state.journal import journal_key, prove_outdated, read_open_run, read_run, run_key
from reconciler.state.lockfile import KEY, RUNS_PREFIX, Lockfile, Owner, check_owner, parse_lockfile
from reconciler.state.snapshots import SnapshotRow, list_snapshots, read_snapshot_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, StoredObject


T = TypeVar("T")
R = TypeVar("R")

_PART: Final = re.compile(rf"{RUNS_PREFIX}([^/]+)/(?:(run|result)|journal/(\d{{6,}}))\.json")
_EPOCH: Final = re.compile(rb'"epoch"\s*:\s*(\d{1,15})\b')
_STATE_NAME: Final = re.compile(rb"state/(\d{12})-[0-9a-f]{12}\.json\.gz")
_LENGTH: Final = 4096
"""Bytes to read for an epoch: the start of a journal page, or the end of `run.json`."""


class ParallelMap(Protocol):
    """A possibly parallel `map`."""

    def __call__(self, function: Callable[[T], R], things: Iterable[T], /) -> Iterable[R]:
        """Yield the results in order."""
        ...


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Files of one run."""

    run: str
    file_bytes: int | None
    last_page: int
    epoch: int = 0
    """Epoch of the last write; 0 if unknown."""
    has_result: bool = False


@dataclass(frozen=True, slots=True)
class StateFiles:
    """Files from which a state can be repaired."""

    stored: StoredObject | None
    snapshots: tuple[SnapshotRow, ...]
    runs: tuple[RunTrace, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no file of a state exists."""
        return self.stored is None and not self.snapshots and not self.runs

    @property
    def epoch(self) -> int:
        """Highest epoch in the lockfile or any run; 0 if none."""
        left = _find_epochs(self.stored.body) if self.stored is not None else [0]
        return max(*left, self.run_epoch)

    @property
    def run_epoch(self) -> int:
        """Highest epoch of any run; 0 if none."""
        return self.runs[0].epoch if self.runs else 0

    @property
    def named_serial(self) -> int:
        """Serial of the lockfile's snapshot, even a damaged one; 0 if none."""
        match = _STATE_NAME.search(self.stored.body) if self.stored is not None else None
        return int(match[1]) if match else 0

    @property
    def highest_serial(self) -> int:
        """Highest serial of any snapshot, including damaged ones; 0 if none."""
        return self.snapshots[0].serial if self.snapshots else 0


def read_state_files(store: ObjectStore, at_once: ParallelMap = map) -> StateFiles:
    """Read the state's files: two LISTs, and part of one file per run.

    Raises:
        RetryableError: Another process wrote the lockfile during the read.
    """
    stored = store.get(KEY)
    snapshots = list_snapshots(store)
    runs = tuple(at_once(lambda trace: replace(trace, epoch=_read_epoch(store, trace)), _list_traces(store)))
    again = store.get(KEY)
    if (stored and stored.version) != (again and again.version):
        raise RetryableError(
            f"{store.url}/{KEY} is being written: another apply is running",
            hint="Nothing was changed. Check again when they have finished: reconciler state history",
        )
    return StateFiles(stored, snapshots, tuple(sorted(runs, key=lambda trace: (-trace.epoch, trace.run))))


def _list_traces(store: ObjectStore) -> tuple[RunTrace, ...]:
    sizes: dict[str, int] = {}
    pages: dict[str, int] = {}
    ended: set[str] = set()
    for listed in store.list(RUNS_PREFIX):
        match = _PART.fullmatch(listed.key)
        if match is None:
            continue
        pages.setdefault(match[1], 0)
        if match[2] == "run":
            sizes[match[1]] = listed.size
        elif match[2]:
            ended.add(match[1])
        else:
            pages[match[1]] = max(pages[match[1]], int(match[3]))
    return tuple(RunTrace(run, sizes.get(run), last, has_result=run in ended) for run, last in pages.items())


def _read_epoch(store: ObjectStore, trace: RunTrace) -> int:
    """Return the epoch of the last journal page that is not truncated."""
    for page in range(trace.last_page, max(0, trace.last_page - 2), -1):
        with suppress(MissingObjectError):
            head = store.get_range(journal_key(trace.run, page), 0, _LENGTH)
            if epoch := _find_epochs(head)[0]:
                return epoch
    size = trace.file_bytes or 0
    tail = store.get_range(run_key(trace.run), max(0, size - _LENGTH), _LENGTH) if size else b""
    epoch = _find_epochs(tail)[-1]
    if not epoch and size > _LENGTH:
        file = read_run(store, trace.run)
        epoch = 0 if file is None else file.epoch
    return epoch


def _find_epochs(body: bytes) -> list[int]:
    return [int(match[1]) for match in _EPOCH.finditer(body)] or [0]


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Problems of a state, one sentence each; empty if healthy."""

    problems: tuple[str, ...] = ()
    lockfile: Lockfile | None = None
    is_current: bool = False
    """Whether no newer lockfile existed, so the lease is valid."""

    def check_lease_free(self) -> None:
        """Raise `LeaseError` if a process holds the lease of the newest lockfile."""
        lease = self.lockfile.lease if self.lockfile is not None and self.is_current else None
        if lease is not None and lease.status == "held":
            raise LeaseError(
                f"{lease.who} holds the lease since {lease.since}, run {shorten_run_id(lease.run)}; {self.problems[0]}",
                hint=f"Nothing was changed. If that run is dead: reconciler state unlock {shorten_run_id(lease.run)}",
            )


def find_symptoms(store: ObjectStore, remains: StateFiles, owner: Owner) -> Symptoms:
    """Check lockfile, snapshots and open run of a state."""
    if remains.is_empty:
        return Symptoms()
    if remains.stored is None:
        return Symptoms((f"{store.url}/{KEY} is missing, and the files next to it are not",))
    try:
        lockfile = parse_lockfile(remains.stored, store.url).lockfile
    except NewerFormatError:
        raise
    except UserError as error:
        return Symptoms((error.message,))
    check_owner(Owner(lockfile.workspace, lockfile.environment), owner, store.url)
    old = _explain_outdated(store, lockfile, remains)
    if old is not None:
        return Symptoms((f"{store.url}/{KEY} is an old copy: {old}",), lockfile)
    return Symptoms(_find_broken_files(store, lockfile), lockfile, is_current=True)


def _explain_outdated(store: ObjectStore, lockfile: Lockfile, remains: StateFiles) -> str | None:
    why = prove_outdated(store, lockfile, remains.snapshots)
    if why is not None:
        return f"it says state #{lockfile.serial}, and {why}"
    if remains.run_epoch > lockfile.lease.epoch:
        run = shorten_run_id(remains.runs[0].run)
        return f"its epoch is {lockfile.lease.epoch}, and run {run} wrote under {remains.run_epoch}"
    return None


def _find_broken_files(store: ObjectStore, lockfile: Lockfile) -> tuple[str, ...]:
    problems: list[str] = []
    for look in (read_snapshot_of, read_open_run):
        try:
            look(store, lockfile)
        except NewerFormatError:
            raise
        except UserError as error:
            problems.append(error.message)
    return tuple(problems)


_LINEAGE: Final = re.compile(rb'"lineage":"([^"\\]+)"')
_GZIP: Final = 31


def choose_lineage(store: ObjectStore, remains: StateFiles, lockfile: Lockfile) -> str:
    """Return the lockfile's lineage, or the only lineage of the snapshots if the lockfile names one of them."""
    rows = remains.snapshots
    if lockfile.state is None or lockfile.state.key not in {row.key for row in rows}:
        return lockfile.lineage
    if _read_lineage(store, rows[0]) == lockfile.lineage:
        return lockfile.lineage
    lineages = {lineage for row in rows if (lineage := _read_lineage(store, row)) is not None}
    return lineages.pop() if len(lineages) == 1 else lockfile.lineage


def _read_lineage(store: ObjectStore, row: SnapshotRow) -> str | None:
    try:
        head = zlib.decompressobj(_GZIP).decompress(store.get_range(row.key, 0, _LENGTH), _LENGTH)
    except zlib.error:
        return None
    match = _LINEAGE.search(head)
    return match[1].decode() if match else None
