"""Diagnose a state: read what there is, and say what is wrong with it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from reconciler.errors import LeaseError, MissingObjectError, NewerFormatError, RetryableError, UserError
from reconciler.state.journal import journal_key, read_open_run, read_run, run_key, why_outdated
from reconciler.state.lockfile import KEY, RUNS_PREFIX, Lockfile, Owner, check_owner, parse_lockfile
from reconciler.state.snapshots import SnapshotRow, history, snapshot_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Stored


T = TypeVar("T")
R = TypeVar("R")

_PART: Final = re.compile(rf"{RUNS_PREFIX}([^/]+)/(?:(run|result)|journal/(\d{{6,}}))\.json")
_EPOCH: Final = re.compile(rb'"epoch"\s*:\s*(\d{1,15})\b')
_NAMED: Final = re.compile(rb"state/(\d{12})-[0-9a-f]{12}\.json\.gz")
_LENGTH: Final = 4096
"""Bytes of a file in which its epoch stands: at the head of a journal's page, near the end of `run.json`."""


class AtOnce(Protocol):
    """Calls a function with many things, side by side where it can; like `map`."""

    def __call__(self, function: Callable[[T], R], things: Iterable[T], /) -> Iterable[R]:
        """Yield the results in the order of the things."""
        ...


@dataclass(frozen=True, slots=True)
class RunTrace:
    """What lies in the folder of one run."""

    run: str
    file_bytes: int | None
    """Of its `run.json`; `None` where that is gone."""
    last_page: int
    """Its journal's last object; 0 where it wrote none."""
    epoch: int = 0
    """The one it last wrote under; 0 where it does not say."""
    has_result: bool = False
    """Whether it left word of its end."""


@dataclass(frozen=True, slots=True)
class Remains:
    """Everything a repair looks at."""

    stored: Stored | None
    """The lockfile, as it is."""
    snapshots: tuple[SnapshotRow, ...]
    """Newest first."""
    runs: tuple[RunTrace, ...]
    """The latest first."""

    @property
    def is_nothing(self) -> bool:
        """Tell whether nothing was ever written here."""
        return self.stored is None and not self.snapshots and not self.runs

    @property
    def epoch(self) -> int:
        """The highest in anything that is left; 0 where nothing says one."""
        left = _epochs_in(self.stored.body) if self.stored is not None else [0]
        return max(*left, self.run_epoch)

    @property
    def run_epoch(self) -> int:
        """The highest of any run."""
        return self.runs[0].epoch if self.runs else 0

    @property
    def named(self) -> int:
        """The serial of the snapshot that the lockfile names, damaged or not; 0 where it names none."""
        found = _NAMED.search(self.stored.body) if self.stored is not None else None
        return int(found[1]) if found else 0

    @property
    def top(self) -> int:
        """The highest serial there is, damaged or not."""
        return self.snapshots[0].serial if self.snapshots else 0


def look_at(store: ObjectStore, at_once: AtOnce = map) -> Remains:
    """Return what there is: two LISTs, and a piece of one file for each run.

    Raises:
        RetryableError: The lockfile changed meanwhile: whoever writes it is well.
    """
    stored = store.get(KEY)
    snapshots = history(store)
    runs = tuple(at_once(lambda trace: replace(trace, epoch=_epoch_of(store, trace)), _traces(store)))
    again = store.get(KEY)
    if (stored and stored.version) != (again and again.version):
        raise RetryableError(
            f"{store.url}/{KEY} is being written: another apply is running",
            hint="Nothing was changed. Look again when they have finished: reconciler state history",
        )
    return Remains(stored, snapshots, tuple(sorted(runs, key=lambda trace: (-trace.epoch, trace.run))))


def _traces(store: ObjectStore) -> tuple[RunTrace, ...]:
    sizes: dict[str, int] = {}
    pages: dict[str, int] = {}
    ended: set[str] = set()
    for listed in store.list(RUNS_PREFIX):
        found = _PART.fullmatch(listed.key)
        if found is None:
            continue
        pages.setdefault(found[1], 0)
        if found[2] == "run":
            sizes[found[1]] = listed.size
        elif found[2]:
            ended.add(found[1])
        else:
            pages[found[1]] = max(pages[found[1]], int(found[3]))
    return tuple(RunTrace(run, sizes.get(run), last, has_result=run in ended) for run, last in pages.items())


def _epoch_of(store: ObjectStore, trace: RunTrace) -> int:
    """Return the epoch a run last wrote under; 0 where it does not say. Plans may be large: few files are read whole.

    A last page may be cut off, where its writer was killed: then the one before it tells, or the run's file.
    """
    for page in range(trace.last_page, max(0, trace.last_page - 2), -1):
        with suppress(MissingObjectError):
            head = store.get_range(journal_key(trace.run, page), 0, _LENGTH)
            if epoch := _epochs_in(head)[0]:
                return epoch
    size = trace.file_bytes or 0
    tail = store.get_range(run_key(trace.run), max(0, size - _LENGTH), _LENGTH) if size else b""
    epoch = _epochs_in(tail)[-1]
    if not epoch and size > _LENGTH:  # so much was typed that it stands before that
        file = read_run(store, trace.run)
        epoch = 0 if file is None else file.epoch
    return epoch


def _epochs_in(body: bytes) -> list[int]:
    return [int(found[1]) for found in _EPOCH.finditer(body)] or [0]


# What is wrong with a lockfile, or with what it names: found by reading, and nothing is changed.


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What is wrong, each in a sentence; nothing where all is well."""

    problems: tuple[str, ...] = ()
    lockfile: Lockfile | None = None
    """As it is, where it can be read."""
    is_current: bool = False
    """Whether what it says of the lease is so: it is no old copy."""

    def check_unheld(self) -> None:
        """Go on where no process holds the lease.

        Raises:
            LeaseError: Somebody does, and the lockfile is no old copy.
        """
        lease = self.lockfile.lease if self.lockfile is not None and self.is_current else None
        if lease is not None and lease.status == "held":
            raise LeaseError(
                f"{lease.who} holds the lease since {lease.since}, run {lease.run}; {self.problems[0]}",
                hint=f"Nothing was changed. If that run is dead: reconciler state unlock {lease.run}",
            )


def find_symptoms(store: ObjectStore, remains: Remains, owner: Owner) -> Symptoms:
    """Return what is wrong with a state.

    Raises:
        UserError: It is another's, or of a newer version.
    """
    if remains.is_nothing:
        return Symptoms()
    if remains.stored is None:
        return Symptoms((f"{store.url}/{KEY} is gone, and what lies beside it is not",))
    try:
        lockfile = parse_lockfile(remains.stored, store.url).lockfile
    except NewerFormatError:
        raise
    except UserError as error:
        return Symptoms((error.message,))
    check_owner(Owner(lockfile.workspace, lockfile.environment), owner, store.url)
    old = _age_of(store, lockfile, remains)
    if old is not None:
        return Symptoms((f"{store.url}/{KEY} is an old copy: {old}",), lockfile)
    return Symptoms(_broken(store, lockfile), lockfile, is_current=True)


def _age_of(store: ObjectStore, lockfile: Lockfile, remains: Remains) -> str | None:
    """Return what proves that a lockfile is one that was put back."""
    why = why_outdated(store, lockfile, remains.snapshots)
    if why is not None:
        return f"it says state #{lockfile.serial}, and {why}"
    if remains.run_epoch > lockfile.lease.epoch:
        return f"its epoch is {lockfile.lease.epoch}, and run {remains.runs[0].run} wrote under {remains.run_epoch}"
    return None


def _broken(store: ObjectStore, lockfile: Lockfile) -> tuple[str, ...]:
    """Return what is wrong with what a lockfile names."""
    problems: list[str] = []
    for look in (snapshot_of, read_open_run):
        try:
            look(store, lockfile)
        except NewerFormatError:
            raise
        except UserError as error:
            problems.append(error.message)
    return tuple(problems)


# Of which state a lockfile is, where it and its snapshots disagree.


_LINEAGE: Final = re.compile(rb'"lineage":"([^"\\]+)"')
"""Bytes of a snapshot that are read: its keys are sorted, so the lineage stands near the beginning."""
_GZIP: Final = 31


def lineage_to_keep(store: ObjectStore, remains: Remains, lockfile: Lockfile) -> str:
    """Return the lineage that a lockfile says, or the one of every snapshot, where it names one of them.

    A lockfile that names no snapshot of these, beside others' lineage, is another state's: nothing is to be guessed.
    """
    rows = remains.snapshots
    if lockfile.state is None or lockfile.state.key not in {row.key for row in rows}:
        return lockfile.lineage
    if _lineage_of(store, rows[0]) == lockfile.lineage:
        return lockfile.lineage
    said = {found for row in rows if (found := _lineage_of(store, row)) is not None}
    return said.pop() if len(said) == 1 else lockfile.lineage


def _lineage_of(store: ObjectStore, row: SnapshotRow) -> str | None:
    """Return which state a snapshot says it is of, by its first bytes; `None` where they cannot be read."""
    try:
        head = zlib.decompressobj(_GZIP).decompress(store.get_range(row.key, 0, _LENGTH), _LENGTH)
    except zlib.error:
        return None
    found = _LINEAGE.search(head)
    return found[1].decode() if found else None
