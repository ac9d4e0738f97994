"""Find topics in object storage, and lost objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import (
    REMOTE_TOPICS,
    build_location_prefix,
    build_topic_manifest_key,
    parse_manifest_partition,
    parse_remote_key,
    parse_segment_offsets,
    parse_topic_manifest_key,
)
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.ownership import OwnershipState, read_ownership
from reconciler.archives.pages import read_page, read_pages
from reconciler.archives.topic_manifest import TopicManifest, read_topic_manifest
from reconciler.errors import UserError
from reconciler.resources.address import split_name
from reconciler.resources.mount import RecoverableTopic
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry, PageRef
    from reconciler.objectstore.base import ObjectStore


_THREADS: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Records of a manifest that object storage has lost."""

    partition: int
    first: int
    last: int
    key: str
    why: str

    def __str__(self) -> str:
        return f"partition {self.partition}, offsets {self.first} to {self.last} ({self.key} {self.why})"


def read_whole_partitions(storage: ObjectStore, topic: TopicManifest) -> dict[int, Manifest]:
    """Return the manifests of a topic's uploaded partitions; reject a topic with lost objects.

    Losses are checked twice, since maintenance deletes objects. Needs one LIST, and a GET per partition and page.
    """
    manifests, lost = _find_losses(storage, topic)
    if lost:
        again, still = _find_losses(storage, topic)
        lost = [loss for loss in lost if loss in still]
        manifests = again
    if lost:
        message = f"{topic.location} is incomplete: objects that it needs are lost: {format_losses(lost)}"
        hint = (
            "Restore it from a version or copy of the bucket, and try again: a topic is not recovered in part. To "
            f"read what is left, declare a Topic with readReplicaOf: {topic.location} on another embedded cluster, "
            "apply it, then: reconciler topic consume ADDRESS --skip-missing"
        )
        raise UserError(message, hint=hint)
    return manifests


def format_losses(lost: Sequence[Loss]) -> str:
    """Format the first losses, and the number of the others."""
    more = f"; and {len(lost) - _NAMED} more" if lost[_NAMED:] else ""
    return "; ".join(map(str, lost[:_NAMED])) + more


def check_manifest_exists(storage: ObjectStore, partition: RemotePartition, keys: Iterable[str]) -> None:
    """Reject a partition that has segments (`keys`) but no manifest."""
    ranges = sorted(offsets for key in keys if (offsets := parse_segment_offsets(key)) is not None)
    if ranges:
        last = max(last for _, last in ranges)
        message = (
            f"{storage.url} has no {partition.key}, but {len(ranges)} segments of that partition, offsets "
            f"{ranges[0][0]} to {last}: without it reconciler cannot tell which of them are valid"
        )
        hint = f"Restore {partition.key} from a version or copy of the bucket. Nothing of the partition was recovered."
        raise UserError(message, hint=hint)


def find_losses_at(storage: ObjectStore, location: TopicLocation, numbers: Sequence[int]) -> list[Loss]:
    """Return lost objects of a topic's manifests, checked twice."""

    def find_losses() -> list[Loss]:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="manifests") as threads:
            return _find_all_losses(storage, *_read_manifests_and_sizes(storage, location, numbers, threads), threads)

    lost = find_losses()
    return [loss for loss in find_losses() if loss in lost] if lost else []


def _find_losses(storage: ObjectStore, topic: TopicManifest) -> tuple[dict[int, Manifest], list[Loss]]:
    numbers = range(topic.partitions)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="manifests") as threads:
        manifests, sizes = _read_manifests_and_sizes(storage, topic.location, numbers, threads)
        for number in numbers:
            if number not in manifests:
                check_manifest_exists(storage, remote_partition(topic.location, number), sizes.get(number, ()))
        losses = _find_all_losses(storage, manifests, sizes, threads)
        return manifests, sorted([*losses, *_find_outdated_manifests(topic, manifests)])


def _read_manifests_and_sizes(
    storage: ObjectStore, place: TopicLocation, numbers: Sequence[int], threads: ThreadPoolExecutor
) -> tuple[dict[int, Manifest], Mapping[int, Mapping[str, int]]]:
    def read(number: int) -> Manifest | None:
        return read_manifest(storage, remote_partition(place, number))

    manifests = dict(zip(numbers, threads.map(read, numbers), strict=True))
    sizes: dict[int, dict[str, int]] = {}
    for listed in storage.list(build_location_prefix(place.cluster_id, place.revision)):
        place_of_key = parse_remote_key(listed.key)
        if place_of_key is not None:
            sizes.setdefault(place_of_key[2], {})[listed.key] = listed.size
    return {number: manifest for number, manifest in manifests.items() if manifest is not None}, sizes


def _find_all_losses(
    storage: ObjectStore,
    manifests: Mapping[int, Manifest],
    sizes: Mapping[int, Mapping[str, int]],
    threads: ThreadPoolExecutor,
) -> list[Loss]:
    def find_partition_losses(number: int) -> Sequence[Loss]:
        return list(_find_losses_of_partition(storage, number, manifests[number], sizes.get(number, {})))

    return [loss for losses in threads.map(find_partition_losses, manifests) for loss in losses]


def _find_outdated_manifests(topic: TopicManifest, manifests: Mapping[int, Manifest]) -> Iterator[Loss]:
    for number, end in topic.ends.items():
        manifest = manifests.get(number)
        has = 0 if manifest is None else manifest.end
        if has < end:
            key = remote_partition(topic.location, number).key
            yield Loss(number, has, end - 1, key, "is not there" if manifest is None else "is an older copy")


def _find_losses_of_partition(
    storage: ObjectStore, number: int, manifest: Manifest, sizes: Mapping[str, int]
) -> Iterator[Loss]:
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
    for entry in sorted(entries, key=lambda item: item.base):
        size = sizes.get(entry.key)
        if entry.last >= manifest.start and size != entry.bytes:
            why = "is not there" if size is None else f"has {size:,} bytes, not {entry.bytes:,}"
            yield Loss(number, entry.base, entry.last, entry.key, why)


_NAMED: Final = 10


def count_manifests(storage: ObjectStore, cluster_id: str | None = None) -> dict[tuple[str, int], int]:
    """Return the number of partitions with a manifest, by cluster id and initial revision; one LIST.

    It is 0 for a topic with only a `topic.json`.
    """
    prefix = REMOTE_TOPICS if cluster_id is None else f"{REMOTE_TOPICS}{cluster_id}/"
    described: set[tuple[str, int]] = set()
    manifests: Counter[tuple[str, int]] = Counter()
    for listed in storage.list(prefix):
        topic, place = parse_topic_manifest_key(listed.key), parse_remote_key(listed.key)
        if topic is not None:
            described.add(topic)
        elif place is not None and parse_manifest_partition(listed.key) is not None:
            manifests[place[:2]] += 1
    return {topic_key: manifests[topic_key] for topic_key in sorted(described | manifests.keys())}


def find_topic_at(storage: ObjectStore, location: TopicLocation) -> TopicManifest:
    """Return the topic at a location; raise `UserError` if missing."""
    topic = read_topic_manifest(storage, location.cluster_id, location.revision)
    if topic is None:
        lost = build_topic_manifest_key(location.cluster_id, location.revision)
        hint = (
            "List them with: reconciler export CLUSTER --from-object-storage --out FOLDER. If its partitions are "
            "there, restore that object from a version or copy of the bucket."
        )
        raise UserError(f"there is no topic at {location} in {storage.url}: {lost} is not there", hint=hint)
    name = topic.location.topic
    if location.topic not in {name, split_name(name)[1]}:
        message = f"at {location} in {storage.url} is the topic {name}"
        raise UserError(message, hint=f"Write {topic.location}, or correct the cluster id and revision.")
    return topic


def find_location(storage: ObjectStore, full_name: str) -> TopicLocation:
    """Return the location of the only topic with a full name; reject several."""
    locations = sorted(_find_locations(storage, full_name))
    if len(locations) == 1:
        return locations[0]
    if not locations:
        raise UserError(
            f"there is no topic {full_name} in {storage.url}",
            hint="List them with: reconciler export CLUSTER --from-object-storage --out FOLDER",
        )
    named = ", ".join(map(str, locations[:_NAMED])) + (" …" if locations[_NAMED:] else "")
    message = f"{len(locations)} topics called {full_name} lie in {storage.url}: {named}"
    raise UserError(message, hint="Name one of them as recoverFrom.")


def check_recoverable(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> RecoverableTopic:
    """Return what a recovery would restore on `cluster_id`; `None` means a new cluster."""
    topic = find_topic_at(storage, location)
    check_unmounted(storage, topic.location, cluster_id)
    manifests = read_whole_partitions(storage, topic)
    return RecoverableTopic(
        str(topic.location),
        topic.name,
        topic.partitions,
        topic.replication_factor,
        topic.effective,
        sum(manifest.stored_bytes for manifest in manifests.values()),
        sum(manifest.records for manifest in manifests.values()),
        {number: (manifest.start, manifest.end) for number, manifest in manifests.items()},
        tuple(
            (item.max_ts, item.bytes) for manifest in manifests.values() for item in _list_pages_and_entries(manifest)
        ),
        topic.configs,
        topic.initial,
        max((manifest.uploaded_ms for manifest in manifests.values() if manifest.uploaded_ms), default=None),
    )


def check_unmounted(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> None:
    """Reject a topic mounted on another cluster."""
    ownership = read_ownership(storage, location)
    if ownership is not None and ownership.state is not OwnershipState.DETACHED and ownership.owner != cluster_id:
        message = f"{location} is mounted on cluster {ownership.owner}"
        hint = (
            "Mirror it from there, or unmount it there first. Where that cluster, or its topic, is lost permanently: "
            f"reconciler mount release {location} --owner {ownership.owner} --allow release:{location}"
        )
        raise UserError(message, hint=hint)


def _list_pages_and_entries(manifest: Manifest) -> tuple[PageRef | Entry, ...]:
    return (*manifest.pages, *manifest.entries)


def _find_locations(storage: ObjectStore, full_name: str) -> Iterator[TopicLocation]:
    for cluster_id, revision in count_manifests(storage):
        topic = read_topic_manifest(storage, cluster_id, revision)
        if topic is not None and full_name in {topic.name, topic.location.topic}:
            yield topic.location
