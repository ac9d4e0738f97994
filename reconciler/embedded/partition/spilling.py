"""Spilling: a head that has grown gives its oldest entries to a page, and its oldest pages to a page of pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import page_key
from reconciler.embedded.partition.entries import PageRef
from reconciler.embedded.partition.pages import entries_page, pages_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.base import ObjectStore

TAIL: Final = 64
"""Entries a head keeps; above, the older half goes to a page at once, not one by one."""
BRANCHES: Final = 16
"""Pages a page of pages names; a head keeps at most twice as many of each level."""


class Spill:
    """Writes pages of one partition. One for each change of its head: a lost race reuses what it wrote."""

    def __init__(self, store: ObjectStore, topic_id: str, partition: int) -> None:
        """Name the partition; nothing is written yet."""
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._written: dict[bytes, PageRef] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The pages written so far."""
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
        page = self._written.get(body)
        if page is None:
            page = of(page_key(self._topic_id, self._partition))
            self._store.put(page.key, body)
            self._written[body] = page
        return page
