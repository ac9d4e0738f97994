"""What there is of a state: its lockfile, its snapshots, and which run came last. `repair` judges it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from reconciler.errors import RetryableError
from reconciler.state.journal import journal_key
from reconciler.state.lockfile import KEY, RUNS_PREFIX
from reconciler.state.runs import run_key
from reconciler.state.snapshots import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reconciler.objectstore.base import ObjectStore, Stored
    from reconciler.state.snapshots import SnapshotRow

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
            f"{store.url}/{KEY} is being written: somebody is applying",
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
    """Return the epoch a run last wrote under; 0 where it does not say. Reads no file whole: plans may be large."""
    if trace.last_page:
        head = store.get_range(journal_key(trace.run, trace.last_page), 0, _LENGTH)
        return next(iter(_epochs_in(head)), 0)
    size = trace.file_bytes or 0
    tail = store.get_range(run_key(trace.run), max(0, size - _LENGTH), _LENGTH) if size else b""
    return next(reversed(_epochs_in(tail)), 0)


def _epochs_in(body: bytes) -> list[int]:
    return [int(found[1]) for found in _EPOCH.finditer(body)] or [0]
