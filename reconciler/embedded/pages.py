"""Pages: the older entries of a head that has grown past 128 KiB, in immutable objects the head names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.head import Entry, Head, PageRef
from reconciler.embedded.jsonobjects import damaged, existing, parsed
from reconciler.embedded.keys import page_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import OffsetRange

ENTRIES_BYTES: Final = 128 * 1024
_FORMAT: Final = "reconciler.page/1"


class Spill:
    """Moves a head's oldest entries to a page. One for each append: a lost race reuses the page it wrote."""

    def __init__(self, store: ObjectStore, topic_id: str, partition: int) -> None:
        """Name the partition; nothing is written yet."""
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._written: dict[tuple[str, str], PageRef] = {}

    def spilled(self, head: Head) -> Head:
        """Return the head with at most 128 KiB of entries: the older half is moved at once, not one by one."""
        if not head.entries or len(orjson.dumps([entry.to_json() for entry in head.entries])) <= ENTRIES_BYTES:
            return head
        half = (len(head.entries) + 1) // 2
        page = self._page(head.entries[:half])
        return replace(head, pages=(*head.pages, page), entries=head.entries[half:])

    def _page(self, entries: tuple[Entry, ...]) -> PageRef:
        ends = entries[0].key, entries[-1].key
        page = self._written.get(ends)
        if page is None:
            page = PageRef.of(page_key(self._topic_id, self._partition), entries)
            body = {"format": _FORMAT, "entries": [entry.to_json() for entry in entries]}
            self._store.put(page.key, orjson.dumps(body))
            self._written[ends] = page
        return page


def read_page(store: ObjectStore, page: PageRef) -> tuple[Entry, ...]:
    """Return the entries of a page, oldest first.

    Raises:
        MissingObjectError: It is not there.
        UserError: It is damaged, or of a newer format.
    """
    content = parsed(store, page.key, existing(store, page.key, f"what lies at offsets {page.base} to {page.last}"))
    if content.get("format") != _FORMAT:
        raise damaged(store, page.key, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    try:
        return tuple(map(Entry.from_json, content["entries"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(store, page.key, f"{type(error).__name__}: {error}") from error


def entries_within(store: ObjectStore, head: Head, offsets: OffsetRange) -> Iterator[Entry]:
    """Yield the entries with an offset in a range, oldest first; only the pages it touches are read."""
    for page in head.pages:
        if page.last >= offsets.start and page.base < offsets.stop:
            yield from _touching(read_page(store, page), offsets)
    yield from _touching(head.entries, offsets)


def _touching(entries: tuple[Entry, ...], offsets: OffsetRange) -> Iterator[Entry]:
    return (entry for entry in entries if entry.last >= offsets.start and entry.base < offsets.stop)
