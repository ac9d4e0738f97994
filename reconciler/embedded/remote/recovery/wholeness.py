"""What manifests name held against what lies there, before anything is copied: one listing tells what is lost.

The source may be in use. What seems lost is looked at once more by the manifests as they are then: what retention or
merging has taken meanwhile is not lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import location_prefix, offsets_of_segment, remote_place_of
from reconciler.embedded.partition.pages import read_page, read_pages
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.embedded.partition.entries import Entry, PageRef
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore

_AT_ONCE: Final = 16
_NAMED: Final = 10


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Records that a manifest names and nobody has."""

    partition: int
    first: int
    last: int
    key: str
    why: str

    def __str__(self) -> str:
        """Say which, and why."""
        return f"partition {self.partition}, offsets {self.first} to {self.last} ({self.key} {self.why})"


def whole_partitions_of(storage: ObjectStore, topic: TopicManifest) -> dict[int, Manifest]:
    """Return the manifests of a topic's partitions; one of which nothing was ever uploaded is absent.

    A GET for each, one listing, and a GET for each page.

    Raises:
        UserError: One is damaged, of a newer format, or not there while segments are; something that is named is lost.
    """
    manifests, lost = _looked(storage, topic)
    if lost:
        again, still = _looked(storage, topic)
        lost = [each for each in lost if each in still]
        manifests = again
    if lost:
        named = "; ".join(map(str, lost[:_NAMED])) + (f"; and {len(lost) - _NAMED} more" if lost[_NAMED:] else "")
        message = f"{topic.location} is not whole, what it names is lost: {named}"
        hint = "Restore it from a version or copy of the bucket, and try again: nothing is made of a part of a topic."
        raise UserError(message, hint=hint)
    return manifests


def check_named(storage: ObjectStore, partition: RemotePartition, keys: Iterable[str]) -> None:
    """Refuse a partition without a manifest whose segments lie there: those `keys` are.

    Raises:
        UserError: It is one.
    """
    lying = sorted(offsets for key in keys if (offsets := offsets_of_segment(key)) is not None)
    if lying:
        last = max(last for _, last in lying)
        message = (
            f"{storage.url} has no {partition.key}, but {len(lying)} segments of that partition, offsets "
            f"{lying[0][0]} to {last}: without it nobody knows which of them hold"
        )
        hint = f"Restore {partition.key} from a version or copy of the bucket. Nothing of the partition was taken."
        raise UserError(message, hint=hint)


def _looked(storage: ObjectStore, topic: TopicManifest) -> tuple[dict[int, Manifest], list[Loss]]:
    """Read the manifests, then list what lies there: what is named was there before."""
    place = topic.location

    def read(number: int) -> Manifest | None:
        return read_manifest(storage, remote_partition(place, number))

    numbers = range(topic.partitions)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifests") as threads:
        found = dict(zip(numbers, threads.map(read, numbers), strict=True))
        sizes: dict[int, dict[str, int]] = {}
        for listed in storage.list(location_prefix(place.cluster_id, place.revision)):
            lies = remote_place_of(listed.key)
            if lies is not None:
                sizes.setdefault(lies[2], {})[listed.key] = listed.size
        manifests = {number: manifest for number, manifest in found.items() if manifest is not None}
        for number in numbers:
            if number not in manifests:
                check_named(storage, remote_partition(place, number), sizes.get(number, ()))

        def lost(number: int) -> Sequence[Loss]:
            return list(_lost(storage, number, manifests[number], sizes.get(number, {})))

        losses = [each for found in threads.map(lost, manifests) for each in found]
        return manifests, sorted([*losses, *_cut_off(topic, manifests)])


def _cut_off(topic: TopicManifest, manifests: Mapping[int, Manifest]) -> Iterator[Loss]:
    """Yield what a detached topic had, and no manifest tells of: one is gone with all it named, or is an older copy."""
    for number, end in topic.ends.items():
        manifest = manifests.get(number)
        has = 0 if manifest is None else manifest.end
        if has < end:
            key = remote_partition(topic.location, number).key
            yield Loss(number, has, end - 1, key, "is not there" if manifest is None else "is an older copy")


def _lost(storage: ObjectStore, number: int, manifest: Manifest, sizes: Mapping[str, int]) -> Iterator[Loss]:
    """Yield what is lost of one partition; what pages that are lost name is lost with them."""
    pages: list[PageRef] = list(manifest.pages)
    entries: list[Entry] = list(manifest.entries)
    while pages:
        page = pages.pop()
        if page.key not in sizes:
            yield Loss(number, page.base, page.last, page.key, "is not there")
        elif page.level:
            pages += read_pages(storage, page)
        else:
            entries += read_page(storage, page)
    for entry in sorted(entries, key=lambda each: each.base):
        size = sizes.get(entry.key)
        if entry.last >= manifest.start and size != entry.bytes:
            why = "is not there" if size is None else f"has {size:,} bytes, not {entry.bytes:,}"
            yield Loss(number, entry.base, entry.last, entry.key, why)
