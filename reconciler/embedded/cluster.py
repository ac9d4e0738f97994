"""The embedded cluster: a whole streaming platform in an object store, as a library."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from reconciler.embedded.clusterfile import create_cluster, read_cluster_id
from reconciler.embedded.clustergroups import Groups
from reconciler.embedded.commits import CatalogRegister
from reconciler.embedded.configs import EffectiveConfig, effective_configs
from reconciler.embedded.deletion import finish_deletions
from reconciler.embedded.entries import NamespaceEntry
from reconciler.embedded.links import create_link, create_mirror, delete_link, follow_source, source_topic
from reconciler.embedded.lookups import topic_named
from reconciler.embedded.namespaces import (
    alter_namespace,
    create_namespace,
    delete_namespace,
    encrypt_namespace,
    limit_namespace,
    namespaces_under,
)
from reconciler.embedded.operations import Kind, Operation
from reconciler.embedded.permissions import SUPER_USER, Permissions, check_deletion, check_writing
from reconciler.embedded.rules import set_namespace_acls, set_topic_acls
from reconciler.embedded.topics import TopicShape, alter_topic, create_topic, delete_topic, move_topic
from reconciler.errors import UserError
from reconciler.objectstore.encryption import refuse_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reconciler.embedded.catalog import Catalog, Draft
    from reconciler.embedded.consumer import Beginning, Consumer, Record
    from reconciler.embedded.entries import AclEntry, LinkEntry, QuotaEntry, TopicEntry
    from reconciler.embedded.links import MirrorShape
    from reconciler.embedded.log import EmbeddedLog
    from reconciler.embedded.producer import Producer
    from reconciler.embedded.sequenced import SequencedProducer
    from reconciler.embedded.sink import EmbeddedSink
    from reconciler.embedded.sweeping import Swept
    from reconciler.embedded.transactional import TransactionalProducer
    from reconciler.embedded.upkeep import Upkeep
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Isolation
    from reconciler.resources.sourcetopic import SourceTopic

# Reading and changing the catalog must not load pyarrow: what touches records is imported where it is asked for.
# ruff: noqa: PLC0415


class EmbeddedCluster:
    """One cluster in one store. Safe to share between threads; several processes may open the same one."""

    def __init__(
        self, store: ObjectStore, cluster_id: str, *, now_ms: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        """Use `open` or `create`, which look at what is there."""
        self.store = store
        self.cluster_id = cluster_id
        self.now_ms = now_ms
        self._new_id = new_id
        self.catalog = CatalogRegister(store)
        self.permissions = SUPER_USER
        """What who acts may do: `cluster.permissions.check(catalog, operation, kind, full name)`."""

    @classmethod
    def open(cls, store: ObjectStore, *, now_ms: Callable[[], int], new_id: Callable[[], str]) -> EmbeddedCluster:
        """Open a cluster that is there. `now_ms` is the clock of records, `new_id` makes the ids of topics.

        Raises:
            UserError: There is none, it is something else, or of a newer format.
        """
        cluster_id = read_cluster_id(store)
        if cluster_id is None:
            raise UserError(f"there is no cluster at {store.url}", hint="Create it first, or correct the location.")
        return cls(store, cluster_id, now_ms=now_ms, new_id=new_id)

    @classmethod
    def create(
        cls, store: ObjectStore, cluster_id: str | None = None, *, now_ms: Callable[[], int], new_id: Callable[[], str]
    ) -> EmbeddedCluster:
        """Open the cluster in a store, creating it where the store is empty.

        Raises:
            UserError: The store holds something else, or another cluster than `cluster_id`.
        """
        found = create_cluster(store, cluster_id or new_id())
        if cluster_id is not None and found != cluster_id:
            message = f"{store.url} is cluster {found}, not {cluster_id}"
            raise UserError(message, hint="Correct the location or the id; nothing was changed.")
        return cls(store, found, now_ms=now_ms, new_id=new_id)

    def acting_as(self, principal: str | None, host: str = "*") -> EmbeddedCluster:
        """Return the same cluster for one principal, held to the access rules; `None` is the super user.

        Without a host only rules for all hosts are about it.

        Raises:
            UserError: That is nobody's name.
        """
        cluster = copy(self)
        cluster.permissions = Permissions.of(principal, host)
        return cluster

    def create_namespace(
        self,
        name: str,
        configs: Mapping[str, str] | None = None,
        *,
        quotas: QuotaEntry | None = None,
        kms_key_id: str | None = None,
    ) -> None:
        """Make a namespace and every tier above it; what is below inherits `configs` and lies under its key.

        Raises:
            UserError: The store cannot encrypt under a key, or it is there and differs.
        """
        self._check_key(kms_key_id)
        asked = NamespaceEntry(configs or {}, quotas=quotas, kms_key_id=kms_key_id)
        self._commit(lambda draft: create_namespace(draft, name, asked), (Operation.CREATE, Kind.NAMESPACE, name))

    def alter_namespace(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set configs of a namespace; `None` removes one."""
        self._commit(
            lambda draft: alter_namespace(draft, name, configs), (Operation.ALTER_CONFIGS, Kind.NAMESPACE, name)
        )

    def limit_namespace(self, name: str, quotas: QuotaEntry | None) -> None:
        """Set or (`None`) lift the quotas of a namespace: topics and partitions are held to at every commit."""
        self._commit(lambda draft: limit_namespace(draft, name, quotas), (Operation.ALTER, Kind.NAMESPACE, name))

    def encrypt_namespace(self, name: str, kms_key_id: str | None) -> None:
        """Set or (`None`) remove the key of a namespace; `finish_rewrites` brings what is there under it.

        Raises:
            UserError: The store cannot encrypt under a key.
        """
        self._check_key(kms_key_id)
        self._commit(lambda draft: encrypt_namespace(draft, name, kms_key_id), (Operation.ALTER, Kind.NAMESPACE, name))

    def set_namespace_acls(self, name: str, acls: Iterable[AclEntry]) -> None:
        """Give a namespace these access rules and no others; everything below inherits them."""
        rules = tuple(acls)
        self._commit(lambda draft: set_namespace_acls(draft, name, rules), (Operation.ALTER, Kind.NAMESPACE, name))

    def delete_namespace(self, name: str, *, recursive: bool = False) -> bool:
        """Delete a namespace with its topics, marked first; say whether it was there.

        Raises:
            BlockedError: It holds namespaces and `recursive` is not set; nothing is deleted.
        """

        def decide(draft: Draft) -> bool:
            check_deletion(self.permissions, draft, name)
            return delete_namespace(draft, name, recursive=recursive)

        return self._deleting(decide)

    def namespaces(self, under: str = "") -> list[str]:
        """Return the namespaces below one that may be described, all of them below the default one."""
        catalog = self.catalog.read()
        return [name for name in namespaces_under(catalog, under) if self._is_shown(catalog, Kind.NAMESPACE, name)]

    def create_topic(self, full_name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic in a namespace that exists."""
        shape, topic_id = TopicShape(partitions=partitions, configs=configs or {}), self._new_id()
        self._commit(
            lambda draft: create_topic(draft, full_name, shape, topic_id=topic_id),
            (Operation.CREATE, Kind.TOPIC, full_name),
        )

    def alter_topic(
        self, full_name: str, configs: Mapping[str, str | None] | None = None, *, partitions: int | None = None
    ) -> None:
        """Set configs of a topic, `None` lets one inherit again; add partitions."""
        needed = [] if partitions is None else [(Operation.ALTER, Kind.TOPIC, full_name)]
        if configs or not needed:
            needed.append((Operation.ALTER_CONFIGS, Kind.TOPIC, full_name))
        self._commit(lambda draft: alter_topic(draft, full_name, configs or {}, partitions=partitions), *needed)

    def set_topic_acls(self, full_name: str, acls: Iterable[AclEntry]) -> None:
        """Give a topic these access rules and no others, beside those of its tiers."""
        rules = tuple(acls)
        self._commit(lambda draft: set_topic_acls(draft, full_name, rules), (Operation.ALTER, Kind.TOPIC, full_name))

    def move_topic(self, full_name: str, to: str) -> None:
        """Rename a topic, also into another namespace that exists; its records and offsets stay."""
        self._commit(
            lambda draft: move_topic(draft, full_name, to, cluster_id=self.cluster_id),
            (Operation.DELETE, Kind.TOPIC, full_name),
            (Operation.CREATE, Kind.TOPIC, to),
        )

    def delete_topic(self, full_name: str) -> bool:
        """Delete a topic with its records, marked first; say whether it was there."""
        return self._deleting(lambda draft: delete_topic(draft, full_name), (Operation.DELETE, Kind.TOPIC, full_name))

    def topics(self) -> Mapping[str, TopicEntry]:
        """Return every topic that may be described, by full name, sorted."""
        catalog = self.catalog.read()
        return {
            name: entry for name, entry in sorted(catalog.topics.items()) if self._is_shown(catalog, Kind.TOPIC, name)
        }

    def topic(self, full_name: str) -> TopicEntry:
        """Return a topic.

        Raises:
            UserError: It does not exist.
            NotAuthorizedError: It may not be described, be it there or not.
        """
        catalog = self.catalog.read()
        self.permissions.check(catalog, Operation.DESCRIBE, Kind.TOPIC, full_name)
        if full_name not in catalog.topics and not self.permissions.is_super_user:
            catalog = replace(catalog, topics=self.topics())  # its error names what is nearly called so
        return topic_named(catalog, full_name)

    def effective_configs(self, full_name: str) -> dict[str, EffectiveConfig]:
        """Return every config of a topic and where it comes from: the topic, a namespace, or the default."""
        catalog = self.catalog.read()
        self.permissions.check(catalog, Operation.DESCRIBE_CONFIGS, Kind.TOPIC, full_name)
        topic_named(catalog, full_name)
        return effective_configs(catalog, full_name)

    def create_link(self, name: str, entry: LinkEntry) -> None:
        """Make a link whose destination is this cluster. Links and their mirrors are the super user's."""
        self.permissions.check_super_user(f"create link {name}")
        self.catalog.commit(lambda draft: create_link(draft, name, entry))

    def delete_link(self, name: str) -> bool:
        """Remove a link without live mirrors; say whether it was there."""
        self.permissions.check_super_user(f"delete link {name}")
        return self._deleting(lambda draft: delete_link(draft, name))

    def create_mirror(self, full_name: str, shape: MirrorShape, of: SourceTopic) -> None:
        """Make the destination of a mirror; `of` is what its source has."""
        self.permissions.check_super_user(f"create mirror {full_name}")
        topic_id = self._new_id()
        self.catalog.commit(lambda draft: create_mirror(draft, full_name, shape, of, topic_id=topic_id))

    def follow_source(self, full_name: str, source: SourceTopic) -> None:
        """Bring a mirror's partitions and synced configs to what its source has; commits only where they differ."""
        self.permissions.check_super_user(f"write to mirror {full_name}")
        self.catalog.commit(lambda draft: follow_source(draft, full_name, source))

    def source_topic(self, full_name: str) -> SourceTopic:
        """Return what a mirror of a topic of this cluster follows."""
        catalog = self.catalog.read()
        self.permissions.check(catalog, Operation.DESCRIBE, Kind.TOPIC, full_name)
        return source_topic(catalog, full_name)

    def finish_deletions(self) -> int:
        """Delete the objects of what is marked; return how many topics it was."""
        return finish_deletions(self.store, self.catalog)

    def finish_rewrites(self) -> int:
        """Write anew what lies under another key than its namespace has now; return how many topics are done."""
        from reconciler.embedded.rewriting import finish_rewrites

        return finish_rewrites(self.store, self.catalog)

    def finish_transactions(self) -> int:
        """Finish what is decided, abort what is open for longer than its time-out; return how many transactions."""
        from reconciler.embedded.finishing import finish_transactions

        return finish_transactions(self.store, self.catalog, self.now_ms())

    def upkeep(
        self,
        *,
        is_wanted: Callable[[str], bool] = lambda _full_name: True,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Upkeep:
        """Return one pass of upkeep over the partitions of the topics that are wanted: `retain`, `roll`, `compact`."""
        from reconciler.embedded.upkeep import Upkeep

        return Upkeep(self.store, self.catalog, self.cluster_id, self.now_ms, is_wanted, is_stopped)

    def sweep(self, *, unless_recent: bool = False) -> Swept:
        """Delete what nobody names and is older than a day by the store's own clock."""
        from reconciler.embedded.sweeping import sweep

        return sweep(self.store, self.catalog, unless_recent=unless_recent)

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
        """Return what appends records, and tries until the delivery time-out where stores or races refuse.

        With a transactional id what it appends is committed or aborted as a whole.

        Raises:
            UserError: No transactional id can have that name.
        """
        from reconciler.embedded.producer import Producer
        from reconciler.embedded.transactional import TransactionalProducer

        if transactional_id is None:
            return Producer(self, delivery_timeout_ms=delivery_timeout_ms)
        return TransactionalProducer(
            self,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
        )

    def sequenced_producer(
        self, producer_id: str, *, epoch: int = 0, delivery_timeout_ms: int = 120_000
    ) -> SequencedProducer:
        """Return what appends batches under an id and sequence numbers of the caller's own.

        Raises:
            UserError: No producer can have that id or epoch.
        """
        from reconciler.embedded.sequenced import SequencedProducer

        return SequencedProducer(self, producer_id, epoch=epoch, delivery_timeout_ms=delivery_timeout_ms)

    def consume(
        self, full_name: str, *, start_ms: int | None = None, isolation: Isolation = "read_committed"
    ) -> Iterator[Record]:
        """Yield the records of a topic as they are at the call, partition by partition."""
        from reconciler.embedded.consumer import consume

        return consume(self.log(full_name, isolation=isolation), start_ms=start_ms)

    def consumer(
        self,
        group: str | None = None,
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        isolation: Isolation = "read_committed",
        auto_offset_reset: Beginning = "earliest",
        partitions: Iterable[int] | None = None,
    ) -> Consumer:
        """Return what reads topics, by name or by a regular expression over full names, from where a group left off.

        There is no membership: it reads all `partitions` unless it is told which.

        Raises:
            UserError: A topic does not exist, or the pattern is no regular expression.
        """
        from reconciler.embedded.consumer import Consumer, Reading
        from reconciler.embedded.subscription import Subscription

        which = None if partitions is None else tuple(dict.fromkeys(partitions))
        reading = Reading(group, isolation, auto_offset_reset, which)
        return Consumer(self, Subscription.of(topics, pattern), reading)

    @property
    def groups(self) -> Groups:
        """The consumer groups: committed offsets, lag, resets."""
        return Groups(self.store, self.catalog, self.permissions, self.now_ms)

    def log(self, full_name: str, *, isolation: Isolation = "read_committed") -> EmbeddedLog:
        """Return the records of a topic, to be read by partition and offset; uncommitted: those not decided on, too."""
        from reconciler.embedded.log import EmbeddedLog

        topic_id = self.topic(full_name).id
        return EmbeddedLog(self.store, self.catalog, full_name, topic_id, self.permissions, isolation)

    def sink(self, full_name: str) -> EmbeddedSink:
        """Return where ranges of another log are written: for a mirror as its link, else as a producer."""
        from reconciler.embedded.admission import rules_of
        from reconciler.embedded.gate import Gate, writer_of
        from reconciler.embedded.sink import EmbeddedSink

        catalog = self.catalog.read()
        check_writing(self.permissions, catalog, full_name)
        topic, rules = topic_named(catalog, full_name), rules_of(catalog, full_name)
        gate = Gate(self.store, self.catalog, full_name, topic.id, writer_of(topic))
        return EmbeddedSink(gate, rules, self.permissions)

    def _check_key(self, kms_key_id: str | None) -> None:
        if not self.store.encrypts:
            refuse_key(self.store.url, kms_key_id)

    def _is_shown(self, catalog: Catalog, kind: Kind, name: str) -> bool:
        return self.permissions.may(catalog, Operation.DESCRIBE, kind, name)

    def _commit(self, decide: Callable[[Draft], object], *needed: tuple[Operation, Kind, str]) -> None:
        """Commit what whoever acts may do, by the rules as they are at the commit."""

        def checked(draft: Draft) -> None:
            for operation, kind, name in needed:
                self.permissions.check(draft, operation, kind, name)
            decide(draft)

        self.catalog.commit(checked)

    def _deleting(self, delete: Callable[[Draft], bool], *needed: tuple[Operation, Kind, str]) -> bool:
        was_there = False

        def decide(draft: Draft) -> None:
            nonlocal was_there
            was_there = delete(draft)

        self._commit(decide, *needed)
        self.finish_deletions()
        return was_there
