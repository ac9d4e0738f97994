"""Replace runs of entries in a head or its pages."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.pages import PagedEntries, read_page, read_pages
from reconciler.embedded.catalog.model import RewriteEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, map_names_by_id
from reconciler.embedded.catalog.topic_configs import find_topic_kms_key
from reconciler.embedded.keys import part_key
from reconciler.embedded.segments.head import TAIL
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore


WriteLeaves = Callable[[Sequence[Entry]], list[PageRef]]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Neighbouring entries from `base` to `last`, and the entries that replace them."""

    base: int
    last: int
    fingerprint: str
    """Fingerprint of the replaced keys and their mutable metadata."""
    records: int
    bytes: int
    added: tuple[Entry, ...] = field(hash=False)
    written: tuple[str, ...]
    """Keys of newly written objects."""

    @classmethod
    def of(cls, run: Sequence[Entry], added: Iterable[Entry]) -> Replacement:
        """Return the replacement of `run` by `added`, both oldest first."""
        run_keys, after = {entry.key for entry in run}, tuple(added)
        return cls(
            run[0].base,
            run[-1].last,
            _fingerprint(run),
            sum(entry.digest.records for entry in run),
            sum(entry.bytes for entry in run),
            after,
            tuple(entry.key for entry in after if entry.key not in run_keys),
        )

    def matches(self, entries: Sequence[Entry]) -> bool:
        """Whether the entries at these offsets are unchanged."""
        return _fingerprint(entries) == self.fingerprint


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """Records and stored bytes that were removed or rewritten, and uploaded segments."""

    records: int
    bytes: int
    uploaded: int = 0


_PageOrEntries = PageRef | tuple[Entry, ...]
"""An unopened page, or the live entries of an opened one."""


class RunReplacer:
    """Applies replacements to the entries of a head or manifest."""

    def __init__(
        self, store: ObjectStore, paged: PagedEntries, floor: int, replacements: Iterable[Replacement]
    ) -> None:
        """Drop entries that end below `floor`."""
        self._store = store
        self._floor = floor
        self._runs: dict[Replacement, list[Entry]] = {one: [] for one in replacements}
        self._entries = paged.entries
        self.gone_pages: list[str] = []
        """Keys of replaced pages, lower levels first."""
        self._rows = self._open_pages(paged.pages, _RunIndex(self._runs))
        self.applied = self._match_runs()
        """Replacements whose run is unchanged."""

    @property
    def removed_entries(self) -> list[Entry]:
        """Entries no longer referenced."""
        added_keys = {entry.key for replacement in self.applied for entry in replacement.added}
        return [
            entry for replacement in self.applied for entry in self._runs[replacement] if entry.key not in added_keys
        ]

    def rebuild(self, leaves: WriteLeaves) -> tuple[list[PageRef], tuple[Entry, ...]]:
        """Return pages and entries after the replacements of unchanged runs.

        Neighbouring opened pages are merged; at most `TAIL` entries move to the head.
        """
        runs = _RunIndex(self.applied)
        pages: list[PageRef] = []
        loose: list[Entry] = []
        for row in self._rows:
            match row:
                case PageRef():
                    pages += [*(leaves(loose) if loose else ()), row]
                    loose = []
                case tuple():
                    loose += _replace_runs(row, runs)
                case _:
                    assert_never(row)
        entries = _replace_runs(self._entries, runs)
        if len(loose) + len(entries) <= TAIL:
            loose, entries = [], [*loose, *entries]
        return [*pages, *(leaves(loose) if loose else ())], tuple(entries)

    def _open_pages(self, pages: Iterable[PageRef], runs: _RunIndex) -> list[_PageOrEntries]:
        rows: list[_PageOrEntries] = []
        for page in pages:
            if runs.find_at(page) is None:
                rows.append(page)
                continue
            if page.level:
                rows += self._open_pages(read_pages(self._store, page), runs)
            else:
                rows.append(tuple(entry for entry in read_page(self._store, page) if entry.last >= self._floor))
            self.gone_pages.append(page.key)
        return rows

    def _match_runs(self) -> tuple[Replacement, ...]:
        runs = _RunIndex(self._runs)
        for row in [*self._rows, self._entries]:
            for entry in row if isinstance(row, tuple) else ():
                replacement = runs.find_at(entry)
                if replacement is not None:
                    self._runs[replacement].append(entry)
        return tuple(
            replacement
            for replacement, run in self._runs.items()
            if self._is_above_floor(replacement) and replacement.matches(run)
        )

    def _is_above_floor(self, replacement: Replacement) -> bool:
        return all(entry.last >= self._floor for entry in replacement.added)


class _RunIndex:
    def __init__(self, replacements: Iterable[Replacement]) -> None:
        self._sorted = sorted(replacements, key=lambda replacement: replacement.base)
        self._lasts = [replacement.last for replacement in self._sorted]

    def find_at(self, item: Entry | PageRef) -> Replacement | None:
        place = bisect_left(self._lasts, item.base)
        if place == len(self._sorted) or self._sorted[place].base > item.last:
            return None
        return self._sorted[place]


def _replace_runs(entries: Iterable[Entry], runs: _RunIndex) -> list[Entry]:
    """Put each replacement at the position of its run's last entry."""
    after: list[Entry] = []
    for entry in entries:
        replacement = runs.find_at(entry)
        if replacement is None:
            after.append(entry)
        elif entry.last == replacement.last:
            after += replacement.added
    return after


def _fingerprint(entries: Iterable[Entry]) -> str:
    # Entries may change under the same key: transactions end, and compaction sets tombstone horizons.
    lines = (f"{entry.key} {entry.txn} {entry.horizon_ms}" for entry in entries)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class AppendEncryption:
    """Re-encrypts appended parts if the topic's KMS key changed; retries reuse copies.

    The catalog has a new key before heads are rewritten, so either the append or the rewrite notices the other.
    """

    def __init__(self, store: ObjectStore, catalog: CatalogRegister, topic_id: str, partition: int) -> None:
        self._store = store
        self._catalog = catalog
        self._topic_id = topic_id
        self._partition = partition
        self._copies: dict[tuple[str, str | None], str] = {}

    def encrypt_appended(self, before: Head | None, after: Head) -> Head:
        """Return the head with new entries under the current key."""
        if before is None:
            return replace(after, kms_key_id=after.entries[0].kms_key_id) if after.entries else after
        if all(entry.kms_key_id == before.kms_key_id for entry in after.entries):
            return after
        catalog = self._catalog.read()
        name = map_names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is None:
            return after
        key = find_topic_kms_key(catalog, name)
        if key != before.kms_key_id:
            self._mark_rewrite(catalog, key)
        previous_keys = {entry.key for entry in before.entries}
        entries = (
            entry if entry.key in previous_keys or entry.kms_key_id == key else self._copy_under_key(entry, name, key)
            for entry in after.entries
        )
        return replace(after, entries=tuple(entries))

    def mark_outdated_key(self, catalog: Catalog, kms_key_id: str | None) -> None:
        """Mark the topic for a rewrite if a new head's key is outdated; `catalog` was read after the swap."""
        name = map_names_by_id(catalog, [self._topic_id]).get(self._topic_id)
        if name is not None and find_topic_kms_key(catalog, name) != kms_key_id:
            self._mark_rewrite(catalog, find_topic_kms_key(catalog, name))

    def _mark_rewrite(self, catalog: Catalog, kms_key_id: str | None) -> None:
        if self._topic_id in catalog.rewrites:
            return

        def decide(draft: Draft) -> None:
            name = map_names_by_id(draft, [self._topic_id]).get(self._topic_id)
            if name is not None and find_topic_kms_key(draft, name) == kms_key_id:
                draft.put_rewrite(self._topic_id, RewriteEntry(name))

        self._catalog.commit(decide)

    def _copy_under_key(self, entry: Entry, full_name: str, kms_key_id: str | None) -> Entry:
        copied = self._copies.get((entry.key, kms_key_id))
        if copied is None:
            copied = self._copies[entry.key, kms_key_id] = part_key(full_name, self._partition)
            self._store.copy_from(copied, self._store, entry.key, kms_key_id=kms_key_id)
        return replace(entry, key=copied, kms_key_id=kms_key_id)
