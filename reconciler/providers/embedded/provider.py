"""Provider of embedded clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.archives.storage import (
    check_not_lost,
    check_storage_place,
    check_usable,
    create_storage,
    read_storage_id,
)
from reconciler.embedded.acl import Kind, Operation, Permissions
from reconciler.embedded.catalog.tables import Catalog, Draft
from reconciler.embedded.catalog.tiering_state import alter_cluster, bind_storage, list_tiered_topics
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.objects import create_cluster, read_cluster_file, read_cluster_id
from reconciler.embedded.tiered.idle_work import TierHousekeeping
from reconciler.errors import RetryableError, StalePlanError, UserError
from reconciler.lifecycles import ROLES
from reconciler.objectstore.wrappers import MeteredStore, RequestMeter
from reconciler.planning.actions import Change, ControlAction, Create, Update, Value
from reconciler.planning.fields import ALL_LINK_FEATURES, KEEP_DIVERGED, OBJECT_STORAGE, PROPERTIES
from reconciler.providers.embedded.client import check_shown, hide_resources, run_batch
from reconciler.providers.embedded.measures import measure_topics
from reconciler.providers.embedded.recovery import EmbeddedArchives, list_recoveries, list_replica_sources
from reconciler.providers.embedded.translate import list_mountings, list_observed
from reconciler.providers.models import check_unchanged
from reconciler.providers.protocol import (
    CompletedAction,
    Edge,
    FailedAction,
    MaintenanceJobResult,
    MaintenancePorts,
    Outcome,
    Scope,
    TopicAddress,
    TopicSizes,
    build_scope_filter,
)
from reconciler.providers.secrets import open_location, open_object_storage
from reconciler.resources.address import Address, full_name_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import (
    Capabilities,
    ClusterIdentity,
    FollowedSource,
    Inventory,
    LiveCluster,
    MirrorSupport,
    Observed,
    ObservedStorage,
    Overview,
    Resource,
    TopicShown,
)
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage, Vitals
from reconciler.resources.mirrors import LinkEntry, MirrorEntry, SourceTopic, compute_mirror_status
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.embedded.clients.group_admin import Groups
    from reconciler.embedded.clients.topic_log import EmbeddedLog, EmbeddedSink
    from reconciler.embedded.clients.transactional_producer import EmbeddedAppends
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.embedded.links import EmbeddedLinks
    from reconciler.providers.embedded.maintenance import EmbeddedTopicProducer
    from reconciler.providers.embedded.mounts import Migrations
    from reconciler.records.log import Isolation, LostOffsets
    from reconciler.resources.acls import AccessBinding
    from reconciler.resources.owners import OwnerChange, ResourceOwner

# ruff: noqa: PLC0415


def observe_storage(catalog: Catalog, storage: ObjectStore | None, root: str) -> ObservedStorage:
    """Return the bound object storage (by the catalog) and the declared one; `root` is the cluster's URL."""
    bound, tiered = catalog.cluster.storage_id, tuple(list_tiered_topics(catalog))
    if storage is None:
        return ObservedStorage(bound, None, tiered)
    try:
        storage_id = read_storage_id(storage)
        if storage_id is None and bound is not None:
            check_not_lost(storage, bound)
        if storage_id is None or storage_id != bound:
            check_storage_place(storage, root)  # The plan reports errors, such as missing rights.
    except UserError as error:
        return ObservedStorage(bound, None, tiered, error)
    return ObservedStorage(bound, storage_id, tiered)


def observe_cluster(
    declared: Cluster, cluster_id: str, catalog: Catalog, storage: ObjectStore | None, *, root: str
) -> Observed:
    """Return the cluster, with its object storage if bound."""
    seen = observe_storage(catalog, storage, root)
    is_bound = seen.declared is not None and seen.declared == seen.bound
    changed = {
        "cluster_id": cluster_id,
        "properties": dict(catalog.cluster.properties),
        "tiering": None,
        "object_storage": declared.spec.object_storage if is_bound else None,
    }
    observed_resource = declared.model_copy(update={"spec": declared.spec.model_copy(update=changed)})
    return Observed(observed_resource, cluster_id, cluster=LiveCluster(seen))


def check_new_locations(store: ObjectStore, storage: ObjectStore) -> None:
    """Reject a root or object storage that a new cluster cannot use."""
    read_cluster_id(store)
    try:
        check_storage_place(storage, store.url)
        if read_storage_id(storage) is None:
            check_not_lost(storage, None)
    except UserError as error:
        raise UserError(f"its objectStorage cannot be used: {error.message}", hint=error.hint) from error


def find_or_create_cluster(store: ObjectStore, wanted: Resource, new_id: Callable[[], str]) -> None:
    """Create a cluster if missing. Reject a different one."""
    cluster_id = wanted.spec.cluster_id if isinstance(wanted, Cluster) else None
    created_id = create_cluster(store, cluster_id or new_id())
    if cluster_id not in {None, created_id}:
        message = f"{store.url} is cluster {created_id}, not {cluster_id}"
        raise UserError(message, hint="Correct spec.clusterId, or the root.")


def change_cluster(action: Create | Update, storage_id: str | None) -> Callable[[Draft], None]:
    """Return the idempotent catalog change of an action on the cluster itself."""
    wanted = dict(_list_requested_properties(action))

    def change_draft(draft: Draft) -> None:
        if isinstance(action, Update):
            properties = [change for change in action.changes if change.path.startswith(PROPERTIES)]
        else:
            properties = [Change(PROPERTIES + name, None, value) for name, value in wanted.items()]
        check_unchanged(action.address, properties, _read_fields(draft))
        alter_cluster(draft, wanted)
        if storage_id is not None:
            bind_storage(draft, storage_id)

    return change_draft


def is_binding(action: Create | Update) -> bool:
    """Return whether an action binds the object storage to the cluster."""
    match action:
        case Create():
            return isinstance(action.after, Cluster) and action.after.spec.object_storage is not None
        case Update():
            return any(change.path == OBJECT_STORAGE and change.after is not None for change in action.changes)
        case _:
            assert_never(action)


def _list_requested_properties(action: Create | Update) -> Iterator[tuple[str, str | None]]:
    match action:
        case Create():
            if isinstance(action.after, Cluster):
                yield from action.after.spec.properties.items()
        case Update():
            for change in action.changes:
                if change.path.startswith(PROPERTIES):
                    yield (
                        change.path.removeprefix(PROPERTIES),
                        None if change.after is None else str(change.after),
                    )
        case _:
            assert_never(action)


def _read_fields(draft: Draft) -> dict[str, Value]:
    return {PROPERTIES + name: value for name, value in draft.cluster.properties.items()}


def build_overview(catalog: Catalog, cluster: str, who: Permissions) -> Overview:
    """Return names, partitions and replicas of resources that the principal may describe."""
    links = {entry.id: (link, entry) for link, entry in catalog.links.items()}
    shown = [
        TopicShown(Address(f"topic/{cluster}/{name}"), entry.partitions, entry.replication_factor)
        if entry.active_mirror is None
        else _to_topic_shown(Address(f"mirror/{cluster}/{name}"), entry.partitions, entry.active_mirror, links)
        for name, entry in sorted(catalog.topics.items())
        if entry.active_mirror is None or entry.active_mirror.link_id in links
        if who.is_super_user or who.is_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
    ]
    namespaces = {
        name: entry.configs
        for name, entry in sorted(catalog.namespaces.items())
        if who.is_allowed(catalog, Operation.DESCRIBE, Kind.NAMESPACE, name)
    }
    entries = ((name, catalog.namespaces[name].quotas) for name in namespaces)
    return Overview(shown, namespaces, {name: quotas.to_json() for name, quotas in entries if quotas is not None})


def _to_topic_shown(
    address: Address, partitions: int, mirror: MirrorEntry, links: Mapping[str, tuple[str, LinkEntry]]
) -> TopicShown:
    name, link = links[mirror.link_id]
    following = FollowedSource(compute_mirror_status(mirror, link), name, f"{link.source_cluster}/{mirror.source}")
    return TopicShown(address, partitions, None, following=following)


CAPABILITIES: Final = Capabilities(
    platform="embedded",
    namespaces=True,
    tiering=True,
    mirrors=MirrorSupport(
        by_jobs=True,
        roles=frozenset(ROLES),
        features=ALL_LINK_FEATURES - {KEEP_DIVERGED} | {"bidirectional-mode", "source-mode"},
    ),
    partition_growth=True,
    replication_change=True,
    topic_move=True,
    recovery=True,
    read_replicas=True,
    mountings=True,
    acls=True,
    quotas=True,
    cluster_properties=True,
    inherits_configs=True,
    creates_cluster=True,
    batch=10_000,
    configs=EMBEDDED_CONFIGS,
    properties=EMBEDDED_PROPERTIES,
)


class EmbeddedProvider:
    """Provider of an embedded cluster, which may not exist yet."""

    def __init__(self, declared: Cluster, store: ObjectStore, edge: Edge, storage: ObjectStore | None = None) -> None:
        self._declared = declared
        self._store = store
        self._storage = storage
        self._edge = edge
        self._opened: EmbeddedCluster | None = None
        self._keeping = TierHousekeeping(RequestMeter(edge.now_ms), edge.now_ms)

    @classmethod
    def open(cls, declared: Cluster, edge: Edge) -> EmbeddedProvider:
        """Return the provider of a declared cluster without reading it."""
        if declared.spec.embedded is None:
            raise UserError(
                f"{declared.address}: spec.embedded is missing", hint="Set spec.embedded.root to its location."
            )
        return cls(
            declared, open_location(declared.spec.embedded.root, edge), edge, open_object_storage(declared, edge)
        )

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of an embedded cluster in this store."""
        return replace(CAPABILITIES, encryption=self._store.can_encrypt)

    def identify(self) -> ClusterIdentity | None:
        """Return the cluster at the root; `None` if missing."""
        cluster_file = read_cluster_file(self._store)
        if self._opened is not None and (cluster_file is None or self._opened.cluster_id != cluster_file.id):
            self._opened = None  # The cached cluster was replaced by another.
        return None if cluster_file is None else ClusterIdentity("embedded", cluster_file.id, cluster_file.format)

    def observe(self, scope: Scope) -> Inventory:
        """Return the cluster and its catalog."""
        if self.identify() is None:
            if self._storage is not None:
                # The plan reports locations where the cluster cannot be created.
                check_new_locations(self._store, self._storage)
            return {}
        cluster = self._open_cluster()
        name, wanted = self._declared.metadata.name, build_scope_filter(scope)
        catalog = cluster.catalog.read()
        inventory = dict(list_observed(catalog, name, wanted, cluster_id=cluster.cluster_id))
        inventory |= list_mountings(catalog, name, wanted)
        if wanted is None or wanted(self._declared.address):
            observed = observe_cluster(self._declared, cluster.cluster_id, catalog, self._storage, root=self._store.url)
            about = replace(observed.cluster, owners=catalog.resource_owners if catalog.owners else None)
            inventory = {self._declared.address: replace(observed, cluster=about), **inventory}
        if not cluster.permissions.is_super_user:
            inventory = hide_resources(cluster.permissions, catalog, inventory)
        if wanted is None:
            return inventory
        return {address: observed for address, observed in inventory.items() if wanted(address)}

    def list_unplaced_rules(self) -> Sequence[AccessBinding]:
        """Return nothing, because all rules belong to namespaces or topics."""
        return ()

    def check_visible(self, address: Address) -> None:
        """Reject a caller without permission."""
        cluster = self._open_cluster()
        check_shown(cluster.permissions, cluster.catalog.read(), address)

    def read_overview(self) -> Overview:
        """Return names and shapes of visible resources."""
        cluster = self._open_cluster()
        return build_overview(cluster.catalog.read(), self._declared.metadata.name, cluster.permissions)

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Apply a batch in one commit, and complete its mounts, unmounts and recoveries."""
        rest: list[ControlAction] = []
        for action in actions:
            match action:
                case Create(after=Cluster()) | Update(after=Cluster()):
                    may_go_on()
                    yield self._change_cluster(action, may_go_on)
                case Update(is_trim=True):
                    yield self._trim_topic(action, may_go_on)
                case _:
                    rest.append(action)
        if rest:
            name, cluster = self._declared.metadata.name, self._open_cluster()
            sources = self.archives.find_recovery_sources(list_recoveries(rest), list_replica_sources(rest))
            yield from run_batch(name, cluster, rest, sources, may_go_on)

    def record_owners(self, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        """Record the owners of resources in one commit."""
        if change.makes_cluster:
            self._check_storage("create", is_bound=self._declared.spec.object_storage is not None)
            find_or_create_cluster(self._store, self._declared, self._edge.new_id)
        refused: dict[str, ResourceOwner] = {}

        def change_draft(draft: Draft) -> None:
            nonlocal refused
            changes, refused = change.compute_changes(draft.resource_owners)
            if refused:
                return
            for lineage, owner in change.find_changed_workspaces(draft.resource_owners, changes).items():
                draft.put_workspace(lineage, owner)
            for key, owned_by in changes.items():
                draft.put_owner(key, owned_by)

        self._open_cluster().catalog.commit(change_draft)
        return refused

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Return sizes of at most 1,000 partitions."""
        return measure_topics(self._open_cluster(), addresses, cuts)

    @property
    def archives(self) -> EmbeddedArchives:
        """Topics in the cluster's object storage."""
        who = Permissions.of(self._edge.principal, self._edge.host)
        return EmbeddedArchives(self._declared.address, self._storage, who, lambda: read_cluster_id(self._store))

    @property
    def migrations(self) -> Migrations:
        """Mounts and unmounts of this cluster."""
        from reconciler.providers.embedded.mounts import Migrations

        who = Permissions.of(self._edge.principal, self._edge.host)
        return Migrations(self._declared.address, self._storage, who, self._edge.now_ms, self._open_cluster)

    @property
    def links(self) -> EmbeddedLinks:
        """Links into this cluster and their mirrors."""
        from reconciler.providers.embedded.links import EmbeddedLinks

        return EmbeddedLinks(self._open_cluster(), self._declared.metadata.name)

    def describe_topic(self, topic: TopicAddress) -> TopicSizes:
        """Return bounds and sizes, with one GET per partition and manifest."""
        from reconciler.providers.embedded.measures import read_topic_sizes

        return read_topic_sizes(self._open_cluster(), topic)

    def list_topic_storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield sizes by storage tier, with one GET per partition and manifest."""
        from reconciler.providers.embedded.measures import list_topic_storages

        return list_topic_storages(self._open_cluster(), topics)

    def read_vitals(self) -> Vitals:
        """Return metrics of at most 1,000 topics and groups."""
        from reconciler.embedded.tiered.cache import measure_cache_levels
        from reconciler.providers.embedded.measures import build_storage_report, measure_cluster

        cluster = self._open_cluster()
        vitals, tier = measure_cluster(build_storage_report(cluster), self._declared.metadata.name), cluster.remote
        return (
            vitals if tier is None else replace(vitals, levels=measure_cache_levels(tier.properties, tier.cache_folder))
        )

    @property
    def groups(self) -> Groups:
        """Consumer groups of this cluster."""
        return self._open_cluster().groups

    def learn_names(self, addresses: Iterable[Address]) -> None:
        """Do nothing, because the catalog has full names."""

    def read_source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return a topic's partitions and configs."""
        return self._open_cluster().source_topic(full_name_of(topic))

    def open_log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[LostOffsets], None] | None = None,
    ) -> EmbeddedLog:
        """Return the log of a topic or mirror."""
        return self._open_cluster().log(full_name_of(topic), isolation=isolation, on_missing=on_missing)

    def open_producer(self, topic: TopicAddress) -> EmbeddedTopicProducer:
        """Return a producer for a topic."""
        from reconciler.providers.embedded.maintenance import EmbeddedTopicProducer

        return EmbeddedTopicProducer.open(self._open_cluster(), full_name_of(topic), name=self._declared.metadata.name)

    def open_append_sink(self, topic: TopicAddress) -> EmbeddedAppends:
        """Return a sink for staged records of many tasks."""
        return self._open_cluster().appends(full_name_of(topic))

    def open_sink(self, topic: TopicAddress) -> EmbeddedSink:
        """Return a sink for a topic or mirror."""
        return self._open_cluster().sink(full_name_of(topic))

    def maintenance(self, means: MaintenancePorts) -> Mapping[str, Callable[[], MaintenanceJobResult]]:
        """Return the jobs of one maintenance pass."""
        from reconciler.providers.embedded.maintenance import list_maintenance_jobs

        return list_maintenance_jobs(self._declared.metadata.name, self._open_cluster(), means, self._keeping)

    def _open_cluster(self) -> EmbeddedCluster:
        if self._opened is None:
            cluster_id = read_cluster_id(self._store)
            if cluster_id is None:
                message = f"{self._declared.address}: there is no cluster at {self._store.url}"
                raise RetryableError(
                    message, hint="Apply creates it; once it was there, check that its root is mounted."
                )
            edge = self._edge
            storage = None if self._storage is None else MeteredStore(self._storage, self._keeping.meter)
            cluster = EmbeddedCluster(self._store, cluster_id, now_ms=edge.now_ms, new_id=edge.new_id, storage=storage)
            cluster.cache_folder = _cache_folder(edge)
            self._opened = cluster.acting_as(edge.principal, edge.host)
        return self._opened

    def _check_storage(self, verb: str, *, is_bound: bool) -> ObjectStore | None:
        Permissions.of(self._edge.principal, self._edge.host).check_super_user(f"{verb} {self._declared.address}")
        storage = self._storage if is_bound else None
        if storage is not None:
            check_new_locations(self._store, storage)
            check_usable(storage)  # This process's permissions count, not the planner's.
        return storage

    def _trim_topic(self, action: Update, may_go_on: Callable[[], None]) -> Outcome:
        from reconciler.embedded.trim import trim_topic

        try:
            trim_topic(self._open_cluster(), full_name_of(action.address), action.start_offsets, may_go_on)
        except (UserError, StalePlanError) as error:
            return FailedAction(action.id, error)
        return CompletedAction(action.id)

    def _change_cluster(self, action: Create | Update, may_go_on: Callable[[], None]) -> Outcome:
        try:
            storage = self._check_storage(action.verb, is_bound=is_binding(action))
            if isinstance(action, Create):
                find_or_create_cluster(self._store, action.after, self._edge.new_id)
            storage_id = None if storage is None else create_storage(storage, self._edge.new_id)
            cluster = self._open_cluster()
            cluster.catalog.commit(change_cluster(action, storage_id), may_go_on=may_go_on)
        except (UserError, StalePlanError) as error:
            return FailedAction(action.id, error)
        return CompletedAction(action.id, cluster.cluster_id)


def _cache_folder(edge: Edge) -> str | None:
    environ = edge.environ
    home = environ.get("HOME")
    caches = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return None if caches is None else f"{caches}/reconciler"
