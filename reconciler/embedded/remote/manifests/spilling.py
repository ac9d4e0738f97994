"""Spilling of manifests: a manifest that has grown gives its oldest segments to pages, which join into larger ones.

A root names only pages of entries, never pages of pages: whatever offset is wanted, the root and one page tell. Pages
of one size that are many become one of the next, so the root stays small and each entry is written a few times only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.keys import manifest_page_key
from reconciler.embedded.partition.entries import PageRef
from reconciler.embedded.partition.pages import entries_page, read_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.objectstore.base import ObjectStore

JOINED: Final = 8
"""Neighbouring pages of one size that become one."""
_LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a page that is joined no more: it is read whole for one offset."""
_ENTRY: Final = 300
"""About what an entry takes, in bytes."""


class ManifestSpill:
    """Writes pages of one manifest. One for each change of it: a lost race reuses what it wrote."""

    def __init__(self, storage: ObjectStore, partition: RemotePartition, page_bytes: int) -> None:
        """Name the partition; nothing is written yet."""
        self._storage = storage
        self._partition = partition
        self._page_bytes = page_bytes
        self._written: dict[bytes, PageRef] = {}
        self._joined: dict[str, None] = {}
        """Pages that were there and are no more in what was made last."""

    def spilled(self, manifest: Manifest) -> Manifest:
        """Return the manifest with at most twice a page's bytes of entries, the older ones in pages."""
        self._joined.clear()
        sizes = [len(orjson.dumps(entry.to_json())) for entry in manifest.entries]
        if sum(sizes) <= 2 * self._page_bytes:
            return manifest
        entries, pages = list(manifest.entries), list(manifest.pages)
        while sum(sizes) > 2 * self._page_bytes and len(entries) > 1:
            count, taken = 0, 0
            while taken < self._page_bytes and count < len(entries) - 1:
                taken += sizes[count]
                count += 1
            pages.append(self.page(entries[:count]))
            del entries[:count], sizes[:count]
        return replace(manifest, pages=tuple(self._packed(pages)), entries=tuple(entries))

    def page(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page."""
        body = entries_page(entries)
        page = self._written.get(body)
        if page is None:
            partition = self._partition
            key = manifest_page_key(partition.cluster_id, partition.revision, partition.number)
            page = self._written[body] = PageRef.of(key, entries)
            self._storage.put(page.key, body)
        return page

    def superfluous(self, held: Manifest | None) -> list[str]:
        """Return what nobody names, once `held` is the manifest (`None`: it stayed as it was): to be deleted."""
        named = set() if held is None else {page.key for page in held.pages} | {page.key for page in held.garbage.pages}
        gone = [] if held is None else list(self._joined)
        return [*gone, *(page.key for page in self._written.values() if page.key not in named)]

    def _packed(self, pages: list[PageRef]) -> list[PageRef]:
        """Join runs of pages of one size, the newest first to be looked at, until none is long enough."""
        while (run := self._run(pages)) is not None:
            entries = [entry for page in pages[run] for entry in self._entries(page)]
            self._joined.update(dict.fromkeys(page.key for page in pages[run]))
            pages[run] = [self.page(entries)]
        return pages

    def _run(self, pages: Sequence[PageRef]) -> slice | None:
        for at in range(len(pages) - JOINED, -1, -1):
            sizes = {self._size(page) for page in pages[at : at + JOINED]}
            if len(sizes) == 1 and sum(page.entries for page in pages[at : at + JOINED]) * _ENTRY <= _LARGEST:
                return slice(at, at + JOINED)
        return None

    def _size(self, page: PageRef) -> int:
        """Return of which size a page is: 0 as it was spilled, 1 as eight of those, and so on."""
        size, limit = 0, 2 * self._page_bytes
        while page.entries * _ENTRY > limit:
            size, limit = size + 1, limit * JOINED
        return size

    def _entries(self, page: PageRef) -> Sequence[Entry]:
        return read_page(self._storage, page)
