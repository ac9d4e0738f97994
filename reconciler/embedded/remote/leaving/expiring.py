"""Expiry of remote segments: whole ones from the front of the manifest, by time and size together. Pure but for pages.

What the manifest has spilled comes first, a page at a time; a page of which nothing or everything goes is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.entries import PageRef
from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.remote.manifests.manifest import Garbage
from reconciler.embedded.upkeep.cleanup import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.manifests.spilling import ManifestSpill
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore

_FEW: Final = 64
"""Entries that a manifest names as garbage itself; more go to a page."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Where the log is to begin, and when, with nothing uploaded until then, more goes by age (`None`: never)."""

    start: int
    due_ms: int | None = None


@dataclass(slots=True)
class _Walk:
    """How far the walk has come: what was left behind, what is left."""

    policy: CleanupPolicy
    start: int
    now_ms: int
    left: int
    """Stored bytes from here on."""

    def goes(self, lying: Entry | PageRef) -> bool:
        """Tell whether all of it goes. The segment that crosses the limit of bytes goes too (F-R-017)."""
        if lying.last < self.start:
            return True
        if not self.policy.expires:
            return False
        is_old = self.policy.retention_ms != UNLIMITED and self.now_ms - lying.max_ts > self.policy.retention_ms
        limit = self.policy.retention_bytes
        # A page goes as a whole where even its last segment, whatever that is, would still go.
        above = self.left - lying.bytes + 1 if isinstance(lying, PageRef) else self.left
        return is_old or (limit != UNLIMITED and above > limit)

    def stays(self, page: PageRef) -> bool:
        """Tell whether nothing of a page goes, as far as is known without reading it."""
        if not self.policy.expires:
            return page.base >= self.start
        is_young = self.policy.retention_ms == UNLIMITED or self.now_ms - page.min_ts <= self.policy.retention_ms
        is_below = self.policy.retention_bytes == UNLIMITED or self.left <= self.policy.retention_bytes
        return page.base >= self.start and is_young and is_below

    def pass_by(self, lying: Entry | PageRef) -> None:
        """Leave it behind."""
        self.left -= lying.bytes
        self.start = max(self.start, lying.last + 1)

    def ended(self, before_ms: int) -> Expiry:
        """Say where it ended: at what has no record older than `before_ms`."""
        is_never = not self.policy.expires or self.policy.retention_ms == UNLIMITED
        return Expiry(self.start, None if is_never else before_ms + self.policy.retention_ms + 1)


def expiry(
    manifest: Manifest,
    policy: CleanupPolicy,
    *,
    start: int,
    now_ms: int,
    read: Callable[[PageRef], Iterable[Entry]],
) -> Expiry:
    """Return where the log begins once the total retention was held to: it may leave nothing (F-R-016).

    `start` is where it begins now: what lies below it goes whatever the policy says. `read` opens a spilled page.
    """
    walk = _Walk(policy, start, now_ms, manifest.stored_bytes)
    for page in manifest.pages:
        if walk.goes(page):
            walk.pass_by(page)
            continue
        if walk.stays(page):
            return walk.ended(page.min_ts)
        for entry in read(page):
            if not walk.goes(entry):
                return walk.ended(entry.max_ts)
            walk.pass_by(entry)
    for entry in manifest.entries:
        if not walk.goes(entry):
            return walk.ended(entry.max_ts)
        walk.pass_by(entry)
    return Expiry(walk.start)


@dataclass(frozen=True, slots=True)
class Cut:
    """A manifest without what expired, which is garbage now; `pages` are the keys of those that were written anew."""

    manifest: Manifest
    segments: int
    records: int
    bytes: int
    pages: tuple[str, ...] = ()


def cut_below(storage: ObjectStore, manifest: Manifest, start: int, spill: ManifestSpill) -> Cut | None:
    """Return the manifest without the segments that end below `start`; `None`: it names none.

    Raises:
        MissingObjectError: A page is not there.
    """
    whole = [page for page in manifest.pages if page.last < start]
    pages = list(manifest.pages[len(whole) :])
    gone: list[Entry] = []
    emptied: tuple[str, ...] = ()
    if pages and pages[0].base < start:
        found = read_page(storage, pages[0])
        gone = [entry for entry in found if entry.last < start]
        if gone:
            emptied = (pages[0].key,)
            pages[:1] = _reopened(found[len(gone) :], spill)
    gone += [entry for entry in manifest.entries if entry.last < start]
    if not whole and not gone:
        return None
    after = replace(
        manifest,
        start=max(manifest.start, min(start, manifest.end)),
        pages=tuple(pages),
        entries=tuple(entry for entry in manifest.entries if entry.last >= start),
        garbage=marked(manifest.garbage, whole, gone, spill),
    )
    return Cut(
        after,
        manifest.segments - after.segments,
        manifest.records - after.records,
        manifest.stored_bytes - after.stored_bytes,
        emptied,
    )


def _reopened(entries: Sequence[Entry], spill: ManifestSpill) -> list[PageRef]:
    """Write what is left of a page, the oldest apart: what is cut next is small, however large the page was."""
    pages: list[PageRef] = []
    at, count = 0, _FEW
    while at < len(entries):
        pages.append(spill.page(entries[at : at + count]))
        at, count = at + count, 2 * count
    return pages


def marked(garbage: Garbage, pages: Sequence[PageRef], entries: Sequence[Entry], spill: ManifestSpill) -> Garbage:
    """Return garbage with more that a manifest names no longer; of many entries a page is made."""
    if len(entries) > _FEW:
        return Garbage((*garbage.pages, *pages, spill.page(entries)), garbage.entries)
    return Garbage((*garbage.pages, *pages), (*garbage.entries, *entries))
