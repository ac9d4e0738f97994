"""Recover topics from object storage.

What comes now is not what came there before: who asks for an epoch is told apart by that (Kafka's leader epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.cluster_metadata import kept_groups, place_of
from reconciler.archives.keys import copied_segment_key, index_key, location_prefix
from reconciler.archives.location import Tiering, TopicLocation
from reconciler.archives.manifest import Manifest, ManifestSwap, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import all_entries
from reconciler.archives.recoverable import check_named, located, location_named, recoverable
from reconciler.archives.topic_manifest import Committed, write_topic_manifest
from reconciler.embedded.acl import Kind, Operation
from reconciler.embedded.catalog.migration_tables import LOGGER
from reconciler.embedded.catalog.tables import Catalog, Draft, names_by_id, topic_with_id
from reconciler.embedded.catalog.tiering_state import tiering_of, topic_manifest_of
from reconciler.embedded.catalog.topic_configs import key_of, set_configs
from reconciler.embedded.catalog.topics import TopicShape, recovered
from reconciler.embedded.catalog.topics import recover_topic as begin
from reconciler.embedded.keys import part_key
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.groups import bounds_at, bring_offsets
from reconciler.embedded.segments.head import PRODUCERS, Head, Spill, head_register, read_head
from reconciler.embedded.tiered.object_rewrites import footer_of
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError, UserError
from reconciler.objectstore.register import fresh_mark
from reconciler.resources.address import split_name
from reconciler.runtime.text import counted, first_few
from reconciler.runtime.threads import Memo, SideBySide, all_side_by_side

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.objectstore.base import ObjectStore


def make_head(
    store: ObjectStore,
    of: tuple[str, int],
    manifest: Manifest,
    kms_key_id: str | None,
    fetched: Sequence[Entry] = (),
) -> None:
    """Make the head of a partition, by topic id and number, where there is none: all of it is remote.

    `fetched` are its newest segments, oldest first, that were copied into the local tier, too; where somebody else was
    faster they are deleted.
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
    spill, register, mark = Spill(store, topic_id, number), head_register(store, topic_id, number), fresh_mark()
    try:
        register.swap(None, spill.spilled(head).to_json(), epoch=epoch, mark=mark)
    except LostRaceError:
        there = register.read()
        if there is None or mark not in there.marks:  # Else it is ours, without an answer, and was built upon.
            store.delete([*(entry.key for entry in fetched), *spill.keys])


# One partition made from object storage: its objects copied there, then a manifest that names the copies, then a head.
#
# A copy has the same name whoever makes it, and manifest and head are made only where there is none: each step may be
# repeated, and two that recover the same topic get in nobody's way. The source is only read. It may change meanwhile:
# where an object is gone, its manifest is read again.


COPIES: Final = 4
"""Objects of one partition copied side by side: the store does the copying, we wait for it."""
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Fetch:
    """How much of a partition is brought into the local tier at once; `None`: no limit of that kind."""

    since_ms: int | None = None
    bytes: int | None = None

    def newest(self, entries: list[Entry]) -> list[Entry]:
        """Return the newest segments within both limits, oldest first; nothing where neither is set."""
        taken: list[Entry] = []
        room = self.bytes
        for entry in reversed(entries if self != Fetch() else []):
            room = None if room is None else room - entry.bytes
            if (room is not None and room < 0) or (self.since_ms is not None and entry.max_ts < self.since_ms):
                break
            taken.insert(0, entry)
        return taken


@dataclass(frozen=True, slots=True)
class Recovery:
    """One topic that is being made, and what it is made from."""

    store: ObjectStore
    storage: ObjectStore
    cluster_id: str
    full_name: str
    topic_id: str
    source: TopicLocation
    tiering: Tiering
    fetch: Fetch
    kms_key_id: str | None
    """The key that objects of the new topic lie under."""
    may_go_on: Callable[[], None]
    """Asked before each copy, from any thread; may raise."""
    copied: Callable[[Entry], object] = lambda _segment: None
    """Told, from any thread, of each segment that was copied."""

    def recover(self, number: int) -> None:
        """Make one partition, as far as that was not done before.

        Raises:
            MissingObjectError: The source names an object that is not there.
            UserError: A manifest of the source is damaged, or not there while segments are.
        """
        if read_head(self.store, self.topic_id, number) is not None:
            return
        own = remote_partition(self.tiering.location, number)
        manifest = read_manifest(self.storage, own) or self._copied(number, own)
        if manifest is not None:
            self._make_head(number, manifest)

    def _copied(self, number: int, own: RemotePartition) -> Manifest | None:
        """Copy what the source has and name the copies; `None`: nothing of it was ever uploaded."""
        present = {listed.key for listed in self.storage.list(f"{own.place}/")}
        missed: set[str | None] = set()
        while True:
            found = read_manifest(self.storage, remote_partition(self.source, number))
            if found is None:
                source = remote_partition(self.source, number)
                check_named(self.storage, source, (listed.key for listed in self.storage.list(f"{source.place}/")))
                return None
            try:
                entries = list(self._copies(found, own, present))
            except MissingObjectError as error:
                # Retention or merging of the source may have been there: its manifest tells. Where that still names
                # what was missing, it is lost.
                if error.key in missed:
                    raise self._lost(number, error) from error
                missed.add(error.key)
            else:
                return self._named(own, found, entries, present)

    def _lost(self, number: int, error: MissingObjectError) -> MissingObjectError:
        offsets = "" if error.offsets is None else f"offsets {error.offsets[0]} to {error.offsets[1]} are lost: "
        message = f"{self.full_name}, partition {number}: {offsets}{error.message}"
        hint = (
            f"{self.source} names it. Restore it from a version or copy of the bucket, then: "
            "reconciler run --once --only recoveries. Or delete the topic that recovers."
        )
        lost = MissingObjectError(message, hint=hint)
        lost.key, lost.url, lost.offsets = error.key, error.url, error.offsets
        return lost

    def _copies(self, found: Manifest, own: RemotePartition, present: set[str]) -> Iterator[Entry]:
        live = (entry for entry in all_entries(self.storage, found) if entry.last >= found.start)

        def copied(entry: Entry) -> Entry:
            key = copied_segment_key(
                own.place, (entry.base, entry.last), entry.bytes, entry.epoch, of=f"{self.topic_id} {entry.key}"
            )
            if key not in present:
                self.may_go_on()
                self._segment(entry, key)
                present.add(key)
                self.copied(entry)
            if index_key(key) not in present:
                self.may_go_on()
                self._index(entry, key)
                present.add(index_key(key))
            return replace(entry, key=key, kms_key_id=self.kms_key_id)

        with ThreadPoolExecutor(COPIES, thread_name_prefix="recover") as threads:
            yield from SideBySide(threads, _WAITING).over(copied, live)

    def _segment(self, entry: Entry, key: str) -> None:
        try:
            self.storage.copy_in(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
        except MissingObjectError as error:
            error.key, error.url, error.offsets = entry.key, self.storage.url, (entry.base, entry.last)
            raise

    def _index(self, entry: Entry, key: str) -> None:
        """Copy the index of a segment; one that is gone is found again in the copy of the segment itself."""
        try:
            self.storage.copy_in(index_key(key), self.storage, index_key(entry.key), kms_key_id=self.kms_key_id)
        except MissingObjectError:
            footer = footer_of(self.storage, key, entry.bytes)
            self.storage.put(index_key(key), footer, kms_key_id=self.kms_key_id)

    def _named(self, own: RemotePartition, found: Manifest, entries: list[Entry], present: set[str]) -> Manifest | None:
        """Name the copies, unless another process was faster; drop those that no process names."""
        made = Manifest(
            self.cluster_id,
            start=found.start,
            end=found.end,
            epochs=found.epochs,
            uploaded_ms=found.uploaded_ms,
            compacted_to=found.compacted_to,
            learned=found.learned,
            entries=tuple(entries),
        )
        self.may_go_on()
        swap = ManifestSwap(self.storage, self.cluster_id, self.tiering)
        swap(own, lambda held: made if held == Manifest(self.cluster_id) else None)
        after = read_manifest(self.storage, own)
        if after is not None:
            named = {name for entry in all_entries(self.storage, after) for name in (entry.key, index_key(entry.key))}
            named |= {page.key for page in after.pages} | {own.key}
            self.storage.delete(sorted(present - named))
        return after

    def _make_head(self, number: int, manifest: Manifest) -> None:
        fetched = self._fetched(number, manifest)
        self.may_go_on()
        make_head(self.store, (self.topic_id, number), manifest, self.kms_key_id, fetched)

    def _fetched(self, number: int, manifest: Manifest) -> list[Entry]:
        """Bring the newest segments into the local tier, as far as that was asked for."""
        brought: list[Entry] = []
        try:
            for entry in self.fetch.newest(list(all_entries(self.storage, manifest))):
                self.may_go_on()
                key = part_key(self.full_name, number)
                self.store.copy_in(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
                brought.append(replace(entry, key=key, kms_key_id=self.kms_key_id))
        except BaseException:
            with suppress(Exception):  # What is left is swept.
                self.store.delete([entry.key for entry in brought])
            raise
        return brought


# Recovery of whole topics: every topic that is being made from object storage is brought to its end, by anybody.
#
# What is done stays done, however often it is begun: `Recovery` makes what is not there, and one commit opens the
# topic. A topic that was deleted meanwhile takes what was copied for it along.


PARTITIONS: Final = 8
"""Partitions of one topic that are made side by side."""


@dataclass(frozen=True, slots=True)
class Recoveries:
    """The recoveries of one cluster. Safe to run in several processes at once."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None]
    """Asked before each copy and each swap, from any thread; may raise, and the rest is done by the next process."""
    copied: Callable[[Entry], object] = lambda _segment: None
    """Told, from any thread, of each segment that was copied."""
    _kept: Memo = field(default_factory=Memo)
    """What object storage has of the groups of lost clusters, by cluster id."""

    def finish(self, is_wanted: Callable[[str], bool]) -> Mapping[str, ReconcilerError | None]:
        """Finish the topics that are being recovered and are wanted, by full name.

        Return, by topic id, what kept each from its end, `None` where it is done; one that fails stops no other.
        """
        found = self.catalog.read()
        ended: dict[str, ReconcilerError | None] = {}
        for full_name, topic in sorted(found.topics.items()):
            if topic.recovering is not None and is_wanted(full_name):
                try:
                    self._finish(found, full_name, topic, topic.recovering)
                except ReconcilerError as error:
                    ended[topic.id] = error
                else:
                    ended[topic.id] = None
        return ended

    def _finish(self, found: Catalog, full_name: str, topic: TopicEntry, location: str) -> None:
        remote = self._remote(full_name)
        tiering = tiering_of(found, full_name, remote.cluster_id)
        if tiering is None:
            raise UserError(f"topic {full_name} recovers and is not tiered", hint="Delete it, and recover it again.")
        source = located(remote.storage, TopicLocation.parse(location))
        partitions = min(source.partitions, topic.partitions)  # The source may have grown since: that is not ours.
        recovery = Recovery(
            self.store,
            remote.storage,
            remote.cluster_id,
            full_name,
            topic.id,
            source.location,
            tiering,
            fetch_in(found, full_name, self.now_ms()),
            key_of(found, full_name),
            self.may_go_on,
            self.copied,
        )

        def recover(number: int) -> None:
            if topic_with_id(self.catalog.read(), topic.id, full_name) is not None:
                recovery.recover(number)

        with ThreadPoolExecutor(PARTITIONS, thread_name_prefix="recovery") as threads:
            for _ in SideBySide(threads, _WAITING).over(recover, range(partitions)):
                self.may_go_on()
        self._bring_groups(remote, full_name, topic, source.location)
        self._say(remote, topic)
        after = self.catalog.commit(lambda draft: recovered(draft, topic.id), may_go_on=self.may_go_on)
        if topic_with_id(after, topic.id, full_name) is None:
            self._discard(remote, topic, tiering.location, partitions)

    def _bring_groups(self, remote: RemoteTier, full_name: str, topic: TopicEntry, source: TopicLocation) -> None:
        """Let groups go on where they were, as far as that was kept, and within what the log holds now.

        The topic is closed meanwhile: no group has read with it here yet. Onto the cluster that made the source a copy
        is made, and its groups stay with the source.
        """
        if source.cluster_id == remote.cluster_id:
            return
        kept, why = self._kept.get(source.cluster_id, lambda: kept_groups(remote.storage, source.cluster_id))
        if why is not None:
            LOGGER.warning("topic %s: the offsets of its groups do not come along: %s", full_name, why.message)
        if kept is None:
            return
        offsets = kept.offsets_of(place_of(source.cluster_id, source.revision))
        bounds = {number: bounds_at(self.store, (topic.id, number)) for number in range(topic.partitions)}
        spaces = self.catalog.read().namespaces
        mark, clamped = f"recover-{topic.id}", list[str]()

        def bring(group: str) -> None:
            self.may_go_on()
            brought: dict[tuple[str, int], Committed] = {}
            for number, each in offsets[group].items():
                if number in bounds:
                    within = replace(each, at_ms=None, epoch=None).clamped(bounds[number])
                    brought[topic.id, number] = within
                    if within.offset < each.offset:
                        clamped.append(f"{group}, partition {number}: {each.offset} → {within.offset}")
            bring_offsets(self.store, self.catalog.read, group, brought, mark=mark)

        named = [group for group in offsets if not (space := split_name(group)[0]) or space in spaces]
        all_side_by_side(bring, named, name="groups")
        staying_out = sorted(offsets.keys() - set(named))
        if staying_out:
            said = "topic %s: groups %s have no namespace here: their offsets do not come along"
            LOGGER.warning(said, full_name, first_few(staying_out))
        if clamped:
            said = "topic %s: %s beyond what was uploaded set back to its end: %s"
            LOGGER.warning(said, full_name, counted(len(clamped), "committed offset"), first_few(sorted(clamped)))

    def _say(self, remote: RemoteTier, topic: TopicEntry) -> None:
        """Let object storage say what was made, so that it can be recovered in turn."""
        now = self.catalog.read()
        name = names_by_id(now, [topic.id]).get(topic.id)
        if name is not None:
            self.may_go_on()
            write_topic_manifest(remote.storage, topic_manifest_of(now, name, remote.cluster_id))

    def _remote(self, full_name: str) -> RemoteTier:
        if self.remote is None:
            message = f"topic {full_name} is being recovered, and its cluster has no object storage"
            raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
        return self.remote

    def _discard(self, remote: RemoteTier, topic: TopicEntry, location: TopicLocation, partitions: int) -> None:
        """Remove what was made of a topic that is gone: nobody else ever named anything below its location."""
        for number in range(partitions):
            remove_partition(self.store, topic.id, number)
        prefix = location_prefix(location.cluster_id, location.revision)
        remote.storage.delete([listed.key for listed in remote.storage.list(prefix)])


def recover_topic(
    cluster: Admin, full_name: str, location: str | None, configs: Mapping[str, str], *, topic_id: str
) -> None:
    """Make a topic of a cluster from a location, by its name where there is none; see `EmbeddedCluster`."""
    storage = cluster.storage
    if storage is None:
        message = f"topic {full_name} cannot be recovered: its cluster has no object storage"
        raise UserError(message, hint="Open the cluster with its object storage.")
    where = location_named(storage, full_name) if location is None else TopicLocation.parse(location)
    found = recoverable(storage, where, cluster.cluster_id)
    shape = TopicShape(partitions=found.partitions, replication_factor=found.replication_factor, configs=configs)

    def decide(draft: Draft) -> None:
        cluster.permissions.check(draft, Operation.CREATE, Kind.TOPIC, full_name)
        begin(draft, full_name, shape, topic_id=topic_id, location=found.location, found=found.configs)

    cluster.catalog.commit(decide)
    recoveries = Recoveries(cluster.store, cluster.catalog, cluster.remote, cluster.now_ms, lambda: None)
    for error in recoveries.finish(lambda name: name == full_name).values():
        if error is not None:
            raise error


def fetch_in(catalog: Catalog, full_name: str, now_ms: int) -> Fetch:
    """Return what of a recovered topic is brought into the local tier at once: its initial local retention."""
    configs = set_configs(catalog, full_name)

    def limit(key: str) -> int | None:
        value = int(configs[key][0]) if key in configs else None
        return None if value is None or value < 0 else value

    back_ms, most = limit("initial.retention.local.target.ms"), limit("initial.retention.local.target.bytes")
    return Fetch(None if back_ms is None else now_ms - back_ms, most)
