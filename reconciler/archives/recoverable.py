"""Find topics in object storage, and check that they are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import (
    REMOTE_TOPICS,
    location_of_topic_manifest,
    location_prefix,
    offsets_of_segment,
    partition_of_manifest,
    remote_place_of,
    topic_manifest_key,
)
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.ownership import Owning, read_ownership
from reconciler.archives.pages import read_page, read_pages
from reconciler.archives.topic_manifest import TopicManifest, read_topic_manifest
from reconciler.errors import UserError
from reconciler.resources.address import split_name
from reconciler.resources.mount import Recoverable

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry, PageRef
    from reconciler.objectstore.base import ObjectStore


_AT_ONCE: Final = 16


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

    A GET for each, one listing, and a GET for each page. What seems lost is read again: retention or merging may have
    taken it meanwhile.

    Raises:
        UserError: One is damaged, of a newer format, or not there while segments are; something that is named is lost.
    """
    manifests, lost = _looked(storage, topic)
    if lost:
        again, still = _looked(storage, topic)
        lost = [each for each in lost if each in still]
        manifests = again
    if lost:
        message = f"{topic.location} is not whole, what it names is lost: {listed_losses(lost)}"
        hint = (
            "Restore it from a version or copy of the bucket, and try again: nothing is made of a part of a topic. To "
            f"read what is left, declare a Topic with readReplicaOf: {topic.location} on another embedded cluster, "
            "apply it, then: reconciler topic consume ADDRESS --skip-missing"
        )
        raise UserError(message, hint=hint)
    return manifests


def listed_losses(lost: Sequence[Loss]) -> str:
    """Name the first of what is lost, and count the rest."""
    more = f"; and {len(lost) - _NAMED} more" if lost[_NAMED:] else ""
    return "; ".join(map(str, lost[:_NAMED])) + more


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
            f"{lying[0][0]} to {last}: without it reconciler cannot tell which of them are valid"
        )
        hint = f"Restore {partition.key} from a version or copy of the bucket. Nothing of the partition was taken."
        raise UserError(message, hint=hint)


def losses_of(storage: ObjectStore, location: TopicLocation, numbers: Sequence[int]) -> list[Loss]:
    """Return what the manifests of these partitions name and object storage does not have.

    A GET for each, one listing, and a GET for each page; where something seems lost, all of that once more.

    Raises:
        UserError: A manifest or a page is damaged, or of a newer format.
    """

    def looked() -> list[Loss]:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifests") as threads:
            return _losses(storage, *_lying_at(storage, location, numbers, threads), threads)

    lost = looked()
    return [each for each in looked() if each in lost] if lost else []


def _looked(storage: ObjectStore, topic: TopicManifest) -> tuple[dict[int, Manifest], list[Loss]]:
    """Return the manifests of a topic, and what is lost of it."""
    numbers = range(topic.partitions)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifests") as threads:
        manifests, sizes = _lying_at(storage, topic.location, numbers, threads)
        for number in numbers:
            if number not in manifests:
                check_named(storage, remote_partition(topic.location, number), sizes.get(number, ()))
        losses = _losses(storage, manifests, sizes, threads)
        return manifests, sorted([*losses, *_cut_off(topic, manifests)])


def _lying_at(
    storage: ObjectStore, place: TopicLocation, numbers: Sequence[int], threads: ThreadPoolExecutor
) -> tuple[dict[int, Manifest], Mapping[int, Mapping[str, int]]]:
    """Read the manifests, then list what lies there, by partition: what is named was there before."""

    def read(number: int) -> Manifest | None:
        return read_manifest(storage, remote_partition(place, number))

    found = dict(zip(numbers, threads.map(read, numbers), strict=True))
    sizes: dict[int, dict[str, int]] = {}
    for listed in storage.list(location_prefix(place.cluster_id, place.revision)):
        lies = remote_place_of(listed.key)
        if lies is not None:
            sizes.setdefault(lies[2], {})[listed.key] = listed.size
    return {number: manifest for number, manifest in found.items() if manifest is not None}, sizes


def _losses(
    storage: ObjectStore,
    manifests: Mapping[int, Manifest],
    sizes: Mapping[int, Mapping[str, int]],
    threads: ThreadPoolExecutor,
) -> list[Loss]:
    def lost(number: int) -> Sequence[Loss]:
        return list(_lost(storage, number, manifests[number], sizes.get(number, {})))

    return [each for found in threads.map(lost, manifests) for each in found]


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


_NAMED: Final = 10


def manifests_in(storage: ObjectStore, cluster_id: str | None = None) -> dict[tuple[str, int], int]:
    """Return how many partitions of each topic have a manifest there, by cluster id and initial revision.

    One listing, of all clusters or of one. A topic with a `topic.json` alone is there too, with none.
    """
    prefix = REMOTE_TOPICS if cluster_id is None else f"{REMOTE_TOPICS}{cluster_id}/"
    described: set[tuple[str, int]] = set()
    manifests: Counter[tuple[str, int]] = Counter()
    for listed in storage.list(prefix):
        topic, place = location_of_topic_manifest(listed.key), remote_place_of(listed.key)
        if topic is not None:
            described.add(topic)
        elif place is not None and partition_of_manifest(listed.key) is not None:
            manifests[place[:2]] += 1
    return {each: manifests[each] for each in sorted(described | manifests.keys())}


def located(storage: ObjectStore, location: TopicLocation) -> TopicManifest:
    """Return the topic at a location.

    Raises:
        UserError: There is none, it has another name, its register is damaged or of a newer format.
    """
    found = read_topic_manifest(storage, location.cluster_id, location.revision)
    if found is None:
        lost = topic_manifest_key(location.cluster_id, location.revision)
        hint = (
            "See which there are: reconciler export CLUSTER --from-object-storage --out FOLDER. Where its partitions "
            "lie there, restore that object from a version or copy of the bucket."
        )
        raise UserError(f"there is no topic at {location} in {storage.url}: {lost} is not there", hint=hint)
    name = found.location.topic
    if location.topic not in {name, split_name(name)[1]}:
        message = f"at {location} in {storage.url} lies topic {name}"
        raise UserError(message, hint=f"Write {found.location}, or correct the cluster id and revision.")
    return found


def location_named(storage: ObjectStore, full_name: str) -> TopicLocation:
    """Return the one location of a topic by its full name: what `remote.recovery` asks for.

    Raises:
        UserError: There is none, or there are several; says where.
    """
    found = sorted(_called(storage, full_name))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(
            f"there is no topic {full_name} in {storage.url}",
            hint="See which there are: reconciler export CLUSTER --from-object-storage --out FOLDER",
        )
    named = ", ".join(map(str, found[:_NAMED])) + (" …" if found[_NAMED:] else "")
    message = f"{len(found)} topics called {full_name} lie in {storage.url}: {named}"
    raise UserError(message, hint="Name one of them as recoverFrom.")


def recoverable(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> Recoverable:
    """Return what the cluster `cluster_id` (`None`: one still to be made) would get: see `whole_partitions_of`.

    Raises:
        UserError: There is no such topic, it is mounted on another cluster, damaged, of a newer format, or not whole.
    """
    found = located(storage, location)
    check_unmounted(storage, found.location, cluster_id)
    manifests = whole_partitions_of(storage, found)
    return Recoverable(
        str(found.location),
        found.name,
        found.partitions,
        found.replication_factor,
        found.effective,
        sum(manifest.stored_bytes for manifest in manifests.values()),
        sum(manifest.records for manifest in manifests.values()),
        {number: (manifest.start, manifest.end) for number, manifest in manifests.items()},
        tuple((each.max_ts, each.bytes) for manifest in manifests.values() for each in _named(manifest)),
        found.configs,
        found.initial,
        max((manifest.uploaded_ms for manifest in manifests.values() if manifest.uploaded_ms), default=None),
    )


def check_unmounted(storage: ObjectStore, location: TopicLocation, cluster_id: str | None) -> None:
    """Refuse a topic that was detached once and belongs to another cluster now.

    Raises:
        UserError: It does, or the register that says so is damaged.
    """
    found = read_ownership(storage, location)
    if found is not None and found.state is not Owning.DETACHED and found.owner != cluster_id:
        message = f"{location} is mounted on cluster {found.owner}"
        hint = (
            "Mirror it from there, or unmount it there first. Where that cluster, or its topic, is gone for good: "
            f"reconciler mount release {location} --owner {found.owner} --allow release:{location}"
        )
        raise UserError(message, hint=hint)


def _named(manifest: Manifest) -> tuple[PageRef | Entry, ...]:
    return (*manifest.pages, *manifest.entries)


def _called(storage: ObjectStore, full_name: str) -> Iterator[TopicLocation]:
    for cluster_id, revision in manifests_in(storage):
        found = read_topic_manifest(storage, cluster_id, revision)
        if found is not None and full_name in {found.name, found.location.topic}:
            yield found.location
