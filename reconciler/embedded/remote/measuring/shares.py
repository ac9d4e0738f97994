"""What of a log lies below an offset, and what is in object storage only, by what heads and manifests keep.

No page is read: of a page, or of a segment, that lies across the offset, the share counts that its offsets make. That
is exact for records where every offset has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.partition.entries import Entry
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.partition.entries import PageRef
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.pages import Paged
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore

    ReadManifest: TypeAlias = Callable[[int], Manifest | None]
    """Returns the manifest of a partition of one topic by its number: one GET, or none where it was never tiered."""


class Share(NamedTuple):
    """Some of a log."""

    bytes: int = 0
    records: int = 0


def share_within(each: PageRef | Entry, start: int, stop: int) -> Share:
    """Return what of a page or segment has offsets from `start` to before `stop`."""
    whole = each.last + 1 - each.base
    wanted = max(0, min(stop, each.last + 1) - max(start, each.base))
    records = each.digest.records if isinstance(each, Entry) else each.records
    return Share(each.bytes * wanted // whole, records * wanted // whole)


def share_below(paged: Paged, offset: int) -> Share:
    """Return what of a head or manifest lies below an offset."""
    return _sum(paged, 0, offset)


def remote_only(head: Head, manifest: Manifest | None) -> Share:
    """Return what of a partition is part of its log and lies in object storage alone."""
    return Share() if manifest is None else _sum(manifest, head.start, head.local_start)


def _sum(paged: Paged, start: int, stop: int) -> Share:
    shares = [share_within(each, start, stop) for named in (paged.pages, paged.entries) for each in named]
    return Share(sum(share.bytes for share in shares), sum(share.records for share in shares))


def manifests_of(storage: ObjectStore | None, catalog: Catalog, full_name: str, cluster_id: str) -> ReadManifest:
    """Return what reads the manifests of a topic."""
    tiering = tiering_of(catalog, full_name, cluster_id)
    if storage is None or tiering is None:
        return lambda _number: None
    return lambda number: read_manifest(storage, remote_partition(tiering.location, number))
