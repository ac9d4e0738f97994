"""The embedded cluster as a library: a streaming platform in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, overload

from reconciler.embedded.acl import Permissions, check_may_append, find_visible_topic
from reconciler.embedded.admin import Admin
from reconciler.embedded.catalog.tables import check_served
from reconciler.embedded.clients.group_admin import Groups
from reconciler.embedded.objects import create_cluster, read_cluster_id
from reconciler.errors import ReconcilerError, UserError
from reconciler.records.log import Isolation, LostOffsets, parse_isolation

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.check.sweep import SweepResult
    from reconciler.embedded.clients.consumer import Beginning, Consumer, Record
    from reconciler.embedded.clients.producer import Producer, SequencedProducer
    from reconciler.embedded.clients.topic_log import EmbeddedLog, EmbeddedSink
    from reconciler.embedded.clients.transactional_producer import EmbeddedAppends, TransactionalProducer
    from reconciler.embedded.link_side import ClusterLinks
    from reconciler.embedded.maintenance.passes import Upkeep
    from reconciler.embedded.mounts.mounts import Mounts
    from reconciler.objectstore.base import ObjectStore


# Methods that need pyarrow import it, because catalog operations work without it.
# ruff: noqa: PLC0415


class EmbeddedCluster(Admin):
    """One cluster in one object store. Thread-safe; several processes may open it."""

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        storage: ObjectStore | None = None,
    ) -> EmbeddedCluster:
        """Open an existing cluster; `new_id` returns ids of new topics."""
        cluster_id = read_cluster_id(store)
        if cluster_id is None:
            raise UserError(f"there is no cluster at {store.url}", hint="Create it first, or correct the location.")
        return cls(store, cluster_id, now_ms=now_ms, new_id=new_id, storage=storage)

    @classmethod
    def create(
        cls,
        store: ObjectStore,
        cluster_id: str | None = None,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        storage: ObjectStore | None = None,
    ) -> EmbeddedCluster:
        """Open the cluster in a store; create it in an empty store."""
        existing_id = create_cluster(store, cluster_id or new_id())
        if cluster_id is not None and existing_id != cluster_id:
            message = f"{store.url} is cluster {existing_id}, not {cluster_id}"
            raise UserError(message, hint="Correct the location or the id; nothing was changed.")
        return cls(store, existing_id, now_ms=now_ms, new_id=new_id, storage=storage)

    def acting_as(self, principal: str | None, host: str = "*") -> EmbeddedCluster:
        """Return this cluster for one principal; `None` is the super user.

        For host `*`, only rules for all hosts apply. Calls without permission raise `NotAuthorizedError`.
        """
        cluster = copy(self)
        cluster.permissions = Permissions.of(principal, host)
        return cluster

    def finish_rewrites(self, is_stopped: Callable[[], bool] = lambda: False) -> int:
        """Re-encrypt objects under their namespaces' KMS keys; return how many topics."""
        from reconciler.embedded.maintenance.roll import finish_rewrites

        return finish_rewrites(self.store, self.catalog, is_stopped)

    def recover_topic(
        self, full_name: str, location: str | None = None, *, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic from a location in object storage, and wait for its data.

        By default the only location with that topic name is used (`remote.recovery`). `configs` override the stored
        ones.
        """
        from reconciler.embedded.mounts.recovery import recover_topic

        recover_topic(self, full_name, location, configs or {}, topic_id=self._new_id())

    def finish_recoveries(
        self,
        is_wanted: Callable[[str], bool] = lambda _full_name: True,
        *,
        may_go_on: Callable[[], None] = lambda: None,
        copied: Callable[[Entry], object] = lambda _segment: None,
    ) -> Mapping[str, ReconcilerError | None]:
        """Finish the recovery of wanted topics (by full name); return each one's error or `None`, by topic id.

        `may_go_on` runs before each copy, from any thread, and may raise. `copied` runs after each segment.
        """
        from reconciler.embedded.mounts.recovery import Recoveries

        self.catalog.read()
        return Recoveries(self.store, self.catalog, self.remote, self.now_ms, may_go_on, copied).finish_wanted(
            is_wanted
        )

    def replicate_topic(self, full_name: str, location: str) -> None:
        """Create a read replica of a location in object storage, as the super user."""
        from reconciler.archives.location import TopicLocation
        from reconciler.embedded.tiered.replicas import create_replica_topic, read_replica_source

        self.permissions.check_super_user(f"make a read replica of {location}")
        if self.storage is None:
            message = f"topic {full_name} cannot be a read replica: its cluster has no object storage"
            raise UserError(message, hint="Open the cluster with the object storage of its source.")
        source, topic_id = read_replica_source(self.storage, TopicLocation.parse(location)), self._new_id()
        self.catalog.commit(lambda draft: create_replica_topic(draft, full_name, source, topic_id=topic_id))
        for error in self.follow_replicas(lambda name: name == full_name).values():
            if isinstance(error, ReconcilerError):
                raise error

    def follow_replicas(
        self,
        is_wanted: Callable[[str], bool] = lambda _full_name: True,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Mapping[str, int | ReconcilerError]:
        """Refresh the wanted read replicas (by full name) from their sources.

        Return the number of changed partitions, or the error, by topic id.
        """
        from reconciler.embedded.tiered.replicas import Replicas

        self.catalog.read()
        return Replicas(self.store, self.catalog, self.remote, self.now_ms, is_stopped).refresh_wanted(is_wanted)

    @property
    def mounts(self) -> Mounts:
        """The cluster's migrations and mountable topics."""
        from reconciler.embedded.mounts.mounts import Mounts

        return Mounts(self)

    @property
    def linking(self) -> ClusterLinks:
        """The cluster's links and mirrors."""
        from reconciler.embedded.link_side import ClusterLinks

        return ClusterLinks(self)

    def finish_transactions(self) -> int:
        """Complete decided transactions and abort overdue ones; return how many."""
        from reconciler.embedded.clients.transactions import finish_transactions

        return finish_transactions(self.store, self.catalog, self.now_ms())

    def upkeep(
        self,
        *,
        is_wanted: Callable[[str], bool] = lambda _full_name: True,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Upkeep:
        """Return a maintenance pass over the wanted topics."""
        from reconciler.embedded.maintenance.passes import Upkeep

        return Upkeep(
            self.store, self.catalog, self.cluster_id, self.now_ms, is_wanted, is_stopped, storage=self.storage
        )

    def sweep(self, *, unless_recent: bool = False) -> SweepResult:
        """Delete unreferenced objects older than a day by the store's clock."""
        from reconciler.embedded.check.sweep import sweep_store

        return sweep_store(self.store, self.catalog, unless_recent=unless_recent, storage=self.storage)

    @overload
    def producer(self, transactional_id: None = None, *, delivery_timeout_ms: int = ...) -> Producer: ...

    @overload
    def producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = ..., delivery_timeout_ms: int = ...
    ) -> TransactionalProducer: ...

    def producer(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
    ) -> Producer:
        """Return a producer that retries until the delivery timeout; with a transactional id, a transactional one."""
        from reconciler.embedded.clients.producer import Producer
        from reconciler.embedded.clients.transactional_producer import TransactionalProducer

        if transactional_id is None:
            return Producer(self.context, delivery_timeout_ms=delivery_timeout_ms)
        return TransactionalProducer(
            self.context,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
        )

    def sequenced_producer(
        self, producer_id: str, *, epoch: int = 0, delivery_timeout_ms: int = 120_000
    ) -> SequencedProducer:
        """Return a producer whose caller chooses its id and sequence numbers."""
        from reconciler.embedded.clients.producer import SequencedProducer

        return SequencedProducer(self.context, producer_id, epoch=epoch, delivery_timeout_ms=delivery_timeout_ms)

    def appends(self, full_name: str) -> EmbeddedAppends:
        """Return a sink: many tasks stage new records, one transaction publishes them."""
        from reconciler.embedded.clients.transactional_producer import EmbeddedAppends

        return EmbeddedAppends.of(self.context, full_name)

    def consume(
        self, full_name: str, *, start_ms: int | None = None, isolation: Isolation = "read_committed"
    ) -> Iterator[Record]:
        """Yield a topic's current records, partition by partition."""
        from reconciler.embedded.clients.consumer import iter_current_records

        return iter_current_records(self.log(full_name, isolation=isolation), start_ms=start_ms)

    def consumer(  # noqa: PLR0913 - each is an option of a consumer, and has a default
        self,
        group: str | None = None,
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        isolation: Isolation = "read_committed",
        auto_offset_reset: Beginning = "earliest",
        partitions: Iterable[int] | None = None,
        on_missing: Callable[[LostOffsets], None] | None = None,
    ) -> Consumer:
        """Return a consumer of topics, by name or by a regular expression over full names.

        See `Consumer` for `partitions`, `log` for `on_missing`.
        """
        from reconciler.embedded.clients.consumer import Consumer, ConsumerOptions, Subscription

        which = None if partitions is None else tuple(dict.fromkeys(partitions))
        reading = ConsumerOptions(group, parse_isolation(isolation), auto_offset_reset, which, on_missing)
        return Consumer(self.context, Subscription.of(topics, pattern), reading)

    @property
    def groups(self) -> Groups:
        """The cluster's consumer groups."""
        return Groups.of(self.context)

    def log(
        self,
        full_name: str,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[LostOffsets], None] | None = None,
    ) -> EmbeddedLog:
        """Return a topic's log; `read_uncommitted` includes records of open transactions.

        `on_missing` gets missing or damaged offsets, which are skipped; without it, reading fails.
        """
        from reconciler.embedded.clients.topic_log import EmbeddedLog

        topic, isolation = self.topic(full_name), parse_isolation(isolation)
        check_served(full_name, topic)
        return EmbeddedLog(
            self.store, self.catalog, full_name, topic.id, self.permissions, isolation, self.remote, on_missing
        )

    def sink(self, full_name: str) -> EmbeddedSink:
        """Return a sink for offset ranges of another log.

        It writes to a mirror as the link, to other topics as a producer.
        """
        from reconciler.embedded.clients.topic_log import EmbeddedSink
        from reconciler.embedded.segments.admission import read_append_rules
        from reconciler.embedded.segments.gate import AppendGate, find_writer

        catalog = self.catalog.read()
        check_may_append(self.permissions, catalog, full_name)
        topic, rules = find_visible_topic(self.permissions, catalog, full_name), read_append_rules(catalog, full_name)
        check_served(full_name, topic)
        gate = AppendGate(self.store, self.catalog, full_name, topic.id, find_writer(topic))
        return EmbeddedSink(gate, rules, self.permissions)
