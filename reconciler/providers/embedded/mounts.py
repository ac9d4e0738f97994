"""Mounts and unmounts of an embedded cluster.

Each is a migration of its own, which names the mounting that asked for it. So whoever repeats an action finds what it
began, or what came of it, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import (
    Ownership,
    OwnershipState,
    check_claimable,
    check_owned,
    ownerships,
    read_ownership,
)
from reconciler.archives.recoverable import located, whole_partitions_of
from reconciler.archives.storage import check_storage
from reconciler.embedded.acl import Kind, Operation, Permissions
from reconciler.embedded.catalog.migration_tables import INBOUND, ask, begin_mount, begin_unmount
from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, check_unheld, is_closed, names_by_id
from reconciler.embedded.catalog.tiering_state import location_of, tiering_of
from reconciler.embedded.mounts.mounts import Mount, drive_or_undo, error_of, migrations_in, side_by_side
from reconciler.embedded.mounts.outbound import pending_bytes
from reconciler.errors import IncompleteError, InterruptedRunError, ReconcilerError, StalePlanError, UserError
from reconciler.lifecycles import ADVANCES, BEFORE_EXECUTED, MOUNT, UNMOUNT, MigrationState, is_under_way
from reconciler.planning.actions import ControlAction, Transition
from reconciler.providers.migration_views import detached_in, given, goes_on_by_hand, releasable_in, released_in
from reconciler.providers.protocol import Done, Failed, Outcome
from reconciler.resources.address import Address, address_of, cluster_of
from reconciler.resources.mount import Direction, HandMigration, Migrant, Migration, Mountable, Mounting
from reconciler.runtime.retry import go_on
from reconciler.runtime.threads import side_by_side as each_of

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


Found: TypeAlias = MigrantEntry | Ownership | ReconcilerError | None

_LOGGER: Final = logging.getLogger("reconciler.providers")
_MACHINES: Final = frozenset({MOUNT.name, UNMOUNT.name})


def attachments_in(actions: Iterable[ControlAction]) -> list[Attachment]:
    """Return what a batch mounts and unmounts."""
    return [
        Attachment.of(action, action.after)
        for action in actions
        if isinstance(action, Transition) and action.machine in _MACHINES and isinstance(action.after, Mounting)
    ]


@dataclass(frozen=True, slots=True)
class Attachment:
    """One action: which topic, where it lies as far as that is said, and how long it may take."""

    id: str
    mounting: Mounting
    is_mount: bool
    source: str
    """A location; of an unmount it may be only a name."""
    timeout_ms: int | None

    @classmethod
    def of(cls, action: Transition, mounting: Mounting) -> Attachment:
        """Read an action."""
        timeout_ms = action.parameters.get("timeout_ms")
        return cls(
            action.id,
            mounting,
            action.machine == MOUNT.name,
            str(action.parameters.get("source")),
            timeout_ms if isinstance(timeout_ms, int) else None,
        )

    @property
    def name(self) -> str:
        """Full name of the topic here."""
        return self.mounting.topic_name

    @property
    def location(self) -> TopicLocation | None:
        """Where it lies; `None`: that is not said, and is wherever the topic of that name does."""
        return TopicLocation.parse(self.source) if self.is_mount or "/" in self.source else None

    def lies_at(self, location: TopicLocation) -> bool:
        """Tell whether a location is the one that is meant; its name may be written without the namespace."""
        ours = self.location
        return ours is None or (ours.cluster_id, ours.revision) == (location.cluster_id, location.revision)

    def check_lies_at(self, location: TopicLocation) -> None:
        """Refuse a topic that has the name and is another one.

        Raises:
            UserError: It is.
        """
        if not self.lies_at(location):
            message = f"topic {self.name} is not the one of {self.source}: it is at {location}"
            raise UserError(message, hint="Another topic has taken that name: plan again.")


@dataclass(slots=True)
class _Ours:
    """The migrations of one draft that mountings asked for, by what they asked for; the newest of each."""

    draft: Draft
    numbers: dict[tuple[bool, str | None, str], list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Look through them once, however many a batch asks about."""
        self.numbers = {}
        for number in sorted(map(int, self.draft.migrations), reverse=True):
            migration = self.draft.migrations[str(number)]
            for topic in migration.topics:
                key = migration.direction == INBOUND, topic.mounting, topic.name
                self.numbers.setdefault(key, []).append(number)

    def of(self, asked: Attachment) -> tuple[int, MigrantEntry] | None:
        """Return the migration that an action began before, and its topic there."""
        for number in self.numbers.get((asked.is_mount, asked.mounting.full_name, asked.name), ()):
            migration = self.draft.migrations.get(str(number))
            for topic in () if migration is None else migration.topics:
                if topic.name == asked.name and asked.lies_at(TopicLocation.parse(topic.location)):
                    return number, topic
        return None


@dataclass(slots=True)
class MountBatch:
    """What a batch mounts and unmounts."""

    cluster: EmbeddedCluster
    asked: Mapping[str, Attachment]
    """By action."""
    found: Mapping[str, Found]
    """By action: what a mount begins with, who owns what is to be unmounted and is not here, or why nobody can say."""
    begun: dict[str, int] = field(default_factory=dict)
    """The migrations there are to drive, by action."""
    _ours: _Ours | None = None

    @classmethod
    def of(cls, cluster: EmbeddedCluster, asked: Sequence[Attachment]) -> MountBatch:
        """Look up what a batch needs of object storage: two GETs for each mount, and nothing of most unmounts."""
        topics = cluster.catalog.read().topics

        def look(one: Attachment) -> Found:
            try:
                if one.is_mount:
                    return cluster.mounts.migrant(Mount(one.source, one.name, one.mounting.full_name))
                return None if one.name in topics else _owner(cluster, one)
            except ReconcilerError as error:
                return error

        found = dict(zip((one.id for one in asked), each_of(look, asked, name="mountable"), strict=True))
        return cls(cluster, {one.id: one for one in asked}, found)

    def begin(self, draft: Draft, action: str) -> str | None:
        """Begin a mount or unmount, or find it begun or done; return the incarnation of what it leaves.

        Raises:
            UserError: It cannot be; nothing of it is in the draft.
            RetryableError: What it needs of object storage could not be looked up.
        """
        self.begun.pop(action, None)
        if self._ours is None or self._ours.draft is not draft:
            self._ours = _Ours(draft)
        asked = self.asked[action]
        ours = self._ours.of(asked)
        if ours is not None:
            number, topic = ours
            if draft.migrations[str(number)].state != MigrationState.CANCELLED:
                self.begun[action] = number
                return topic.topic_id if asked.is_mount else None
            ask(draft, number, "delete")  # It is over, and what is wanted is wanted again.
        existing = draft.topics.get(asked.name)
        if existing is not None:
            location = location_of(asked.name, existing, self.cluster.cluster_id)
            if asked.is_mount and not asked.lies_at(location):
                _LOGGER.warning("%s cannot be mounted as %s: it exists, at %s", asked.source, asked.name, location)
            asked.check_lies_at(location)
        if asked.is_mount:
            return self._mount(draft, asked, existing)
        self._unmount(draft, asked, existing)
        return None

    def ended(self, outcomes: Iterable[Outcome], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        """Yield outcomes, those of migrations once they have come to their end: all of them side by side."""
        ours = []
        for outcome in outcomes:
            if outcome.id in self.begun and isinstance(outcome, Done):
                ours.append(outcome)
            else:
                yield outcome
        timeouts = {self.begun[outcome.id]: self.asked[outcome.id].timeout_ms for outcome in ours}
        errors = side_by_side(
            replace(self.cluster.mounts, may_go_on=may_go_on),
            list(timeouts),
            lambda mounts, number: error_of(partial(drive_or_undo, timeout_ms=timeouts[number]), mounts, number),
        )
        for outcome in ours:
            error = errors[self.begun[outcome.id]]
            yield outcome if error is None else Failed(outcome.id, error)

    def _mount(self, draft: Draft, asked: Attachment, existing: TopicEntry | None) -> str:
        if existing is not None:
            check_unheld(asked.name, existing, "to mount it")
            return existing.id  # It was done before.
        found = self.found[asked.id]
        if isinstance(found, MigrantEntry):
            cluster_id = self.cluster.cluster_id
            self.begun[asked.id] = begin_mount(draft, [found], self.cluster.mounts.asked(), cluster_id=cluster_id)
            return found.topic_id
        raise _unknown(asked, found)

    def _unmount(self, draft: Draft, asked: Attachment, existing: TopicEntry | None) -> None:
        found, cluster_id = self.found[asked.id], self.cluster.cluster_id
        if existing is not None:
            names = {asked.name: asked.mounting.full_name}
            self.begun[asked.id] = begin_unmount(draft, names, self.cluster.mounts.asked(), cluster_id=cluster_id)
        elif not isinstance(found, Ownership) or (found.state, found.owner) == (OwnershipState.MOUNTED, cluster_id):
            raise _unknown(asked, found)  # Else it was done before, be it mounted elsewhere since or not.


def _owner(cluster: EmbeddedCluster, asked: Attachment) -> Ownership | None:
    """Return who owns a topic that is not here; `None`: it was never detached."""
    remote, location = cluster.remote, asked.location
    if remote is None:
        return None
    if location is not None:
        return read_ownership(remote.storage, location)
    registers = [each for _, each in ownerships(remote.storage) if isinstance(each, Ownership)]
    ours = [each for each in registers if (each.name, each.owner) == (asked.name, cluster.cluster_id)]
    return max(ours, key=lambda each: each.at_ms, default=None)


def _unknown(asked: Attachment, found: Found) -> ReconcilerError:
    if isinstance(found, ReconcilerError):
        return found
    message = f"there is no topic {asked.name}, and no record of its unmounting: {asked.source}"
    return UserError(message, hint="It was deleted or moved after the plan read it: plan again.")


# Migrations of an embedded cluster, and who owns what lies in its object storage, in the words of the protocol.


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
    def by_platform(self) -> Migrations:
        """The cluster mounts and unmounts by itself."""
        return self

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

    def unfit(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return what the catalog has against them."""
        return self.open_cluster().mounts.unfit(direction, topics)

    def carry_out(self, asked: HandMigration, *, may_go_on: Callable[[], None] = go_on) -> None:
        """Begin one migration of all the topics, or go on with the one that has them."""
        cluster = self.open_cluster()
        mounts = replace(cluster.mounts, may_go_on=may_go_on)
        if asked.phase == "finish":
            for number in _of_topics(cluster, asked):
                mounts.conclude(number)
            return
        may_go_on()
        is_whole = asked.phase == "whole"
        if asked.direction == INBOUND:
            wanted = [Mount(location, name) for name, location in asked.topics.items()]
            number = mounts.mount(*wanted, is_automatic=is_whole)
        else:
            _check_places(cluster, asked)
            number = mounts.unmount(*asked.topics, is_automatic=is_whole)
        if is_whole:
            drive_or_undo(mounts, number)
        else:
            mounts.prepare(number)

    def detached(self) -> Iterator[tuple[str, Mountable | UserError]]:
        """Yield what the registers say: one listing, one GET each."""
        self.who.check_super_user("list what can be mounted")
        storage, is_empty = self._storage(), True
        for found in detached_in(storage):
            is_empty = False
            yield found
        if is_empty:
            check_storage(storage, self._bound())

    def releasable(self, location: str, owner: str) -> Mountable:
        """Return a topic as its manifests are now: a GET for each partition."""
        self.who.check_super_user(f"release {location}")
        return releasable_in(self._storage(), location, owner)

    def release(self, location: str, owner: str) -> Mountable:
        """Take it, manifest by manifest, then its register."""
        self.who.check_super_user(f"release {location}")
        return released_in(self._storage(), location, owner, now_ms=self.now_ms())

    def _bound(self) -> str | None:
        """Return the object storage that the cluster is bound to; `None` also where the cluster is lost."""
        try:
            return self.open_cluster().catalog.read().cluster.storage_id
        except ReconcilerError:
            return None

    def _storage(self) -> ObjectStore:
        return given(self.address, self.storage)

    def _measured(self, cluster: EmbeddedCluster, catalog: Catalog, number: int, found: MigrationEntry) -> Migration:
        state, is_inbound = MigrationState(found.state), found.direction == INBOUND
        left = None
        if not is_inbound and state in BEFORE_EXECUTED:
            left = sum(pending_bytes(cluster.store, topic.topic_id) for topic in found.topics)
        waits = list(self._keeps_inbound(cluster, found) if is_inbound else _keeps_outbound(cluster, catalog, found))
        if not found.is_automatic and state in ADVANCES:
            names = [address_of("topic", cluster_of(self.address) or "", topic.name) for topic in found.topics]
            waits.append(goes_on_by_hand("inbound" if is_inbound else "outbound", *names))
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


def _of_topics(cluster: EmbeddedCluster, asked: HandMigration) -> list[int]:
    """Return the migrations under way that have topics of what is asked for, oldest first.

    Raises:
        StalePlanError: One has another topic as well, which was not shown.
    """
    numbers: list[int] = []
    for number, found in migrations_in(cluster.catalog.read()).items():
        names = {topic.name for topic in found.topics}
        if found.direction != asked.direction or not is_under_way(found.state) or names.isdisjoint(asked.topics):
            continue
        if others := sorted(names - asked.topics.keys()):
            message = f"migration {number} has other topics as well: {', '.join(others)}"
            raise StalePlanError(
                message, hint="It was begun after the command read the cluster: run the command again."
            )
        numbers.append(number)
    return numbers


def _check_places(cluster: EmbeddedCluster, asked: HandMigration) -> None:
    """Refuse to unmount another topic than the one that was looked at."""
    topics = cluster.catalog.read().topics
    for name, location in asked.topics.items():
        there = topics.get(name)
        if location and there is not None and str(location_of(name, there, cluster.cluster_id)) != location:
            message = f"topic {name} was deleted and created again after it was read"
            raise StalePlanError(message, hint="Nothing was unmounted. Look again.")


def _unfinished(migration: int, error: ReconcilerError) -> IncompleteError:
    before = "" if isinstance(error, InterruptedRunError) else f"{error.hint.removesuffix('.')}. Then "
    message = f"migration {migration} is canceling, and not cancelled yet: {error.message}"
    return IncompleteError(message, hint=f"{before}continue with: reconciler run --once --only migrations")


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
