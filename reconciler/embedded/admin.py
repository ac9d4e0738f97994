"""Administration of an embedded cluster: namespaces, topics and links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.archives.storage import create_storage
from reconciler.embedded.acl import (
    SUPER_USER,
    Kind,
    Operation,
    check_namespace_deletion,
    find_visible_topic,
    set_namespace_acls,
    set_topic_acls,
)
from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.catalog.mirror_tables import (
    MirrorShape,
    create_link,
    create_mirror,
    delete_link,
    describe_source_topic,
    update_mirror,
)
from reconciler.embedded.catalog.model import AclEntry, NamespaceEntry, QuotaEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, check_not_replica
from reconciler.embedded.catalog.tiering_state import alter_cluster, bind_storage, list_disabling_topics
from reconciler.embedded.catalog.topic_configs import EffectiveConfig, compute_effective_configs
from reconciler.embedded.catalog.topics import (
    TopicShape,
    alter_namespace,
    alter_topic,
    create_namespace,
    create_topic,
    delete_namespace,
    delete_topic,
    encrypt_namespace,
    limit_namespace,
    list_namespaces_under,
    move_topic,
)
from reconciler.embedded.context import ClusterContext
from reconciler.embedded.segments.gate import RecentHeads
from reconciler.embedded.tiered.remote_sweep import RemoteDeletion
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.topic_deletion import finish_deletions, finish_disablings
from reconciler.objectstore.base import ObjectStore, reject_kms_key

if TYPE_CHECKING:
    from reconciler.resources.mirrors import LinkEntry, SourceTopic


_NEEDS_TOPIC: Final = frozenset({Operation.ALTER, Operation.ALTER_CONFIGS})


class Admin:
    """Catalog operations of one principal on one cluster."""

    def __init__(
        self,
        store: ObjectStore,
        cluster_id: str,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        storage: ObjectStore | None = None,
    ) -> None:
        self.store = store
        self.storage = storage
        self.cluster_id = cluster_id
        self.now_ms = now_ms
        self._new_id = new_id
        self.catalog = CatalogRegister(store)
        self._heads = RecentHeads()
        self.cache_folder: str | None = None
        self.permissions = SUPER_USER

    @property
    def context(self) -> ClusterContext:
        """Resources that producers, consumers and transactions share."""
        return ClusterContext(
            self.store,
            self.catalog,
            self.permissions,
            self.now_ms,
            self.cluster_id,
            self.storage,
            self.cache_folder,
            self._heads,
        )

    @property
    def remote(self) -> RemoteTier | None:
        """The remote tier; `None` without object storage."""
        return self.context.remote

    def fresh_id(self) -> str:
        """Return an id for a new topic."""
        return self._new_id()

    def alter_cluster(self, properties: Mapping[str, str | None]) -> None:
        """Set cluster properties (`None` resets one), and bind the cluster to its object storage."""
        self.permissions.check_super_user("change the cluster")
        storage_id = None if self.storage is None else create_storage(self.storage, self._new_id)

        def decide(draft: Draft) -> None:
            alter_cluster(draft, properties)
            if storage_id is not None:
                bind_storage(draft, storage_id)

        self.catalog.commit(decide)

    def create_namespace(
        self,
        name: str,
        configs: Mapping[str, str] | None = None,
        *,
        quotas: QuotaEntry | None = None,
        kms_key_id: str | None = None,
    ) -> None:
        """Create a namespace and its missing parents. Its contents inherit its configs."""
        self._check_kms_key(kms_key_id)
        entry = NamespaceEntry(configs or {}, quotas=quotas, kms_key_id=kms_key_id)
        self._commit(lambda draft: create_namespace(draft, name, entry), (Operation.CREATE, Kind.NAMESPACE, name))

    def alter_namespace(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set a namespace's configs; `None` removes one.

        Wait until any tiering that this disables is off (KIP-950).
        """
        self._commit_and_disable_tiering(
            lambda draft: alter_namespace(draft, name, configs), (Operation.ALTER_CONFIGS, Kind.NAMESPACE, name)
        )

    def limit_namespace(self, name: str, quotas: QuotaEntry | None) -> None:
        """Set a namespace's quotas; `None` removes them."""
        self._commit(lambda draft: limit_namespace(draft, name, quotas), (Operation.ALTER, Kind.NAMESPACE, name))

    def encrypt_namespace(self, name: str, kms_key_id: str | None) -> None:
        """Set a namespace's KMS key; `None` removes it. `finish_rewrites` re-encrypts existing objects."""
        self._check_kms_key(kms_key_id)
        self._commit(lambda draft: encrypt_namespace(draft, name, kms_key_id), (Operation.ALTER, Kind.NAMESPACE, name))

    def set_namespace_acls(self, name: str, acls: Iterable[AclEntry]) -> None:
        """Replace a namespace's access rules, which also apply to its contents."""
        rules = tuple(acls)
        self._commit(lambda draft: set_namespace_acls(draft, name, rules), (Operation.ALTER, Kind.NAMESPACE, name))

    def delete_namespace(self, name: str, *, recursive: bool = False) -> bool:
        """Delete a namespace with its topics; return whether it existed.

        Raises:
            BlockedError: It contains namespaces, and `recursive` is not set.
        """

        def decide(draft: Draft) -> bool:
            check_namespace_deletion(self.permissions, draft, name)
            return delete_namespace(draft, name, cluster_id=self.cluster_id, recursive=recursive)

        return self._commit_and_delete(decide)

    def namespaces(self, under: str = "") -> list[str]:
        """Return the namespaces below `under` (default: all) that the caller may describe."""
        catalog = self.catalog.read()
        return [
            name for name in list_namespaces_under(catalog, under) if self._may_describe(catalog, Kind.NAMESPACE, name)
        ]

    def create_topic(self, full_name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic in an existing namespace."""
        shape, topic_id = TopicShape(partitions=partitions, configs=configs or {}), self._new_id()
        self._commit(
            lambda draft: create_topic(draft, full_name, shape, topic_id=topic_id),
            (Operation.CREATE, Kind.TOPIC, full_name),
        )

    def alter_topic(
        self, full_name: str, configs: Mapping[str, str | None] | None = None, *, partitions: int | None = None
    ) -> None:
        """Set a topic's configs (`None` removes one), and add partitions.

        A removed config is inherited. Wait until any tiering that this disables is off.
        """
        needed = [] if partitions is None else [(Operation.ALTER, Kind.TOPIC, full_name)]
        if configs or not needed:
            needed.append((Operation.ALTER_CONFIGS, Kind.TOPIC, full_name))
        self._commit_and_disable_tiering(
            lambda draft: alter_topic(draft, full_name, configs or {}, partitions=partitions), *needed
        )

    def set_topic_acls(self, full_name: str, acls: Iterable[AclEntry]) -> None:
        """Replace a topic's access rules; those of its namespaces also apply."""
        rules = tuple(acls)
        self._commit(lambda draft: set_topic_acls(draft, full_name, rules), (Operation.ALTER, Kind.TOPIC, full_name))

    def move_topic(self, full_name: str, to: str) -> None:
        """Rename a topic, possibly into another existing namespace. Records and offsets stay."""

        def decide(draft: Draft) -> None:
            find_visible_topic(self.permissions, draft, full_name)
            move_topic(draft, full_name, to, cluster_id=self.cluster_id)

        self._commit_and_disable_tiering(
            decide, (Operation.DELETE, Kind.TOPIC, full_name), (Operation.CREATE, Kind.TOPIC, to)
        )

    def delete_topic(self, full_name: str) -> bool:
        """Delete a topic with its records; return whether it existed."""
        return self._commit_and_delete(
            lambda draft: delete_topic(draft, full_name, cluster_id=self.cluster_id),
            (Operation.DELETE, Kind.TOPIC, full_name),
        )

    def topics(self) -> Mapping[str, TopicEntry]:
        """Return the topics that the caller may describe, sorted by full name."""
        catalog = self.catalog.read()
        return {
            name: entry
            for name, entry in sorted(catalog.topics.items())
            if self._may_describe(catalog, Kind.TOPIC, name)
        }

    def topic(self, full_name: str) -> TopicEntry:
        """Return a topic that the caller may describe."""
        return self.context.topic(full_name)

    def effective_configs(self, full_name: str) -> dict[str, EffectiveConfig]:
        """Return all configs of a topic with their sources."""
        catalog = self.catalog.read()
        self.permissions.check_allowed(catalog, Operation.DESCRIBE_CONFIGS, Kind.TOPIC, full_name)
        find_visible_topic(self.permissions, catalog, full_name)
        return compute_effective_configs(catalog, full_name)

    def create_link(self, name: str, entry: LinkEntry) -> None:
        """Create a link to this cluster, as the super user."""
        self.permissions.check_super_user(f"create link {name}")
        self.catalog.commit(lambda draft: create_link(draft, name, entry))

    def delete_link(self, name: str) -> bool:
        """Delete a link without active mirrors; return whether it existed."""
        self.permissions.check_super_user(f"delete link {name}")
        return self._commit_and_delete(lambda draft: delete_link(draft, name))

    def create_mirror(self, full_name: str, shape: MirrorShape, of: SourceTopic) -> None:
        """Create a mirror of the topic `of`."""
        self.permissions.check_super_user(f"create mirror {full_name}")
        topic_id = self._new_id()
        self.catalog.commit(lambda draft: create_mirror(draft, full_name, shape, of, topic_id=topic_id))

    def update_mirror(self, full_name: str, source: SourceTopic) -> None:
        """Copy partitions and synced configs from a mirror's source."""
        self.permissions.check_super_user(f"write to mirror {full_name}")
        self.catalog.commit(lambda draft: update_mirror(draft, full_name, source))

    def source_topic(self, full_name: str) -> SourceTopic:
        """Return the topic properties that a mirror copies."""
        catalog = self.catalog.read()
        self.permissions.check_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, full_name)
        check_not_replica(full_name, find_visible_topic(self.permissions, catalog, full_name), "to mirror it")
        return describe_source_topic(catalog, full_name)

    def finish_deletions(self) -> int:
        """Delete the objects of deleted topics; return how many topics."""
        return finish_deletions(self.store, self.catalog, RemoteDeletion(self.storage, self.cluster_id))

    def finish_disablings(self, *, may_go_on: Callable[[], None] = lambda: None) -> int:
        """Finish disabling the tiering of topics; return how many."""
        return finish_disablings(self.store, self.catalog, self.storage, self.cluster_id, may_go_on=may_go_on)

    def _check_kms_key(self, kms_key_id: str | None) -> None:
        if not self.store.can_encrypt:
            reject_kms_key(self.store.url, kms_key_id)

    def _may_describe(self, catalog: Catalog, kind: Kind, name: str) -> bool:
        return self.permissions.is_allowed(catalog, Operation.DESCRIBE, kind, name)

    def _commit(self, decide: Callable[[Draft], object], *needed: tuple[Operation, Kind, str]) -> None:
        def check_and_decide(draft: Draft) -> None:
            for operation, kind, name in needed:
                self.permissions.check_allowed(draft, operation, kind, name)
                if kind is Kind.TOPIC and operation in _NEEDS_TOPIC:
                    find_visible_topic(self.permissions, draft, name)
            decide(draft)

        self.catalog.commit(check_and_decide)

    def _commit_and_disable_tiering(
        self, decide: Callable[[Draft], object], *needed: tuple[Operation, Kind, str]
    ) -> None:
        began = False

        def decide_and_compare(draft: Draft) -> None:
            nonlocal began
            decide(draft)
            began = list_disabling_topics(draft) != list_disabling_topics(draft.base)

        self._commit(decide_and_compare, *needed)
        if began:
            self.finish_disablings()

    def _commit_and_delete(self, delete: Callable[[Draft], bool], *needed: tuple[Operation, Kind, str]) -> bool:
        was_there = False

        def decide(draft: Draft) -> None:
            nonlocal was_there
            was_there = delete(draft)

        self._commit(decide, *needed)
        self.finish_deletions()
        return was_there
