"""An embedded cluster as a provider: observed in a few reads, changed by one commit a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.access.permissions import Permissions
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.clusterfile import read_cluster_file, read_cluster_id
from reconciler.embedded.remote.storagefile import check_usable, create_storage
from reconciler.embedded.remote.tidying.housekeeping import Housekeeping
from reconciler.errors import RetryableError, StalePlanError, UserError
from reconciler.lifecycles.roles import ROLES
from reconciler.objectstore.metered import MeteredStore, RequestMeter
from reconciler.planning.actions import Create, Update
from reconciler.planning.fields import LINK_FEATURES
from reconciler.providers.base import Done, Failed, go_on
from reconciler.providers.embedded.batches import carried_out
from reconciler.providers.embedded.binding import (
    check_places,
    is_binding,
    make_cluster,
    observed_cluster,
    set_up,
)
from reconciler.providers.embedded.measuring import measured
from reconciler.providers.embedded.mounting.migrants import mountings_in
from reconciler.providers.embedded.overviewing import overview_in
from reconciler.providers.embedded.patience import patience_in
from reconciler.providers.embedded.permitting import check_shown, hide
from reconciler.providers.embedded.recovering import archived_in, asked_in, looked_up
from reconciler.providers.embedded.translate import observed_in
from reconciler.providers.scoping import wanted_in
from reconciler.providers.stores import opened
from reconciler.resources.address import full_name_of
from reconciler.resources.capabilities import Capabilities, ClusterIdentity
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import EMBEDDED_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.embedded.consuming.clustergroups import Groups
    from reconciler.embedded.partition.log import EmbeddedLog
    from reconciler.embedded.partition.sink import EmbeddedSink
    from reconciler.objectstore.base import ObjectStore
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Edge, Marked, Outcome, Scope, Standing, TopicAddress
    from reconciler.providers.embedded.linking import EmbeddedLinks
    from reconciler.providers.embedded.mounting.migrating import Migrations
    from reconciler.providers.embedded.producing import OneTopic
    from reconciler.providers.keeping import Means, Upkept
    from reconciler.records.log import Isolation, Lost
    from reconciler.resources.address import Address
    from reconciler.resources.bindings import Binding
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.measures import Measures
    from reconciler.resources.mountable import Mountable
    from reconciler.resources.overviews import Overview
    from reconciler.resources.recoverable import Recoverable, Recoveries
    from reconciler.resources.sourcetopic import SourceTopic
    from reconciler.resources.storages import TopicStorage
    from reconciler.resources.vitals import Vitals

CAPABILITIES: Final = Capabilities(
    platform="embedded",
    namespaces=True,
    tiering=True,
    links=True,
    mirror_states=frozenset(ROLES),
    link_features=frozenset({*LINK_FEATURES.values(), "bidirectional-mode", "source-mode"}),
    partition_growth=True,
    replication_change=True,
    topic_move=True,
    recovery=True,
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
    """One embedded cluster, as a manifest declares it. It may not be there yet."""

    def __init__(self, declared: Cluster, store: ObjectStore, edge: Edge, storage: ObjectStore | None = None) -> None:
        self._declared = declared
        self._store = store
        self._storage = storage
        self._edge = edge
        self._opened: EmbeddedCluster | None = None
        self._keeping = Housekeeping(RequestMeter(edge.now_ms), edge.now_ms)

    @classmethod
    def of(cls, declared: Cluster, edge: Edge) -> EmbeddedProvider:
        """Return the provider of a declared cluster; nothing is read yet."""
        if declared.spec.embedded is None:
            raise UserError(f"{declared.address}: spec.embedded is missing", hint="Say where its root is.")
        storage = declared.spec.object_storage
        return cls(
            declared,
            opened(declared.spec.embedded.root, edge),
            edge,
            None if storage is None else opened(storage, edge, patience_in(declared.spec.properties)),
        )

    @property
    def capabilities(self) -> Capabilities:
        """The limits of an embedded cluster of this version, in the store it lies in."""
        return replace(CAPABILITIES, encryption=self._store.encrypts)

    def identify(self) -> ClusterIdentity | None:
        """Return the cluster at the root; `None` where the root is empty or does not exist.

        Raises:
            UserError: The root holds something else, or a cluster of a newer format.
        """
        found = read_cluster_file(self._store)
        if self._opened is not None and (found is None or self._opened.cluster_id != found.id):
            self._opened = None  # another cluster lies there now: nothing that was read of the last one holds
        return None if found is None else ClusterIdentity("embedded", found.id, found.format)

    def observe(self, scope: Scope) -> Inventory:
        """Return the cluster and all its catalog has: two GETs where little has changed."""
        if self.identify() is None:
            if self._storage is not None:
                check_places(self._store, self._storage)  # What cannot be made is said by the plan.
            return {}
        cluster = self._cluster()
        name, wanted = self._declared.metadata.name, wanted_in(scope)
        catalog = cluster.catalog.read()
        inventory = dict(observed_in(catalog, name, wanted, cluster_id=cluster.cluster_id))
        inventory |= mountings_in(catalog, name, wanted)
        if wanted is None or wanted(self._declared.address):
            inventory = {
                self._declared.address: observed_cluster(
                    self._declared, cluster.cluster_id, catalog, self._storage, root=self._store.url
                ),
                **inventory,
            }
        if not cluster.permissions.is_super_user:
            inventory = hide(cluster.permissions, catalog, inventory)
        if wanted is None:
            return inventory
        return {address: observed for address, observed in inventory.items() if wanted(address)}

    def unplaced(self) -> Sequence[Binding]:
        """Return nothing: every rule is a namespace's or a topic's."""
        return ()

    def check_shown(self, address: Address) -> None:
        """Refuse who may not know whether a namespace or topic is there."""
        cluster = self._cluster()
        check_shown(cluster.permissions, cluster.catalog.read(), address)

    def overview(self) -> Overview:
        """Return names and shapes of all that may be described: the catalog, and no model for each topic."""
        cluster = self._cluster()
        return overview_in(cluster.catalog.read(), self._declared.metadata.name, cluster.permissions)

    def apply(self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = go_on) -> Iterator[Outcome]:
        """Do a batch by one commit and yield one outcome each; mounts, unmounts and recoveries are driven to their end.

        What is deleted is marked, and gone once `run` ran.
        """
        rest: list[ControlAction] = []
        for action in actions:
            match action:
                case Create(after=Cluster()) | Update(after=Cluster()):
                    may_go_on()
                    yield self._change_cluster(action, may_go_on)
                case _:
                    rest.append(action)
        if rest:
            name, cluster = self._declared.metadata.name, self._cluster()
            yield from carried_out(name, cluster, rest, self.recoverable(asked_in(rest)), may_go_on)

    def measure(self, addresses: Sequence[Address]) -> Measures:
        """Return what topics hold, as heads and manifests say it; at most a thousand partitions are looked at."""
        return measured(self._cluster(), addresses)

    def recoverable(self, topics: Mapping[TopicAddress, str | None]) -> Recoveries:
        """Return what new topics could be made from: a GET for each, its partitions; a listing where only a name is."""
        if not topics:
            return {}
        cluster_id = read_cluster_id(self._store)
        return looked_up(self._storage, cluster_id, topics, Permissions.of(self._edge.principal, self._edge.host))

    def archived(self, cluster_id: str | None = None) -> Iterator[tuple[str, Recoverable | UserError]]:
        """Yield every topic in object storage: one listing, a GET for each topic and each of its partitions."""
        return archived_in(self._declared.address, self._storage, cluster_id)

    def mountable(self) -> Sequence[Mountable]:
        """Return what was ever detached in the object storage: one listing, and a GET for each."""
        from reconciler.providers.mountables import mountable_in  # noqa: PLC0415 - only who mounts pays

        return mountable_in(self._declared.address, self._storage)

    @property
    def migrations(self) -> Migrations:
        """The mounts and unmounts of this cluster."""
        from reconciler.providers.embedded.mounting.migrating import Migrations  # noqa: PLC0415 - only who mounts pays

        who = Permissions.of(self._edge.principal, self._edge.host)
        return Migrations(self._declared.address, self._storage, who, self._edge.now_ms, self._cluster)

    @property
    def links(self) -> EmbeddedLinks:
        """The links whose destination is this cluster, and their mirrors."""
        from reconciler.providers.embedded.linking import EmbeddedLinks  # noqa: PLC0415 - only who mirrors pays

        return EmbeddedLinks(self._cluster(), self._declared.metadata.name)

    def standing(self, topic: TopicAddress) -> Standing:
        """Return what a topic holds: one listing, a GET for each partition ever written, and for each manifest."""
        from reconciler.providers.embedded.storing import standing_of  # noqa: PLC0415 - only who measures pays

        return standing_of(self._cluster(), topic)

    def storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield what topics take in each tier: one listing, a GET for each partition written and each manifest."""
        from reconciler.providers.embedded.storing import storages_in  # noqa: PLC0415 - only who measures pays

        return storages_in(self._cluster(), topics)

    def vitals(self) -> Vitals:
        """Return what the cluster's instruments say: of at most 1,000 topics and groups."""
        from reconciler.embedded.remote.cache.instruments import cache_levels  # noqa: PLC0415 - only who measures pays
        from reconciler.embedded.vitals import vitals_of  # noqa: PLC0415 - as above
        from reconciler.providers.embedded.storing import report_of  # noqa: PLC0415 - as above

        cluster = self._cluster()
        found, tier = vitals_of(report_of(cluster), self._declared.metadata.name), cluster.remote
        return found if tier is None else replace(found, levels=cache_levels(tier.properties, tier.cache_folder))

    @property
    def groups(self) -> Groups:
        """The consumer groups of this cluster."""
        return self._cluster().groups

    def marks(self) -> Mapping[str, Marked]:
        """Return every topic and its heads' marks: the catalog, and one listing."""
        from reconciler.providers.embedded.marking import marks_in  # noqa: PLC0415 - only who mirrors pays

        return marks_in(self._cluster())

    def remembered(self, job: str) -> Mapping[str, list[Any]]:
        """Return what a job kept in `runner/`."""
        from reconciler.embedded.upkeep.remembering import remembered  # noqa: PLC0415 - as above

        return remembered(self._store, job)[0]

    def remember(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Keep rows in `runner/` for the next pass of a job."""
        from reconciler.embedded.upkeep.remembering import remember  # noqa: PLC0415 - as above

        remember(self._store, job, rows, {})

    def source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return what mirrors of a topic follow."""
        return self._cluster().source_topic(full_name_of(topic))

    def follow_source(self, mirror: Address, source: SourceTopic) -> None:
        """Bring a mirror's partitions and synced configs to what its source has; commits only where they differ."""
        self._cluster().follow_source(full_name_of(mirror), source)

    def log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[Lost], None] | None = None,
    ) -> EmbeddedLog:
        """Return the records of a topic or mirror."""
        return self._cluster().log(full_name_of(topic), isolation=isolation, on_missing=on_missing)

    def producer(self, topic: TopicAddress) -> OneTopic:
        """Return where new records of a topic go in."""
        from reconciler.providers.embedded.producing import OneTopic  # noqa: PLC0415 - brings Arrow; plans need none

        return OneTopic.of(self._cluster(), full_name_of(topic), name=self._declared.metadata.name)

    def sink(self, topic: TopicAddress) -> EmbeddedSink:
        """Return where records of a topic or mirror are written."""
        return self._cluster().sink(full_name_of(topic))

    def upkeep(self, means: Means) -> Mapping[str, Callable[[], Upkept]]:
        """Return one pass of upkeep, by job."""
        from reconciler.providers.embedded.tending import jobs_of  # noqa: PLC0415 - plans need none of it

        return jobs_of(self._declared.metadata.name, self._cluster(), means, self._keeping)

    def _cluster(self) -> EmbeddedCluster:
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

    def _change_cluster(self, action: Create | Update, may_go_on: Callable[[], None]) -> Outcome:
        try:
            Permissions.of(self._edge.principal, self._edge.host).check_super_user(f"{action.verb} {action.address}")
            storage = self._storage if is_binding(action) else None
            if storage is not None:  # Both are looked at first: where one cannot be used nothing is made in the other.
                check_places(self._store, storage)
                check_usable(storage)  # Another cluster may have made it: that does not say what we may do there.
            if isinstance(action, Create):
                make_cluster(self._store, action.after, self._edge.new_id)
            storage_id = None if storage is None else create_storage(storage, self._edge.new_id)
            cluster = self._cluster()
            cluster.catalog.commit(set_up(action, storage_id), may_go_on=may_go_on)
        except (UserError, StalePlanError) as error:
            return Failed(action.id, error)
        return Done(action.id, cluster.cluster_id)


def _cache_folder(edge: Edge) -> str | None:
    """Return where this user's programs keep what they can fetch again; `None`: nobody says."""
    environ = edge.environ
    home = environ.get("HOME")
    caches = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return None if caches is None else f"{caches}/reconciler"
