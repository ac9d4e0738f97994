"""Replace runs of entries in a head or its pages.

Pages that are touched are written anew with what is left of them; those that are not stay as they are.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.pages import Paged, read_page, read_pages
from reconciler.embedded.catalog.model import RewriteEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, names_by_id
from reconciler.embedded.catalog.topic_configs import key_of
from reconciler.embedded.keys import part_key
from reconciler.embedded.segments.head import TAIL

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore


Leaves = Callable[[Sequence[Entry]], list[PageRef]]
"""Writes entries to pages, oldest first, at least one a page."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A run of neighbouring entries, `base` to `last`, and what takes its place: as many entries, fewer, or none."""

    base: int
    last: int
    fingerprint: str
    """Of the keys of the run, and of what others may have said of it since."""
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
    uploaded: int = 0
    """Segments that object storage has now, and had not before."""


_Row = PageRef | tuple[Entry, ...]
"""A page nothing is replaced in, or what is live in one that was opened."""


class Rebuilding:
    """What becomes of one head or manifest that was found."""

    def __init__(self, store: ObjectStore, found: Paged, floor: int, replacements: Iterable[Replacement]) -> None:
        """Look where the runs lie; what lies wholly below `floor` is named no more.

        Raises:
            MissingObjectError: A page is not there.
        """
        self._store = store
        self._floor = floor
        self._found: dict[Replacement, list[Entry]] = {one: [] for one in replacements}
        self._entries = found.entries
        self.gone_pages: list[str] = []
        """The pages that are written anew: superfluous, each after those below it."""
        self._rows = self._opened(found.pages, _Runs(self._found))
        self.holding = self._held()
        """The replacements whose run lies there as it was read."""

    @property
    def replaced(self) -> list[Entry]:
        """What is named no more once it holds."""
        kept = {entry.key for one in self.holding for entry in one.added}
        return [entry for one in self.holding for entry in self._found[one] if entry.key not in kept]

    def rebuilt(self, leaves: Leaves) -> tuple[list[PageRef], tuple[Entry, ...]]:
        """Return pages and entries with the runs that hold replaced; neighbouring opened pages become fewer.

        At most `TAIL` entries are taken back from pages.
        """
        runs = _Runs(self.holding)
        pages: list[PageRef] = []
        loose: list[Entry] = []
        for row in self._rows:
            match row:
                case PageRef():
                    pages += [*(leaves(loose) if loose else ()), row]
                    loose = []
                case tuple():
                    loose += _replaced(row, runs)
                case _:
                    assert_never(row)
        entries = _replaced(self._entries, runs)
        if len(loose) + len(entries) <= TAIL:
            loose, entries = [], [*loose, *entries]
        return [*pages, *(leaves(loose) if loose else ())], tuple(entries)

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
                rows.append(tuple(entry for entry in read_page(self._store, page) if entry.last >= self._floor))
            self.gone_pages.append(page.key)
        return rows

    def _held(self) -> tuple[Replacement, ...]:
        runs = _Runs(self._found)
        for row in [*self._rows, self._entries]:
            for entry in row if isinstance(row, tuple) else ():
                one = runs.at(entry)
                if one is not None:
                    self._found[one].append(entry)
        return tuple(one for one, run in self._found.items() if self._is_left(one) and one.fits(run))

    def _is_left(self, one: Replacement) -> bool:
        """Tell whether nothing that takes the place of a run lies wholly below the floor: it may have risen since."""
        return all(entry.last >= self._floor for entry in one.added)


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
    # A transaction may have ended, and a cleaning may have set when tombstones may go, under the same key.
    said = (f"{entry.key} {entry.txn} {entry.horizon_ms}" for entry in entries)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


# What an append brings lies under the key its topic had when it was written: here it is seen that it still has it.


class Rekeying:
    """One append to one partition; a lost race reuses what it copied.

    A head says under which key all of it was brought last. Where what is added lies under that key too, nothing is
    asked; else the catalog tells which holds. Whoever changes a key commits that first and goes through the heads
    then, so one of both sees the other.
    """

    def __init__(self, store: ObjectStore, catalog: CatalogRegister, topic_id: str, partition: int) -> None:
        self._store = store
        self._catalog = catalog
        self._topic_id = topic_id
        self._partition = partition
        self._copied: dict[tuple[str, str | None], str] = {}

    def agreed(self, before: Head | None, after: Head) -> Head:
        """Return the head with what is new in it under the key that holds; a new head is confirmed once it is there."""
        if before is None:
            return replace(after, kms_key_id=after.entries[0].kms_key_id) if after.entries else after
        if all(entry.kms_key_id == before.kms_key_id for entry in after.entries):
            return after
        catalog = self._catalog.read()
        name = names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is None:
            return after
        key = key_of(catalog, name)
        if key != before.kms_key_id:
            self._mark(catalog, key)
        there = {entry.key for entry in before.entries}
        entries = (
            entry if entry.key in there or entry.kms_key_id == key else self._under(entry, name, key)
            for entry in after.entries
        )
        return replace(after, entries=tuple(entries))

    def confirm(self, catalog: Catalog, kms_key_id: str | None) -> None:
        """See that the key a head was made under still holds, by a catalog read after the head was there."""
        name = names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is not None and key_of(catalog, name) != kms_key_id:
            self._mark(catalog, key_of(catalog, name))

    def _mark(self, catalog: Catalog, kms_key_id: str | None) -> None:
        """Have the topic brought under its key, where somebody died before he saw that it is not."""
        if self._topic_id in catalog.rewrites:
            return

        def decide(draft: Draft) -> None:
            name = names_by_id(draft, [self._topic_id]).get(self._topic_id)
            if name is not None and key_of(draft, name) == kms_key_id:
                draft.put_rewrite(self._topic_id, RewriteEntry(name))

        self._catalog.commit(decide)

    def _under(self, entry: Entry, full_name: str, kms_key_id: str | None) -> Entry:
        copied = self._copied.get((entry.key, kms_key_id))
        if copied is None:
            copied = self._copied[entry.key, kms_key_id] = part_key(full_name, self._partition)
            self._store.copy_in(copied, self._store, entry.key, kms_key_id=kms_key_id)
        return replace(entry, key=copied, kms_key_id=kms_key_id)
