"""Recovery of whole topics: every topic that is being made from object storage is brought to its end, by anybody.

What is done stays done, however often it is begun: `Recovery` makes what is not there, and one commit opens the topic.
A topic that was deleted meanwhile takes what was copied for it along.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.catalog.configs import set_configs
from reconciler.embedded.catalog.encryption import key_of
from reconciler.embedded.catalog.lookups import names_by_id, topic_with_id
from reconciler.embedded.catalog.recovering import recover_topic as begin
from reconciler.embedded.catalog.recovering import recovered
from reconciler.embedded.catalog.tiering import TopicLocation, tiering_of
from reconciler.embedded.catalog.topics import TopicShape
from reconciler.embedded.keys import location_prefix
from reconciler.embedded.partition.removing import remove_partition
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, write_topic_manifest
from reconciler.embedded.remote.recovery.locating import located, location_named, recoverable
from reconciler.embedded.remote.recovery.partitions import Fetch, Recovery
from reconciler.embedded.threads import SideBySide
from reconciler.errors import ReconcilerError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore

PARTITIONS: Final = 8
"""Partitions of one topic that are made side by side."""
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Recoveries:
    """The recoveries of one cluster. Safe to run in several processes at once."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None]
    """Asked before each copy and each swap, from any thread; may raise, and the rest is done by whoever comes next."""
    copied: Callable[[Entry], object] = lambda _segment: None
    """Told, from any thread, of each segment that was copied."""

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
            for _ in SideBySide(threads, _WAITING).over(recover, range(source.partitions)):
                self.may_go_on()
        self._say(remote, topic)
        after = self.catalog.commit(lambda draft: recovered(draft, topic.id), may_go_on=self.may_go_on)
        if topic_with_id(after, topic.id, full_name) is None:
            self._discard(remote, topic, tiering.location, source.partitions)

    def _say(self, remote: RemoteTier, topic: TopicEntry) -> None:
        """Let object storage say what was made, so that it can be recovered in turn."""
        now = self.catalog.read()
        name = names_by_id(now, [topic.id]).get(topic.id)
        if name is not None:
            self.may_go_on()
            write_topic_manifest(remote.storage, TopicManifest.of(now, name, remote.cluster_id))

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
