"""Recover topics from object storage. A recovered log begins a new leader epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import build_location_key, read_stored_groups
from reconciler.archives.keys import build_copied_segment_key, build_index_key, build_location_prefix
from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.manifest import Manifest, ManifestSwap, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import iter_all_entries
from reconciler.archives.recoverable import check_manifest_exists, check_recoverable, find_location, find_topic_at
from reconciler.archives.topic_manifest import CommittedOffset, write_topic_manifest
from reconciler.embedded.acl import Kind, Operation
from reconciler.embedded.catalog.migration_tables import LOGGER
from reconciler.embedded.catalog.tables import Catalog, Draft, find_topic_by_id, map_names_by_id
from reconciler.embedded.catalog.tiering_state import build_topic_manifest, find_tiering
from reconciler.embedded.catalog.topic_configs import find_explicit_configs, find_topic_kms_key
from reconciler.embedded.catalog.topics import TopicShape, finish_recovery
from reconciler.embedded.catalog.topics import recover_topic as begin
from reconciler.embedded.keys import part_key
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.groups import copy_offsets, read_partition_bounds
from reconciler.embedded.segments.head import PRODUCERS, Head, PageWriter, head_register, read_head
from reconciler.embedded.tiered.object_rewrites import read_footer
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.resources.address import split_name
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first, pluralize
from reconciler.runtime.threads import CallPool, Memo, run_in_parallel

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore


def create_remote_head(
    store: ObjectStore, of: tuple[str, int], manifest: Manifest, kms_key_id: str | None, fetched: Sequence[Entry] = ()
) -> None:
    """Create a partition's head for records in object storage, if missing.

    `fetched` are the newest segments, copied to the local tier.
    """
    topic_id, number = of
    epoch, end = manifest.epochs[-1][0] + 1, manifest.end
    head = Head(
        PRODUCERS,
        start=manifest.start,
        local_start=max(manifest.start, fetched[0].base) if fetched else end,
        end=end,
        epochs=(*manifest.epochs, (epoch, end)),
        entries=tuple(fetched),
        compacted_to=min(manifest.compacted_to, end),
        kms_key_id=kms_key_id,
        uploaded_to=end,
    )
    spill, register, mark = PageWriter(store, topic_id, number), head_register(store, topic_id, number), create_mark()
    try:
        register.swap(None, spill.spill_entries(head).to_json(), epoch=epoch, mark=mark)
    except LostRaceError:
        current = register.read()
        if current is None or mark not in current.marks:  # Another process created the head.
            store.delete([*(entry.key for entry in fetched), *spill.used_keys])


COPY_THREADS: Final = 4
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class LocalFetchLimits:
    """Limits of the records to copy to the local tier; `None` means no limit."""

    since_ms: int | None = None
    bytes: int | None = None

    def select_newest(self, entries: list[Entry]) -> list[Entry]:
        """Return the newest segments within both limits; none if no limit is set."""
        taken: list[Entry] = []
        room = self.bytes
        for entry in reversed(entries if self != LocalFetchLimits() else []):
            room = None if room is None else room - entry.bytes
            if (room is not None and room < 0) or (self.since_ms is not None and entry.max_ts < self.since_ms):
                break
            taken.insert(0, entry)
        return taken


@dataclass(frozen=True, slots=True)
class TopicRecovery:
    """Recovers one topic: copies objects, and creates manifests and heads.

    Any process can repeat a step: copies have deterministic names, and manifests and heads are created only once. If a
    source object is missing, the source's manifest is read again.
    """

    store: ObjectStore
    storage: ObjectStore
    cluster_id: str
    full_name: str
    topic_id: str
    source: TopicLocation
    tiering: TopicTiering
    fetch: LocalFetchLimits
    kms_key_id: str | None
    may_go_on: Callable[[], None]
    """Called before each copy, from any thread; may raise."""
    copied: Callable[[Entry], object] = lambda _segment: None

    def recover_partition(self, number: int) -> None:
        """Create one partition, if missing."""
        if read_head(self.store, self.topic_id, number) is not None:
            return
        own = remote_partition(self.tiering.location, number)
        manifest = read_manifest(self.storage, own) or self._copy_partition(number, own)
        if manifest is not None:
            self._create_head(number, manifest)

    def _copy_partition(self, number: int, own: RemotePartition) -> Manifest | None:
        present = {listed.key for listed in self.storage.list(f"{own.key_prefix}/")}
        missed: set[str | None] = set()
        while True:
            manifest = read_manifest(self.storage, remote_partition(self.source, number))
            if manifest is None:
                source = remote_partition(self.source, number)
                check_manifest_exists(
                    self.storage, source, (listed.key for listed in self.storage.list(f"{source.key_prefix}/"))
                )
                return None
            try:
                entries = list(self._copy_segments(manifest, own, present))
            except MissingObjectError as error:
                # Retention or merging may have deleted the object.
                if error.key in missed:
                    raise self._lost_object_error(number, error) from error
                missed.add(error.key)
            else:
                return self._publish_copies(own, manifest, entries, present)

    def _lost_object_error(self, number: int, error: MissingObjectError) -> MissingObjectError:
        offsets = "" if error.offsets is None else f"offsets {error.offsets[0]} to {error.offsets[1]} are lost: "
        message = f"{self.full_name}, partition {number}: {offsets}{error.message}"
        hint = (
            f"{self.source} names it. Restore it from a version or copy of the bucket, then: "
            "reconciler run --once --only recoveries. Or delete the topic that recovers."
        )
        lost = MissingObjectError(message, hint=hint)
        lost.key, lost.url, lost.offsets = error.key, error.url, error.offsets
        return lost

    def _copy_segments(self, manifest: Manifest, own: RemotePartition, present: set[str]) -> Iterator[Entry]:
        live = (entry for entry in iter_all_entries(self.storage, manifest) if entry.last >= manifest.start)

        def copy_entry(entry: Entry) -> Entry:
            key = build_copied_segment_key(
                own.key_prefix, (entry.base, entry.last), entry.bytes, entry.epoch, of=f"{self.topic_id} {entry.key}"
            )
            if key not in present:
                self.may_go_on()
                self._copy_segment(entry, key)
                present.add(key)
                self.copied(entry)
            if build_index_key(key) not in present:
                self.may_go_on()
                self._copy_index(entry, key)
                present.add(build_index_key(key))
            return replace(entry, key=key, kms_key_id=self.kms_key_id)

        with ThreadPoolExecutor(COPY_THREADS, thread_name_prefix="recover") as threads:
            yield from CallPool(threads, _WAITING).map_calls(copy_entry, live)

    def _copy_segment(self, entry: Entry, key: str) -> None:
        try:
            self.storage.copy_from(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
        except MissingObjectError as error:
            error.key, error.url, error.offsets = entry.key, self.storage.url, (entry.base, entry.last)
            raise

    def _copy_index(self, entry: Entry, key: str) -> None:
        try:
            self.storage.copy_from(
                build_index_key(key), self.storage, build_index_key(entry.key), kms_key_id=self.kms_key_id
            )
        except MissingObjectError:
            footer = read_footer(self.storage, key, entry.bytes)
            self.storage.put(build_index_key(key), footer, kms_key_id=self.kms_key_id)

    def _publish_copies(
        self, own: RemotePartition, source_manifest: Manifest, entries: list[Entry], present: set[str]
    ) -> Manifest | None:
        made = Manifest(
            self.cluster_id,
            start=source_manifest.start,
            end=source_manifest.end,
            epochs=source_manifest.epochs,
            uploaded_ms=source_manifest.uploaded_ms,
            compacted_to=source_manifest.compacted_to,
            learned=source_manifest.learned,
            entries=tuple(entries),
        )
        self.may_go_on()
        swap = ManifestSwap(self.storage, self.cluster_id, self.tiering)
        swap(own, lambda held: made if held == Manifest(self.cluster_id) else None)
        after = read_manifest(self.storage, own)
        if after is not None:
            named = {
                name
                for entry in iter_all_entries(self.storage, after)
                for name in (entry.key, build_index_key(entry.key))
            }
            named |= {page.key for page in after.pages} | {own.key}
            self.storage.delete(sorted(present - named))
        return after

    def _create_head(self, number: int, manifest: Manifest) -> None:
        fetched = self._fetch_newest(number, manifest)
        self.may_go_on()
        create_remote_head(self.store, (self.topic_id, number), manifest, self.kms_key_id, fetched)

    def _fetch_newest(self, number: int, manifest: Manifest) -> list[Entry]:
        fetched_entries: list[Entry] = []
        try:
            for entry in self.fetch.select_newest(list(iter_all_entries(self.storage, manifest))):
                self.may_go_on()
                key = part_key(self.full_name, number)
                self.store.copy_from(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
                fetched_entries.append(replace(entry, key=key, kms_key_id=self.kms_key_id))
        except BaseException:
            with suppress(Exception):
                self.store.delete([entry.key for entry in fetched_entries])
            raise
        return fetched_entries


PARTITION_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Recoveries:
    """One cluster's recoveries; any process can continue them."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None]
    """Called before each copy and swap, from any thread; may raise."""
    copied: Callable[[Entry], object] = lambda _segment: None
    _stored_groups: Memo = field(default_factory=Memo)

    def finish_wanted(self, is_wanted: Callable[[str], bool]) -> Mapping[str, ReconcilerError | None]:
        """Finish the recovery of wanted topics (by full name); return each one's error or `None`, by topic id."""
        catalog = self.catalog.read()
        ended: dict[str, ReconcilerError | None] = {}
        for full_name, topic in sorted(catalog.topics.items()):
            if topic.recovering is not None and is_wanted(full_name):
                try:
                    self._finish_topic(catalog, full_name, topic, topic.recovering)
                except ReconcilerError as error:
                    ended[topic.id] = error
                else:
                    ended[topic.id] = None
        return ended

    def _finish_topic(self, catalog: Catalog, full_name: str, topic: TopicEntry, location: str) -> None:
        remote = self._require_remote(full_name)
        tiering = find_tiering(catalog, full_name, remote.cluster_id)
        if tiering is None:
            raise UserError(f"topic {full_name} recovers and is not tiered", hint="Delete it, and recover it again.")
        source = find_topic_at(remote.storage, TopicLocation.parse(location))
        partitions = min(source.partitions, topic.partitions)  # Partitions added to the source later are ignored.
        recovery = TopicRecovery(
            self.store,
            remote.storage,
            remote.cluster_id,
            full_name,
            topic.id,
            source.location,
            tiering,
            compute_initial_fetch(catalog, full_name, self.now_ms()),
            find_topic_kms_key(catalog, full_name),
            self.may_go_on,
            self.copied,
        )

        def recover(number: int) -> None:
            if find_topic_by_id(self.catalog.read(), topic.id, full_name) is not None:
                recovery.recover_partition(number)

        with ThreadPoolExecutor(PARTITION_THREADS, thread_name_prefix="recovery") as threads:
            for _ in CallPool(threads, _WAITING).map_calls(recover, range(partitions)):
                self.may_go_on()
        self._restore_groups(remote, full_name, topic, source.location)
        self._write_description(remote, topic)
        after = self.catalog.commit(lambda draft: finish_recovery(draft, topic.id), may_go_on=self.may_go_on)
        if find_topic_by_id(after, topic.id, full_name) is None:
            self._delete_partial(remote, topic, tiering.location, partitions)

    def _restore_groups(self, remote: RemoteTier, full_name: str, topic: TopicEntry, source: TopicLocation) -> None:
        if source.cluster_id == remote.cluster_id:
            return
        stored, why = self._stored_groups.get(
            source.cluster_id, lambda: read_stored_groups(remote.storage, source.cluster_id)
        )
        if why is not None:
            LOGGER.warning("topic %s: the offsets of its groups do not come along: %s", full_name, why.message)
        if stored is None:
            return
        offsets = stored.read_group_offsets(build_location_key(source.cluster_id, source.revision))
        bounds = {number: read_partition_bounds(self.store, (topic.id, number)) for number in range(topic.partitions)}
        spaces = self.catalog.read().namespaces
        mark, clamped = f"recover-{topic.id}", list[str]()

        def restore_group(group: str) -> None:
            self.may_go_on()
            offsets_brought: dict[tuple[str, int], CommittedOffset] = {}
            for number, committed in offsets[group].items():
                if number in bounds:
                    within = replace(committed, at_ms=None, epoch=None).clamp(bounds[number])
                    offsets_brought[topic.id, number] = within
                    if within.offset < committed.offset:
                        clamped.append(f"{group}, partition {number}: {committed.offset} → {within.offset}")
            copy_offsets(self.store, self.catalog.read, group, offsets_brought, mark=mark)

        named = [group for group in offsets if not (space := split_name(group)[0]) or space in spaces]
        run_in_parallel(restore_group, named, name="groups")
        staying_out = sorted(offsets.keys() - set(named))
        if staying_out:
            warning = "topic %s: groups %s have no namespace here: their offsets do not come along"
            LOGGER.warning(warning, full_name, list_first(staying_out))
        if clamped:
            warning = "topic %s: %s beyond what was uploaded set back to its end: %s"
            LOGGER.warning(warning, full_name, pluralize(len(clamped), "committed offset"), list_first(sorted(clamped)))

    def _write_description(self, remote: RemoteTier, topic: TopicEntry) -> None:
        now = self.catalog.read()
        name = map_names_by_id(now, [topic.id]).get(topic.id)
        if name is not None:
            self.may_go_on()
            write_topic_manifest(remote.storage, build_topic_manifest(now, name, remote.cluster_id))

    def _require_remote(self, full_name: str) -> RemoteTier:
        if self.remote is None:
            message = f"topic {full_name} is being recovered, and its cluster has no object storage"
            raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
        return self.remote

    def _delete_partial(self, remote: RemoteTier, topic: TopicEntry, location: TopicLocation, partitions: int) -> None:
        for number in range(partitions):
            remove_partition(self.store, topic.id, number)
        prefix = build_location_prefix(location.cluster_id, location.revision)
        remote.storage.delete([listed.key for listed in remote.storage.list(prefix)])


def recover_topic(
    cluster: Admin, full_name: str, location: str | None, configs: Mapping[str, str], *, topic_id: str
) -> None:
    """Create a topic from a location, by default the only one with the topic's name."""
    storage = cluster.storage
    if storage is None:
        message = f"topic {full_name} cannot be recovered: its cluster has no object storage"
        raise UserError(message, hint="Open the cluster with its object storage.")
    where = find_location(storage, full_name) if location is None else TopicLocation.parse(location)
    source = check_recoverable(storage, where, cluster.cluster_id)
    shape = TopicShape(partitions=source.partitions, replication_factor=source.replication_factor, configs=configs)

    def decide(draft: Draft) -> None:
        cluster.permissions.check_allowed(draft, Operation.CREATE, Kind.TOPIC, full_name)
        begin(draft, full_name, shape, topic_id=topic_id, location=source.location, original=source.configs)

    cluster.catalog.commit(decide)
    recoveries = Recoveries(cluster.store, cluster.catalog, cluster.remote, cluster.now_ms, lambda: None)
    for error in recoveries.finish_wanted(lambda name: name == full_name).values():
        if error is not None:
            raise error


def compute_initial_fetch(catalog: Catalog, full_name: str, now_ms: int) -> LocalFetchLimits:
    """Return the limits of the initial local retention."""
    configs = find_explicit_configs(catalog, full_name)

    def limit(key: str) -> int | None:
        value = int(configs[key][0]) if key in configs else None
        return None if value is None or value < 0 else value

    back_ms, most = limit("initial.retention.local.target.ms"), limit("initial.retention.local.target.bytes")
    return LocalFetchLimits(None if back_ms is None else now_ms - back_ms, most)
