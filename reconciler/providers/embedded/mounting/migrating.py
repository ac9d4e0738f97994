"""Migrations of an embedded cluster, and who owns what lies in its object storage, in the words of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.catalog.holding import is_closed
from reconciler.embedded.catalog.lookups import names_by_id
from reconciler.embedded.catalog.migrations import INBOUND
from reconciler.embedded.catalog.tiering import TopicLocation, tiering_of
from reconciler.embedded.mounting.claims import check_claimable, check_owned
from reconciler.embedded.mounting.flushing import pending_bytes
from reconciler.embedded.mounting.mounts import migrations_in
from reconciler.embedded.mounting.ownership import read_ownership
from reconciler.embedded.remote.recovery.locating import located
from reconciler.embedded.remote.recovery.wholeness import whole_partitions_of
from reconciler.errors import IncompleteError, InterruptedRunError, ReconcilerError, UserError
from reconciler.lifecycles.mounting import ADVANCES, BEFORE_EXECUTED, MigrationState
from reconciler.providers.base import go_on
from reconciler.providers.mountables import detached_in, given, releasable_in, released_in
from reconciler.resources.migration import Migrant, Migration
from reconciler.resources.mountable import Mountable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.migrationentries import MigrantEntry, MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address

_S = MigrationState
_CLAIMED: Final = frozenset({_S.EXECUTED, _S.CUT_OVER})
"""The states of a mount in which it has its topics, unless somebody took them away."""


@dataclass(frozen=True)
class Migrations:
    """What one cluster mounts and unmounts; `open_cluster` fails where there is no cluster yet."""

    address: Address
    storage: ObjectStore | None
    who: Permissions
    now_ms: Callable[[], int]
    open_cluster: Callable[[], EmbeddedCluster]

    @property
    def by_jobs(self) -> None:
        """Nothing: the cluster mounts and unmounts by itself."""
        return

    @property
    def copies(self) -> None:
        """Nothing: the cluster renames topics by itself."""
        return

    def under_way(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return every migration there is a record of; measured, the heads are read of what is being unmounted."""
        cluster = self.open_cluster()
        catalog = cluster.catalog.read()
        return [
            self._measured(cluster, catalog, number, found) if is_measured else _said(catalog, number, found)
            for number, found in migrations_in(catalog).items()
            if all(self.who.may(catalog, Operation.DESCRIBE, Kind.TOPIC, topic.name) for topic in found.topics)
        ]

    def ask(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = go_on) -> Migration:
        """Do one verb of the table; a cancelled migration is brought to its end, in which nothing is left of it."""
        cluster = self.open_cluster()
        mounts = replace(cluster.mounts, may_go_on=may_go_on)
        after = mounts.ask(migration, verb)
        if MigrationState(after.state) is _S.CANCELING:
            try:
                after = mounts.drive(migration) or replace(after, state=str(_S.CANCELLED))
            except ReconcilerError as error:
                raise _unfinished(migration, error) from error
        return _said(cluster.catalog.read(), migration, after)

    def detached(self) -> Iterator[tuple[str, Mountable | UserError]]:
        """Yield what the registers say: one listing, one GET each."""
        self.who.check_super_user("list what can be mounted")
        yield from detached_in(self._storage())

    def releasable(self, location: str, owner: str) -> Mountable:
        """Return a topic as its manifests are now: a GET for each partition."""
        self.who.check_super_user(f"release {location}")
        return releasable_in(self._storage(), location, owner)

    def release(self, location: str, owner: str) -> Mountable:
        """Take it, manifest by manifest, then its register."""
        self.who.check_super_user(f"release {location}")
        return released_in(self._storage(), location, owner, now_ms=self.now_ms())

    def _storage(self) -> ObjectStore:
        return given(self.address, self.storage)

    def _measured(self, cluster: EmbeddedCluster, catalog: Catalog, number: int, found: MigrationEntry) -> Migration:
        state, is_inbound = MigrationState(found.state), found.direction == INBOUND
        left = None
        if not is_inbound and state in BEFORE_EXECUTED:
            left = sum(pending_bytes(cluster.store, topic.topic_id) for topic in found.topics)
        waits = list(self._keeps_inbound(cluster, found) if is_inbound else _keeps_outbound(cluster, catalog, found))
        if not found.is_automatic and state in ADVANCES:
            waits.append(
                f"it goes on where somebody asks for it: {ADVANCES[state]}, "
                f'by the library: cluster.mounts.ask({number}, "{ADVANCES[state]}")'
            )
        return replace(_said(catalog, number, found), bytes_left=left, waits=tuple(waits))

    def _keeps_inbound(self, cluster: EmbeddedCluster, found: MigrationEntry) -> Iterator[str]:
        state = MigrationState(found.state)
        if state not in BEFORE_EXECUTED | _CLAIMED:
            return
        if self.storage is None:
            yield f"{self.address} has no object storage any more"
            return
        for topic in found.topics:
            try:
                if state in _CLAIMED:
                    location = TopicLocation.parse(topic.location)
                    check_owned(location, read_ownership(self.storage, location), cluster.cluster_id, found.claim)
                else:
                    self._check_mountable(self.storage, cluster.cluster_id, found.claim, topic, state)
            except ReconcilerError as error:
                yield error.message

    @staticmethod
    def _check_mountable(
        storage: ObjectStore, cluster_id: str, claim: str, topic: MigrantEntry, state: MigrationState
    ) -> None:
        there = located(storage, TopicLocation.parse(topic.location))
        check_claimable(there.location, read_ownership(storage, there.location), cluster_id, claim)
        if state is _S.EXECUTING:
            whole_partitions_of(storage, there)


def _unfinished(migration: int, error: ReconcilerError) -> IncompleteError:
    before = "" if isinstance(error, InterruptedRunError) else f"{error.hint.removesuffix('.')}. Then "
    message = f"migration {migration} is canceling, and not cancelled yet: {error.message}"
    return IncompleteError(message, hint=f"{before}go on with: reconciler run --once --only migrations")


def _keeps_outbound(cluster: EmbeddedCluster, catalog: Catalog, found: MigrationEntry) -> Iterator[str]:
    if MigrationState(found.state) not in BEFORE_EXECUTED:
        return
    for name in sorted(names_by_id(catalog, {topic.topic_id for topic in found.topics}).values()):
        tiering = tiering_of(catalog, name, cluster.cluster_id)
        if tiering is None or not tiering.uploads:
            yield f"topic {name} is not uploaded: uploads are switched off"


def _said(catalog: Catalog, number: int, found: MigrationEntry) -> Migration:
    names = names_by_id(catalog, {topic.topic_id for topic in found.topics})
    partitions = {topic_id: catalog.topics[name].partitions for topic_id, name in names.items()}
    closed = {topic_id for topic_id, name in names.items() if is_closed(catalog.topics[name])}
    topics = (
        Migrant(topic.name, topic.location, topic.mounting, partitions.get(topic.topic_id), topic.topic_id in closed)
        for topic in found.topics
    )
    return Migration(
        id=number,
        direction="inbound" if found.direction == INBOUND else "outbound",
        state=found.state,
        topics=tuple(topics),
        created_ms=found.created_ms,
        completed_ms=found.completed_ms,
        is_automatic=found.is_automatic,
    )
