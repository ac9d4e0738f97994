"""What topics take in each tier, read from heads and manifests: no part and no page is opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import set_configs
from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.keys import HEADS, heads_prefix, partition_of_head
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.measuring.doubts import doubt
from reconciler.embedded.remote.measuring.shares import remote_only, share_below
from reconciler.embedded.remote.storagefile import check_storage
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.threads import SideBySide
from reconciler.embedded.upkeep.cleanup import cleanup_policy
from reconciler.embedded.upkeep.segments import segments_of
from reconciler.errors import UserError
from reconciler.lifecycles.tiering import TieringState
from reconciler.resources.clusterproperties import ENABLED, UPLOADS, property_of
from reconciler.resources.storages import Held, PartitionStorage, RemoteHeld, TieringShown, TopicStorage
from reconciler.resources.tierrules import switches_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.pages import Paged
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.embedded.upkeep.segments import SegmentLimits
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address
    from reconciler.resources.storages import Mode

    Place: TypeAlias = tuple[str, int]
    """Topic id and partition."""
    Heads: TypeAlias = Mapping[Place, Head]
    Manifests: TypeAlias = Mapping[Place, Manifest]

SHOWN: Final = "kafka_enable_describe_log_dirs_remote_storage"
_TRUE: Final = "true"
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class StorageReport:
    """One cluster as its catalog was read; `storage` is its object storage, where it names one."""

    store: ObjectStore
    storage: ObjectStore | None
    catalog: Catalog
    cluster_id: str

    def of(self, topics: Mapping[str, Address]) -> Iterator[TopicStorage]:
        """Yield what topics take, in their order. `topics`: full name → address.

        One listing, one GET for each partition ever written, and one more where it is, or was, tiered, and one for the
        object storage. What is wrong in object storage is told with the topic it is of.

        Raises:
            UserError: A head is damaged.
        """
        problem = self._problem_of(topics)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage") as pool:
            threads, wanted = SideBySide(pool, 4 * _AT_ONCE), tuple(topics)
            heads = self.heads(wanted, threads)
            looks = {} if problem is not None else self._looks(wanted, heads, threads)
        manifests = {place: look for place, look in looks.items() if not isinstance(look, UserError)}
        for name, address in topics.items():
            found = self.topic(name, address, heads, manifests)
            doubted = (looks.get((self.catalog.topics[name].id, each.partition)) for each in found.partitions)
            partitions = tuple(
                replace(each, problem=look) if isinstance(look, UserError) else each
                for each, look in zip(found.partitions, doubted, strict=True)
            )
            tiering = found.tiering
            if problem is not None and tiering is not None and tiering.hidden is None:
                tiering = replace(tiering, hidden=problem.message, problem=problem)
            yield replace(found, tiering=tiering, partitions=partitions)

    def read(self, names: Iterable[str]) -> tuple[Heads, Manifests]:
        """Return all that is reported from, side by side."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage") as pool:
            threads, wanted = SideBySide(pool, 4 * _AT_ONCE), tuple(names)
            heads = self.heads(wanted, threads)
            return heads, self.manifests(wanted, heads, threads)

    def heads(self, names: Iterable[str], threads: SideBySide) -> Heads:
        """Return the heads of the named topics, by id and partition; of partitions never written there are none."""
        ids = {self.catalog.topics[name].id for name in names}
        prefix = heads_prefix(*ids) if len(ids) == 1 else HEADS
        places = [place for listed in self.store.list(prefix) if (place := partition_of_head(listed.key))[0] in ids]
        found = threads.over(lambda place: read_head(self.store, *place), places)
        return {place: head for place, head in zip(places, found, strict=True) if head is not None}

    def manifests(self, names: Iterable[str], heads: Heads, threads: SideBySide) -> Manifests:
        """Return what object storage names of the partitions that have a head and whose remote tier is shown."""
        storage = self.storage
        if storage is None or self._hidden is not None:
            return {}
        wanted = self._remote_partitions(names, heads)
        found = threads.over(lambda each: read_manifest(storage, each[1]), wanted)
        return {place: manifest for (place, _), manifest in zip(wanted, found, strict=True) if manifest is not None}

    def _problem_of(self, names: Iterable[str]) -> UserError | None:
        """Return what is wrong with the object storage as a whole, where any of the topics may have something there."""
        if self.storage is None or self._hidden is not None or not any(map(self._tiering, names)):
            return None
        try:
            check_storage(self.storage, self.catalog.cluster.storage_id)
        except UserError as error:
            return error
        return None

    def _looks(self, names: Iterable[str], heads: Heads, threads: SideBySide) -> Mapping[Place, Manifest | UserError]:
        """Return the manifests, or why they cannot be what was uploaded."""
        storage = self.storage
        if storage is None or self._hidden is not None:
            return {}

        def looked(wanted: tuple[Place, RemotePartition]) -> Manifest | UserError | None:
            place, partition = wanted
            try:
                manifest = read_manifest(storage, partition)
            except UserError as error:
                return error
            if doubt(storage, partition, heads[place], manifest) is None:
                return manifest
            newer = read_head(self.store, *place)
            return manifest if newer is None else doubt(storage, partition, newer, manifest) or manifest

        wanted = self._remote_partitions(names, heads)
        found = threads.over(looked, wanted)
        return {place: look for (place, _), look in zip(wanted, found, strict=True) if look is not None}

    def _remote_partitions(self, names: Iterable[str], heads: Heads) -> list[tuple[Place, RemotePartition]]:
        tierings = {self.catalog.topics[name].id: self._tiering(name) for name in names}
        return [
            (place, remote_partition(tiering.location, place[1]))
            for place in heads
            if (tiering := tierings.get(place[0])) is not None
        ]

    def topic(self, name: str, address: Address, heads: Heads, manifests: Manifests) -> TopicStorage:
        """Return what one topic takes; heads and manifests go by its id and partition."""
        tiering, limits = self._shown(name), cleanup_policy(self.catalog, name, self.cluster_id).limits
        entry, writes = self.catalog.topics[name], tiering is not None and tiering.mode in {"write_only", "full"}
        return TopicStorage(
            address,
            tiering,
            tuple(
                _partition(number, heads.get(place), manifests.get(place), limits, writes=writes)
                for number in range(entry.partitions)
                for place in [(entry.id, number)]
            ),
        )

    @property
    def _hidden(self) -> str | None:
        properties = self.catalog.cluster.properties
        if property_of(properties, SHOWN) != _TRUE:
            return f"{SHOWN} is false"
        return "the cluster names no objectStorage" if self.storage is None else None

    def _tiering(self, name: str) -> Tiering | None:
        return tiering_of(self.catalog, name, self.cluster_id)

    def _shown(self, name: str) -> TieringShown | None:
        tiering = self._tiering(name)
        if tiering is None:
            return None
        properties = self.catalog.cluster.properties
        is_writing = (
            property_of(properties, ENABLED) == _TRUE
            and self.catalog.cluster.storage_id is not None
            and tiering.state is TieringState.ENABLED
            and switches_in(set_configs(self.catalog, name)).write
        )
        url = "" if self.storage is None else self.storage.url.partition("://")[2]
        return TieringShown(
            mode_of(writes=is_writing, serves=tiering.serves),
            str(tiering.state),
            tiering.epoch,
            str(tiering.location),
            f"remote://{url}",
            is_paused=is_writing and property_of(properties, UPLOADS) != _TRUE,
            hidden=self._hidden,
        )


def mode_of(*, writes: bool, serves: bool) -> Mode:
    """Return what tiering does now, in one word."""
    if writes:
        return "full" if serves else "write_only"
    return "read_only" if serves else "disabled"


def remote_of(manifest: Manifest, uploaded_to: int) -> RemoteHeld:
    """Say what object storage holds of a partition whose head has taken note of uploads up to `uploaded_to`."""
    garbage = manifest.garbage
    return RemoteHeld(
        manifest.start,
        manifest.end,
        Held(manifest.stored_bytes, manifest.segments),
        Held(_bytes(garbage), sum(page.entries for page in garbage.pages) + len(garbage.entries)),
        manifest.uploaded_ms or None,
        is_ahead=uploaded_to < manifest.end,
    )


def pending_bytes(head: Head, manifest: Manifest | None) -> int:
    """Return what of a partition is in no manifest yet."""
    uploaded_to = head.uploaded_to if manifest is None else max(head.uploaded_to, manifest.end)
    return head.stored_bytes - share_below(head, uploaded_to).bytes


def _partition(
    number: int, head: Head | None, manifest: Manifest | None, limits: SegmentLimits, *, writes: bool
) -> PartitionStorage:
    if head is None:
        return PartitionStorage(number, 0, 0, 0, Held(), None, 0, 0, 0 if writes else None)
    far = remote_only(head, manifest)
    # Pages hold the oldest, and those were made one file each.
    segments = sum(page.entries for page in head.pages) + sum(1 for _ in segments_of(head.entries, limits))
    return PartitionStorage(
        number,
        head.start,
        head.local_start,
        head.end,
        Held(head.stored_bytes, segments),
        None if manifest is None else remote_of(manifest, head.uploaded_to),
        head.stored_bytes + far.bytes,
        head.records + far.records,
        pending_bytes(head, manifest) if writes else None,
    )


def _bytes(paged: Paged) -> int:
    return sum(page.bytes for page in paged.pages) + sum(entry.bytes for entry in paged.entries)
