"""The remote end of a log that was cut: the manifest follows its head, which says where, and in which epoch.

The head is cut first: below its local start a reader takes of the manifest only what lies below the head's end, so
nobody sees what is named above it. Until the manifest knows of the epoch that began with the cut, nothing of it above
the cut counts: whoever uploads, expires or compacts settles it first. Segments above become garbage, the one across is
written anew. A manifest that knows a newer epoch than whoever would add to it was cut meanwhile: nothing is added.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.partition.partfiles import damaged_part, read_part
from reconciler.embedded.remote.leaving.expiring import marked
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.purging import objects_of, purge
from reconciler.embedded.remote.manifests.segmentfiles import SegmentWriter
from reconciler.embedded.remote.manifests.spilling import ManifestSpill
from reconciler.errors import MissingObjectError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.embedded.remote.manifests.swaps import ManifestSwap

_LOOKS: Final = 3
"""How often a manifest is read again that names an object which is not there, before that is believed."""


def is_uncut(manifest: Manifest, head: Head) -> bool:
    """Tell whether a head was cut and its manifest does not know yet."""
    return manifest.epochs[-1][0] < head.truncated_in


def settle(swap: ManifestSwap, place: RemotePartition, head: Head, *, makes: bool = False) -> Manifest | None:
    """Let the manifest end where its head was cut, where it does not know yet; return it as it is then.

    Where there is none it is made if it `makes` one: an upload that began before would name its segments there.
    `None`: there is none, or who knows a newer tiering than ours is at it.

    Raises:
        MissingObjectError: A segment or page is not there.
        OwnershipLostError: The partition belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    found = read_manifest(swap.storage, place)
    if found is None and not makes:
        return None
    if found is not None and not is_uncut(found, head):
        return None if found.tiered_epoch > swap.tiering.epoch else found
    cut = _RemoteCut(swap, place, head)
    for look in range(1, _LOOKS + 1):
        try:
            after = swap(place, cut)
        except MissingObjectError:
            # Others may have put another object in its place: the manifest tells.
            if look == _LOOKS:
                raise
        else:
            break
    cut.clear(after)
    after = after or read_manifest(swap.storage, place)
    if after is None or is_uncut(after, head):
        return None
    purge(swap, place, after.garbage)
    return after


@dataclass
class _RemoteCut:
    """Cuts a manifest, decided anew after a lost race, which reuses what was written."""

    swap: ManifestSwap
    place: RemotePartition
    head: Head
    _written: dict[str, Entry] = field(default_factory=dict)
    _opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write pages of garbage where there is much."""
        self._spill = ManifestSpill(self.swap.storage, self.place, self.swap.tiering.spill_bytes)

    def __call__(self, manifest: Manifest) -> Manifest | None:
        """Return the manifest without what was cut; `None`: it knows already."""
        self._opened.clear()
        head = self.head
        if not is_uncut(manifest, head) or head.truncated is None:
            return None
        if not manifest.tiered_epoch:
            return replace(manifest, start=head.local_start, end=head.local_start, epochs=head.epochs)
        at = min(int(head.truncated["offset"]), manifest.end)
        floor = at if at > manifest.start else 0  # Of a segment that the log's start cut, all goes.
        across = next((page for page in manifest.pages if page.base < floor <= page.last), None)
        named = (*(() if across is None else read_page(self.swap.storage, across)), *manifest.entries)
        if across is not None:
            self._opened.append(across.key)
        gone_pages = [page for page in manifest.pages if page.last >= floor and page is not across]
        gone = [entry for entry in named if entry.last >= floor]
        return replace(
            manifest,
            start=min(manifest.start, at),
            end=at,
            epochs=head.epochs,
            compacted_to=min(manifest.compacted_to, at),
            learned=manifest.learned if floor else (0, 0),  # While anything is left, whoever cuts looks at it.
            pages=tuple(page for page in manifest.pages if page.last < floor),
            entries=tuple(
                entry if entry.last < floor else self._below(entry, at) for entry in named if entry.base < floor
            ),
            garbage=marked(manifest.garbage, gone_pages, gone, self._spill),
        )

    def _below(self, entry: Entry, at: int) -> Entry:
        """Write what a segment has below the cut, under the key it lies under."""
        written = self._written.get(entry.key)
        if written is None:
            storage, number = self.swap.storage, self.place.number
            writer = SegmentWriter(storage, self.place, entry.epoch, kms_key_id=entry.kms_key_id)
            found = writer.write_one(read_part(storage, entry, number, OffsetRange(entry.base, at)))
            if found is None:
                raise damaged_part(storage, entry, f"it has no record below offset {at}")
            written = self._written[entry.key] = replace(
                found, epoch=entry.epoch, is_segment=True, horizon_ms=entry.horizon_ms
            )
        return written

    def clear(self, after: Manifest | None) -> None:
        """Delete what nobody names now that the manifest is `after` (`None`: as it was)."""
        named = set() if after is None else {entry.key for entry in after.entries}
        unnamed = [entry for entry in self._written.values() if entry.key not in named]
        superfluous = [] if after is None else self._opened
        self.swap.storage.delete([*self._spill.superfluous(after), *superfluous, *objects_of(unnamed)])
