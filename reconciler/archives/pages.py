"""Pages: immutable objects with older entries of a head or manifest.

A head has its newest entries, and references to pages, oldest first. The tree of pages keeps heads small and reads
short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import orjson

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.objects import damaged_error, decode_object, missing_offsets_error, parse_object
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import OffsetRange


Json = dict[str, Any]
T = TypeVar("T")

_FORMAT: Final = "reconciler.page/1"


class PagedEntries(Protocol):
    """A head or manifest: its newest entries, and pages of older ones."""

    @property
    def pages(self) -> tuple[PageRef, ...]:
        """References to pages, oldest first."""
        ...

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries after the pages, oldest first."""
        ...


def encode_entries_page(entries: Sequence[Entry]) -> bytes:
    """Return the body of a page of entries."""
    return orjson.dumps({"format": _FORMAT, "entries": [entry.to_json() for entry in entries]})


def encode_pages_page(pages: Sequence[PageRef]) -> bytes:
    """Return the body of a page of references to pages."""
    return orjson.dumps({"format": _FORMAT, "pages": [page.to_json() for page in pages]})


def read_page(store: ObjectStore, page: PageRef) -> tuple[Entry, ...]:
    """Return a page's entries, oldest first. Raises `MissingObjectError`."""
    return _read(store, page, lambda content: tuple(map(Entry.from_json, content["entries"])))


def read_pages(store: ObjectStore, page: PageRef) -> tuple[PageRef, ...]:
    """Return the references in a page of pages, oldest first. Raises `MissingObjectError`."""
    return _read(store, page, lambda content: tuple(map(PageRef.from_json, content["pages"])))


def iter_all_pages(store: ObjectStore, head: PagedEntries, *, skips_missing: bool = False) -> Iterator[PageRef]:
    """Yield all pages of a head, each after the pages below it; only pages of references are read.

    `skips_missing` skips missing pages with the pages below them.
    """
    return _walk_pages(store, head.pages, skips_missing=skips_missing)


def iter_all_entries(store: ObjectStore, head: PagedEntries, *, skips_missing: bool = False) -> Iterator[Entry]:
    """Yield every entry of a head, oldest first, including unreadable ones."""
    for page in iter_all_pages(store, head, skips_missing=skips_missing):
        if page.level == 0:
            try:
                entries = read_page(store, page)
            except MissingObjectError:
                if not skips_missing:
                    raise
            else:
                yield from entries
    yield from head.entries


def iter_entries_within(
    store: ObjectStore, head: PagedEntries, offsets: OffsetRange, *, since_ms: int | None = None
) -> Iterator[Entry]:
    """Yield entries that overlap a range, oldest first, reading only their pages.

    `since_ms` skips entries with only older records.
    """

    def is_wanted(item: PageRef | Entry) -> bool:
        touches = item.last >= offsets.start and item.base < offsets.stop
        return touches and (since_ms is None or item.max_ts >= since_ms)

    yield from _filter_entries(store, head.pages, is_wanted)
    yield from filter(is_wanted, head.entries)


def _filter_entries(
    store: ObjectStore, pages: Iterable[PageRef], is_wanted: Callable[[PageRef | Entry], bool]
) -> Iterator[Entry]:
    for page in filter(is_wanted, pages):
        if page.level:
            yield from _filter_entries(store, read_pages(store, page), is_wanted)
        else:
            yield from filter(is_wanted, read_page(store, page))


def _walk_pages(store: ObjectStore, pages: Iterable[PageRef], *, skips_missing: bool) -> Iterator[PageRef]:
    for page in pages:
        if page.level:
            try:
                below = read_pages(store, page)
            except MissingObjectError:
                if not skips_missing:
                    raise
            else:
                yield from _walk_pages(store, below, skips_missing=skips_missing)
        yield page


def _read(store: ObjectStore, page: PageRef, read: Callable[[Json], T]) -> T:
    stored = store.get(page.key)
    if stored is None:
        raise missing_offsets_error(store, page.key, page.base, page.last)
    content = parse_object(store, page.key, stored.body)
    if content.get("format") != _FORMAT:
        raise damaged_error(store, page.key, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    return decode_object(store, page.key, content, read)
