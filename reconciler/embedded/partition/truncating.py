"""The end of a log cut off: what a head becomes, and what is superfluous then. Nobody writes meanwhile.

Whole pages and parts above the cut are named no more; the part that lies across it is written anew with what lies
below, under a fresh name. One swap of the head does it, under the next epoch; only then is anything deleted, so a
crash leaves orphans to the sweep, and a reader that misses a part looks at the head again and finds the log ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

from reconciler.embedded.partition.entries import Entry, PageRef
from reconciler.embedded.partition.pages import read_page, read_pages
from reconciler.embedded.partition.partfiles import damaged_part, read_part
from reconciler.embedded.partition.parts import PART_BYTES, PartWriter
from reconciler.embedded.partition.removing import delete_named
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.partition.pages import Paged
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Named:
    """Parts that a head or manifest named, and pages with all that is in them."""

    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _Split:
    """What lies below a cut, and what does not."""

    pages: list[PageRef] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    gone_pages: list[PageRef] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    """Pages that lie across: what is left of them is named elsewhere. Each after those below it."""


class Truncation:
    """Cuts one partition's local tier, decided anew for every head found; a lost race reuses what was written."""

    def __init__(self, store: ObjectStore, partition: Partition) -> None:
        """Say of which partition; nothing is read yet."""
        self._store = store
        self._partition = partition
        self._written: dict[tuple[str, int], Entry] = {}
        self._split = _Split()

    def cut(self, head: Head, at: int) -> Head:
        """Return the head as it is once the log ends at `at`, which is at most its end; its epochs stay as they were.

        Raises:
            MissingObjectError: A page, or the part across the cut, is not there.
            DamagedObjectError: That part is damaged.
        """
        split = self._split = self._below(head, at)
        return replace(
            head,
            start=min(head.start, at),
            local_start=min(head.local_start, at),
            end=at,
            uploaded_to=min(head.uploaded_to, at),
            compacted_to=min(head.compacted_to, at),
            pages=tuple(split.pages),
            entries=tuple(split.entries),
            producers=_left_of(head.producers, split),
            transactions={name: one for name, one in head.transactions.items() if one["base"] < at},
            source=_fetched_to(head.source, at),
        )

    def clear(self, *, is_done: bool) -> None:
        """Delete what nobody names once the swap of the last `cut` holds (or, not `is_done`, another one does)."""
        split = self._split if is_done else _Split()
        named = {entry.key for entry in split.entries}
        self._store.delete([entry.key for entry in self._written.values() if entry.key not in named])
        delete_named(self._store, Named(tuple(split.gone_pages), tuple(split.gone)))
        self._store.delete(split.opened)

    def _below(self, head: Head, at: int) -> _Split:
        split = _Split()
        if at <= head.local_start:
            # All that is left lies in object storage, or nothing is.
            split.gone_pages += head.pages
            split.gone += head.entries
            return split
        self._split_pages(head.pages, at, split)
        self._split_entries(head.entries, at, split)
        return split

    def _split_pages(self, pages: Iterable[PageRef], at: int, split: _Split) -> None:
        for page in pages:
            if page.last < at:
                split.pages.append(page)
            elif page.base >= at:
                split.gone_pages.append(page)
            else:
                if page.level:
                    self._split_pages(read_pages(self._store, page), at, split)
                else:
                    self._split_entries(read_page(self._store, page), at, split)
                split.opened.append(page.key)

    def _split_entries(self, entries: Iterable[Entry], at: int, split: _Split) -> None:
        for entry in entries:
            if entry.base < at:
                split.entries.append(entry if entry.last < at else self._rewritten(entry, at))
            if entry.last >= at:
                split.gone.append(entry)

    def _rewritten(self, entry: Entry, at: int) -> Entry:
        """Write what a part has below the cut, its first record at least, under the key it lies under."""
        written = self._written.get((entry.key, at))
        if written is None:
            full_name, number = self._partition.full_name, self._partition.number
            writer = PartWriter(
                self._store, full_name, number, compression="producer", limit=PART_BYTES, kms_key_id=entry.kms_key_id
            )
            found = writer.write_one(read_part(self._store, entry, number, OffsetRange(entry.base, at)))
            if found is None:
                raise damaged_part(self._store, entry, f"it has no record below offset {at}")
            written = self._written[entry.key, at] = replace(
                found, epoch=entry.epoch, txn=entry.txn, is_segment=entry.is_segment, horizon_ms=entry.horizon_ms
            )
        return written


def _fetched_to(source: dict[str, Any] | None, at: int) -> dict[str, Any] | None:
    """Return what a partition keeps of its source: what comes from the cut on is not a copy of that."""
    if source is None or source.get("fetched", at) <= at:
        return source
    return {**source, "fetched": at}


def _left_of(producers: dict[str, Any], split: _Split) -> dict[str, Any]:
    """Return the producers nothing of whose records went: of the others no sequence number is known any more.

    Where a part or page that went does not say whose records it had, that may be anybody.
    """
    if split.gone_pages or any(entry.producer is None for entry in split.gone):
        return {}
    cut = {entry.producer["id"] for entry in split.gone if entry.producer is not None}
    return {name: known for name, known in producers.items() if name not in cut}


def records_within(store: ObjectStore, held: Paged, offsets: OffsetRange, partition: int) -> int:
    """Count the records of a range exactly: by what is kept of parts and pages, and by reading where an end cuts one.

    Raises:
        MissingObjectError: A page, or a part that has to be read, is not there.
    """
    return _counted(store, (*held.pages, *held.entries), offsets, partition)


def _counted(store: ObjectStore, lying: Iterable[PageRef | Entry], offsets: OffsetRange, partition: int) -> int:
    total = 0
    for each in lying:
        cut = OffsetRange(max(each.base, offsets.start), min(each.last + 1, offsets.stop))
        is_within = cut.length == each.last + 1 - each.base
        match each:
            case _ if not cut.length:
                continue
            case PageRef() if is_within:
                total += each.records
            case PageRef():
                below = read_pages(store, each) if each.level else read_page(store, each)
                total += _counted(store, below, cut, partition)
            case Entry() if is_within:
                total += each.digest.records
            case Entry() if each.is_dense:
                total += cut.length
            case Entry():
                total += sum(batch.num_rows for batch in read_part(store, each, partition, cut))
            case _:
                assert_never(each)
    return total
