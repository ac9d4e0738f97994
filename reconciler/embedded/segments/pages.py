"""Pages: older entries of a head in immutable objects.

A head keeps its newest entries itself. What is older lies in pages of entries; when there are many of those, the
oldest become a page of pages, and so on: a tree whose roots stand in the head, oldest first. The head of a hundred
thousand parts is hardly larger than that of a hundred, and each is found in a few requests. `spilling` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import orjson

from reconciler.embedded.keys import page_key
from reconciler.embedded.objects import damaged, missing_offsets, parsed
from reconciler.embedded.segments.entries import Entry, PageRef
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import OffsetRange


Json = dict[str, Any]
T = TypeVar("T")

_FORMAT: Final = "reconciler.page/1"


class Paged(Protocol):
    """What names parts of a log: its newest entries itself, the older ones in pages. A head, or a remote manifest."""

    @property
    def pages(self) -> tuple[PageRef, ...]:
        """What lies in pages, oldest first."""
        ...

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What it names itself, oldest first, all of it after the pages."""
        ...


def entries_page(entries: Sequence[Entry]) -> bytes:
    """Return the body of a page of entries."""
    return orjson.dumps({"format": _FORMAT, "entries": [entry.to_json() for entry in entries]})


def pages_page(pages: Sequence[PageRef]) -> bytes:
    """Return the body of a page of pages."""
    return orjson.dumps({"format": _FORMAT, "pages": [page.to_json() for page in pages]})


def read_page(store: ObjectStore, page: PageRef) -> tuple[Entry, ...]:
    """Return the entries of a page of level 0, oldest first.

    Raises:
        MissingObjectError: It is not there.
        UserError: It is damaged, or of a newer format.
    """
    return _read(store, page, lambda kept: tuple(map(Entry.from_json, kept["entries"])))


def read_pages(store: ObjectStore, page: PageRef) -> tuple[PageRef, ...]:
    """Return what a page of a higher level names, oldest first.

    Raises:
        MissingObjectError: It is not there.
        UserError: It is damaged, or of a newer format.
    """
    return _read(store, page, lambda kept: tuple(map(PageRef.from_json, kept["pages"])))


def all_pages(store: ObjectStore, head: Paged, *, skips_missing: bool = False) -> Iterator[PageRef]:
    """Yield every page below a head, each after those it names. Reads only pages of pages.

    `skips_missing`: of a page that is gone, what it named is left out; for a deletion that is done again.
    """
    return _pages(store, head.pages, skips_missing=skips_missing)


def all_entries(store: ObjectStore, head: Paged, *, skips_missing: bool = False) -> Iterator[Entry]:
    """Yield every entry of a head, oldest first; also those no reader may see."""
    for page in all_pages(store, head, skips_missing=skips_missing):
        if page.level == 0:
            try:
                entries = read_page(store, page)
            except MissingObjectError:
                if not skips_missing:
                    raise
            else:
                yield from entries
    yield from head.entries


def entries_within(
    store: ObjectStore, head: Paged, offsets: OffsetRange, *, since_ms: int | None = None
) -> Iterator[Entry]:
    """Yield the entries with an offset in a range, oldest first; only the pages it touches are read.

    `since_ms`: only entries that have a record at or after that time.
    """

    def is_wanted(lying: PageRef | Entry) -> bool:
        touches = lying.last >= offsets.start and lying.base < offsets.stop
        return touches and (since_ms is None or lying.max_ts >= since_ms)

    yield from _wanted(store, head.pages, is_wanted)
    yield from filter(is_wanted, head.entries)


def _wanted(
    store: ObjectStore, pages: Iterable[PageRef], is_wanted: Callable[[PageRef | Entry], bool]
) -> Iterator[Entry]:
    for page in filter(is_wanted, pages):
        if page.level:
            yield from _wanted(store, read_pages(store, page), is_wanted)
        else:
            yield from filter(is_wanted, read_page(store, page))


def _pages(store: ObjectStore, pages: Iterable[PageRef], *, skips_missing: bool) -> Iterator[PageRef]:
    for page in pages:
        if page.level:
            try:
                below = read_pages(store, page)
            except MissingObjectError:
                if not skips_missing:
                    raise
            else:
                yield from _pages(store, below, skips_missing=skips_missing)
        yield page


def _read(store: ObjectStore, page: PageRef, read: Callable[[Json], T]) -> T:
    stored = store.get(page.key)
    if stored is None:
        raise missing_offsets(store, page.key, page.base, page.last)
    content = parsed(store, page.key, stored.body)
    if content.get("format") != _FORMAT:
        raise damaged(store, page.key, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    try:
        return read(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(store, page.key, f"{type(error).__name__}: {error}") from error


# Spilling: a head that has grown gives its oldest entries to a page, and its oldest pages to a page of pages.


TAIL: Final = 64
"""Entries a head keeps; above, the older half goes to a page at once, not one by one."""
BRANCHES: Final = 16
"""Pages a page of pages names; a head keeps at most twice as many of each level."""


class Spill:
    """Writes pages of one partition. One for each change of its head: a lost race reuses what it wrote."""

    def __init__(
        self, store: ObjectStore, topic_id: str, partition: int, known: dict[bytes, PageRef] | None = None
    ) -> None:
        """Name the partition; nothing is written yet. `known`: what all tries of the change wrote, by content."""
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._known = {} if known is None else known
        self._written: dict[bytes, PageRef] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The pages written so far, or taken from those that are known."""
        return tuple(page.key for page in self._written.values())

    def spilled(self, head: Head) -> Head:
        """Return the head with few entries and few pages. What is not stable stays: an abort takes it from the head."""
        if len(head.entries) <= TAIL:
            return head
        stable = head.bounds.stable
        settled = next((at for at, entry in enumerate(head.entries) if entry.last >= stable), len(head.entries))
        count = min(settled, len(head.entries) - TAIL // 2)
        if count < TAIL // 2:
            return head
        oldest = head.entries[:count]
        leaves = [self.leaf(oldest[at : at + TAIL]) for at in range(0, count, TAIL)]
        return replace(head, pages=self.packed([*head.pages, *leaves]), entries=head.entries[count:])

    def leaf(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page of entries."""
        return self._page(entries_page(entries), lambda key: PageRef.of(key, entries))

    def branch(self, pages: Sequence[PageRef]) -> PageRef:
        """Write a page of pages."""
        return self._page(pages_page(pages), lambda key: PageRef.over(key, pages))

    def packed(self, pages: Sequence[PageRef]) -> tuple[PageRef, ...]:
        """Return the pages, those of each level that are too many gathered below one of the next, oldest first."""
        packed, level = list(pages), 0
        while any(page.level >= level for page in packed):
            while sum(page.level == level for page in packed) > 2 * BRANCHES:
                first = next(at for at, page in enumerate(packed) if page.level <= level)
                packed[first : first + BRANCHES] = [self.branch(packed[first : first + BRANCHES])]
            level += 1
        return tuple(packed)

    def _page(self, body: bytes, of: Callable[[str], PageRef]) -> PageRef:
        page = self._known.get(body)
        if page is None:
            page = of(page_key(self._topic_id, self._partition))
            self._store.put(page.key, body)
            self._known[body] = page
        self._written[body] = page
        return page
