"""Other objects in the place of parts, at the same offsets: one swap replaces exactly the entries that were read.

Entries are replaced where they lie, in the head or in pages: pages that are touched are written anew with what is left
of them. After a lost race the entries are found again or, where somebody else replaced or removed them, left alone.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from reconciler.embedded.partition.entries import STALE_MS, Entry, PageRef
from reconciler.embedded.partition.headswaps import swap_head
from reconciler.embedded.partition.pages import read_page, read_pages
from reconciler.embedded.partition.spilling import TAIL, Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Replacement:
    """A run of neighbouring entries, `base` to `last`, and what takes its place: as many entries, fewer, or none."""

    base: int
    last: int
    fingerprint: str
    """Of the keys of the run."""
    records: int
    bytes: int
    added: tuple[Entry, ...] = field(hash=False)
    written: tuple[str, ...]
    """The objects among `added` that the run did not have."""

    @classmethod
    def of(cls, run: Sequence[Entry], added: Iterable[Entry]) -> Replacement:
        """Say what takes the place of a run; both oldest first."""
        there, after = {entry.key for entry in run}, tuple(added)
        return cls(
            run[0].base,
            run[-1].last,
            _fingerprint(run),
            sum(entry.digest.records for entry in run),
            sum(entry.bytes for entry in run),
            after,
            tuple(entry.key for entry in after if entry.key not in there),
        )

    def fits(self, found: Sequence[Entry]) -> bool:
        """Tell whether what was found at its offsets is the run."""
        return _fingerprint(found) == self.fingerprint


@dataclass(frozen=True, slots=True)
class Gain:
    """What a publication did: of a compaction, what it removed; else, what was written anew."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was written of one partition: durable, and named by nobody yet. Picklable."""

    partition: Partition
    replacements: tuple[Replacement, ...]
    compacted_to: int | None = None
    """Of a compaction: how far it went. It is published whole or not at all."""
    changes_key: bool = False
    """Of a rewrite: it brings parts under another key; what else is written has to lie under the one that holds."""

    def is_under(self, kms_key_id: str | None) -> bool:
        """Tell whether all that was written lies under the key its partition was brought under last."""
        written = {key for one in self.replacements for key in one.written}
        added = (entry for one in self.replacements for entry in one.added if entry.key in written)
        return all(entry.kms_key_id == kms_key_id for entry in added)

    def gain(self, holding: Iterable[Replacement]) -> Gain:
        """Sum up what holds."""
        before = [one for one in holding if one.written or self.compacted_to is not None]
        after = [entry for one in before for entry in one.added] if self.compacted_to is not None else []
        records = sum(one.records for one in before) - sum(entry.digest.records for entry in after)
        return Gain(records, sum(one.bytes for one in before) - sum(entry.bytes for entry in after))


@contextmanager
def whole_or_gone(store: ObjectStore) -> Iterator[list[Replacement]]:
    """Give a list for what is written; where the block fails, what is in it is deleted: nobody will name it."""
    done: list[Replacement] = []
    try:
        yield done
    except BaseException:
        store.delete([key for one in done for key in one.written])
        raise


def publish_rewritten(
    store: ObjectStore, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> Gain | None:
    """Put what was written in its place by one swap, then delete what has become superfluous.

    `put_ms`: since when it may have lain there, by the clock `now_ms`. Return what came of it; `None`: nothing.

    Raises:
        MissingObjectError: A page is not there.
        LostRaceError: Others were faster every time.
    """
    change: _Change | None = None
    written: list[str] = []

    def changed(head: Head) -> Head | None:
        nonlocal change
        change = None
        if now_ms() - put_ms > STALE_MS or not (rewritten.changes_key or rewritten.is_under(head.kms_key_id)):
            return None
        found = _Change(store, rewritten, head)
        after = found.after()
        written.extend(found.written)
        if after is not None:
            change = found
        return after

    if not swap_head(store, rewritten.partition, changed):
        change = None  # What an earlier attempt decided does not hold.
    holding = () if change is None else change.holding
    named = () if change is None else change.written
    dropped = [key for one in rewritten.replacements if one not in holding for key in one.written]
    unnamed = [key for key in written if key not in named]
    store.delete([*(() if change is None else change.superfluous), *unnamed, *dropped])
    return None if change is None else rewritten.gain(holding)


class _Runs:
    """Replacements by where they lie: they never overlap."""

    def __init__(self, replacements: Iterable[Replacement]) -> None:
        self._sorted = sorted(replacements, key=lambda one: one.base)
        self._lasts = [one.last for one in self._sorted]

    def at(self, lying: Entry | PageRef) -> Replacement | None:
        """Return the first replacement that has something in an entry or page."""
        place = bisect_left(self._lasts, lying.base)
        if place == len(self._sorted) or self._sorted[place].base > lying.last:
            return None
        return self._sorted[place]


_Row = PageRef | tuple[Entry, ...]
"""A page nothing is replaced in, or what is live in one that was opened."""


class _Change:
    """What becomes of one head that was found."""

    def __init__(self, store: ObjectStore, rewritten: Rewritten, head: Head) -> None:
        self._store = store
        self._rewritten = rewritten
        self._head = head
        self._gone_pages: list[str] = []
        self._spill = Spill(store, rewritten.partition.topic_id, rewritten.partition.number)
        self._found: dict[Replacement, list[Entry]] = {one: [] for one in rewritten.replacements}
        self.holding: tuple[Replacement, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """The pages written for it."""
        return self._spill.keys

    @property
    def superfluous(self) -> list[str]:
        """What is named no more once it holds: parts, then pages, each after those below it."""
        kept = {entry.key for one in self.holding for entry in one.added}
        parts = [entry.key for one in self.holding for entry in self._found[one] if entry.key not in kept]
        return parts + self._gone_pages

    def after(self) -> Head | None:
        """Return the head as it shall be; `None`: nothing of it is to be changed."""
        rows = self._opened(self._head.pages, _Runs(self._found))
        self.holding = self._held([*rows, self._head.entries])
        compacted_to = self._rewritten.compacted_to
        if compacted_to is None:
            return self._rebuilt(rows) if self.holding else None
        is_whole = len(self.holding) == len(self._rewritten.replacements)
        if not is_whole or compacted_to > self._head.end:
            return None
        head = self._rebuilt(rows) if self.holding else self._head
        return replace(head, compacted_to=max(head.compacted_to, compacted_to))

    def _opened(self, pages: Iterable[PageRef], runs: _Runs) -> list[_Row]:
        """Return the pages in order, those that hold something of a run opened."""
        rows: list[_Row] = []
        for page in pages:
            if runs.at(page) is None:
                rows.append(page)
                continue
            if page.level:
                rows += self._opened(read_pages(self._store, page), runs)
            else:
                rows.append(tuple(entry for entry in read_page(self._store, page) if entry.last >= self._head.start))
            self._gone_pages.append(page.key)
        return rows

    def _held(self, rows: Iterable[_Row]) -> tuple[Replacement, ...]:
        """Return the replacements whose run lies there as it was read."""
        runs = _Runs(self._found)
        for row in rows:
            for entry in row if isinstance(row, tuple) else ():
                one = runs.at(entry)
                if one is not None:
                    self._found[one].append(entry)
        return tuple(one for one, run in self._found.items() if one.base >= self._head.start and one.fits(run))

    def _rebuilt(self, rows: Iterable[_Row]) -> Head:
        """Return the head with runs replaced; neighbouring pages that were opened become as few as possible."""
        runs = _Runs(self.holding)
        pages: list[PageRef] = []
        loose: list[Entry] = []
        for row in rows:
            match row:
                case PageRef():
                    pages += [*self._leaves(loose), row]
                    loose = []
                case tuple():
                    loose += _replaced(row, runs)
                case _:
                    assert_never(row)
        entries = _replaced(self._head.entries, runs)
        if len(loose) + len(entries) <= TAIL:
            loose, entries = [], [*loose, *entries]
        packed = self._spill.packed([*pages, *self._leaves(loose)])
        return replace(self._head, pages=packed, entries=tuple(entries))

    def _leaves(self, entries: Sequence[Entry]) -> list[PageRef]:
        return [self._spill.leaf(entries[at : at + TAIL]) for at in range(0, len(entries), TAIL)]


def _replaced(entries: Iterable[Entry], runs: _Runs) -> list[Entry]:
    """Return entries without those of runs; what takes a run's place stands where its last entry stood."""
    after: list[Entry] = []
    for entry in entries:
        one = runs.at(entry)
        if one is None:
            after.append(entry)
        elif entry.last == one.last:
            after += one.added
    return after


def _fingerprint(entries: Iterable[Entry]) -> str:
    return hashlib.sha256("\n".join(entry.key for entry in entries).encode()).hexdigest()
