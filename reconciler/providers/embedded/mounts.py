"""Mounts and unmounts of an embedded cluster.

Each is a migration that names its Mounting, so a repeated action continues it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import (
    Ownership,
    OwnershipState,
    check_claim_held,
    check_claimable,
    iter_ownerships,
    read_ownership,
)
from reconciler.archives.recoverable import find_topic_at, read_whole_partitions
from reconciler.archives.storage import check_storage
from reconciler.embedded.acl import Kind, Operation, Permissions
from reconciler.embedded.catalog.migration_tables import INBOUND, apply_verb, begin_mount, begin_unmount
from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, check_not_migrating, is_closed, map_names_by_id
from reconciler.embedded.catalog.tiering_state import find_tiering, get_topic_location
from reconciler.embedded.mounts.mounts import (
    Mount,
    drive_catching_error,
    drive_in_parallel,
    drive_or_undo,
    list_migrations,
)
from reconciler.embedded.mounts.outbound import count_bytes_to_upload
from reconciler.errors import IncompleteError, InterruptedRunError, ReconcilerError, StalePlanError, UserError
from reconciler.lifecycles import BEFORE_EXECUTED, MOUNT, NEXT_VERBS, UNMOUNT, MigrationState, is_in_progress
from reconciler.planning.actions import ControlAction, Transition
from reconciler.providers.migration_views import (
    finish_command,
    list_registers,
    read_releasable_topic,
    release_lost_topic,
    require_storage,
)
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.address import Address, address_of, cluster_of
from reconciler.resources.mount import Direction, HandMigration, Migrant, Migration, MountableTopic, Mounting
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import skip_check
from reconciler.runtime.threads import map_in_parallel as map_side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


MountLookup: TypeAlias = MigrantEntry | Ownership | ReconcilerError | None

_LOGGER: Final = logging.getLogger("reconciler.providers")
_MACHINES: Final = frozenset({MOUNT.name, UNMOUNT.name})


def list_attachments(actions: Iterable[ControlAction]) -> list[Attachment]:
    """Return the mounts and unmounts among actions."""
    return [
        Attachment.from_action(action, action.after)
        for action in actions
        if isinstance(action, Transition) and action.machine in _MACHINES and isinstance(action.after, Mounting)
    ]


@dataclass(frozen=True, slots=True)
class Attachment:
    """Mount or unmount of one topic."""

    id: str
    mounting: Mounting
    is_mount: bool
    source: str
    """Location of the topic. For an unmount it may be only the name."""
    timeout_ms: int | None

    @classmethod
    def from_action(cls, action: Transition, mounting: Mounting) -> Attachment:
        """Return the mount or unmount that an action requests."""
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
        """Full name of the topic on this cluster."""
        return self.mounting.topic_name

    @property
    def location(self) -> TopicLocation | None:
        """Location of the topic; `None` if only its name is known."""
        return TopicLocation.parse(self.source) if self.is_mount or "/" in self.source else None

    def matches(self, location: TopicLocation) -> bool:
        """Return whether the topic is at `location`, whose name may lack the namespace."""
        ours = self.location
        return ours is None or (ours.cluster_id, ours.revision) == (location.cluster_id, location.revision)

    def check_matches(self, location: TopicLocation) -> None:
        """Reject another topic of the same name."""
        if not self.matches(location):
            message = f"topic {self.name} is not the one of {self.source}: it is at {location}"
            raise UserError(message, hint="Another topic has taken that name: plan again.")


@dataclass(slots=True)
class _MigrationIndex:
    draft: Draft
    numbers: dict[tuple[bool, str | None, str], list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = {}
        for number in sorted(map(int, self.draft.migrations), reverse=True):
            migration = self.draft.migrations[str(number)]
            for topic in migration.topics:
                key = migration.direction == INBOUND, topic.mounting, topic.name
                self.numbers.setdefault(key, []).append(number)

    def find_migration(self, attachment: Attachment) -> tuple[int, MigrantEntry] | None:
        for number in self.numbers.get((attachment.is_mount, attachment.mounting.full_name, attachment.name), ()):
            migration = self.draft.migrations.get(str(number))
            for topic in () if migration is None else migration.topics:
                if topic.name == attachment.name and attachment.matches(TopicLocation.parse(topic.location)):
                    return number, topic
        return None


@dataclass(slots=True)
class MountBatch:
    """Mounts and unmounts of a batch."""

    cluster: EmbeddedCluster
    attachments: Mapping[str, Attachment]
    """Mounts and unmounts by action id."""
    lookups: Mapping[str, MountLookup]
    """By action id: the topic to mount, the owner of a missing topic to unmount, or an error."""
    migration_numbers: dict[str, int] = field(default_factory=dict)
    """Migrations to continue, by action id."""
    _index: _MigrationIndex | None = None

    @classmethod
    def read_batch(cls, cluster: EmbeddedCluster, attachments: Sequence[Attachment]) -> MountBatch:
        """Read the topics' state in object storage, with at most two GETs per topic."""
        topics = cluster.catalog.read().topics

        def look_up_topic(attachment: Attachment) -> MountLookup:
            try:
                if attachment.is_mount:
                    return cluster.mounts.build_mount_entry(
                        Mount(attachment.source, attachment.name, attachment.mounting.full_name)
                    )
                return None if attachment.name in topics else _find_ownership(cluster, attachment)
            except ReconcilerError as error:
                return error

        lookups = dict(
            zip(
                (attachment.id for attachment in attachments),
                map_side_by_side(look_up_topic, attachments, name="mountable"),
                strict=True,
            )
        )
        return cls(cluster, {attachment.id: attachment for attachment in attachments}, lookups)

    def begin_migration(self, draft: Draft, action: str) -> str | None:
        """Begin or continue a mount or unmount; return a mounted topic's id.

        Raises:
            UserError: It is impossible; the draft is unchanged.
            RetryableError: Object storage could not be read.
        """
        self.migration_numbers.pop(action, None)
        if self._index is None or self._index.draft is not draft:
            self._index = _MigrationIndex(draft)
        attachment = self.attachments[action]
        ours = self._index.find_migration(attachment)
        if ours is not None:
            number, topic = ours
            if draft.migrations[str(number)].state != MigrationState.CANCELLED:
                self.migration_numbers[action] = number
                return topic.topic_id if attachment.is_mount else None
            apply_verb(draft, number, "delete")  # A cancelled migration is deleted, and a new one begins.
        existing = draft.topics.get(attachment.name)
        if existing is not None:
            location = get_topic_location(attachment.name, existing, self.cluster.cluster_id)
            if attachment.is_mount and not attachment.matches(location):
                _LOGGER.warning(
                    "%s cannot be mounted as %s: it exists, at %s", attachment.source, attachment.name, location
                )
            attachment.check_matches(location)
        if attachment.is_mount:
            return self._mount(draft, attachment, existing)
        self._unmount(draft, attachment, existing)
        return None

    def complete_migrations(self, outcomes: Iterable[Outcome], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        """Yield outcomes. Those of migrations follow when all migrations have finished."""
        ours = []
        for outcome in outcomes:
            if outcome.id in self.migration_numbers and isinstance(outcome, CompletedAction):
                ours.append(outcome)
            else:
                yield outcome
        timeouts = {self.migration_numbers[outcome.id]: self.attachments[outcome.id].timeout_ms for outcome in ours}
        errors = drive_in_parallel(
            replace(self.cluster.mounts, may_go_on=may_go_on),
            list(timeouts),
            lambda mounts, number: drive_catching_error(
                partial(drive_or_undo, timeout_ms=timeouts[number]), mounts, number
            ),
        )
        for outcome in ours:
            error = errors[self.migration_numbers[outcome.id]]
            yield outcome if error is None else FailedAction(outcome.id, error)

    def _mount(self, draft: Draft, attachment: Attachment, existing: TopicEntry | None) -> str:
        if existing is not None:
            check_not_migrating(attachment.name, existing, "to mount it")
            return existing.id  # An existing topic shows that an earlier run completed the mount.
        lookup = self.lookups[attachment.id]
        if isinstance(lookup, MigrantEntry):
            cluster_id = self.cluster.cluster_id
            self.migration_numbers[attachment.id] = begin_mount(
                draft, [lookup], self.cluster.mounts.make_request(), cluster_id=cluster_id
            )
            return lookup.topic_id
        raise _lookup_error(attachment, lookup)

    def _unmount(self, draft: Draft, attachment: Attachment, existing: TopicEntry | None) -> None:
        lookup, cluster_id = self.lookups[attachment.id], self.cluster.cluster_id
        if existing is not None:
            names = {attachment.name: attachment.mounting.full_name}
            self.migration_numbers[attachment.id] = begin_unmount(
                draft, names, self.cluster.mounts.make_request(), cluster_id=cluster_id
            )
        elif not isinstance(lookup, Ownership) or (lookup.state, lookup.owner) == (OwnershipState.MOUNTED, cluster_id):
            raise _lookup_error(attachment, lookup)  # No earlier run unmounted the missing topic.


def _find_ownership(cluster: EmbeddedCluster, attachment: Attachment) -> Ownership | None:
    """Return the owner of a topic to unmount; `None` if never detached."""
    remote, location = cluster.remote, attachment.location
    if remote is None:
        return None
    if location is not None:
        return read_ownership(remote.storage, location)
    registers = [ownership for _, ownership in iter_ownerships(remote.storage) if isinstance(ownership, Ownership)]
    ours = [
        ownership
        for ownership in registers
        if (ownership.name, ownership.owner) == (attachment.name, cluster.cluster_id)
    ]
    return max(ours, key=lambda ownership: ownership.at_ms, default=None)


def _lookup_error(attachment: Attachment, lookup: MountLookup) -> ReconcilerError:
    if isinstance(lookup, ReconcilerError):
        return lookup
    message = f"there is no topic {attachment.name}, and no record of its unmounting: {attachment.source}"
    return UserError(message, hint="It was deleted or moved after the plan read it: plan again.")


_S = MigrationState
_CLAIMED: Final = frozenset({_S.EXECUTED, _S.CUT_OVER})
"""States in which a mount owns its topics."""


@dataclass(frozen=True)
class Migrations:
    """Migrations (mounts and unmounts) of one cluster."""

    address: Address
    storage: ObjectStore | None
    who: Permissions
    now_ms: Callable[[], int]
    open_cluster: Callable[[], EmbeddedCluster]

    job_steps: ClassVar[None] = None
    """`None`, because the cluster itself mounts, unmounts and renames topics."""

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return recorded migrations; `is_measured` adds the remaining uploads."""
        cluster = self.open_cluster()
        catalog = cluster.catalog.read()
        return [
            self._measure_migration(cluster, catalog, number, migration)
            if is_measured
            else _to_migration(catalog, number, migration)
            for number, migration in list_migrations(catalog).items()
            if all(
                self.who.is_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, topic.name) for topic in migration.topics
            )
        ]

    def request_verb(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = skip_check) -> Migration:
        """Request a lifecycle verb."""
        cluster = self.open_cluster()
        mounts = replace(cluster.mounts, may_go_on=may_go_on)
        after = mounts.ask(migration, verb)
        if MigrationState(after.state) is _S.CANCELING:
            try:
                after = mounts.drive(migration) or replace(after, state=str(_S.CANCELLED))
            except ReconcilerError as error:
                raise _unfinished_error(migration, error) from error
        return _to_migration(cluster.catalog.read(), migration, after)

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return errors for topics that cannot be mounted or unmounted."""
        return self.open_cluster().mounts.find_obstacles(direction, topics)

    def run_migration(self, request: HandMigration, may_go_on: Callable[[], None]) -> None:
        """Begin or continue a migration of the requested topics."""
        cluster = self.open_cluster()
        mounts = replace(cluster.mounts, may_go_on=may_go_on)
        if request.phase == "finish":
            for number in _find_migrations(cluster, request):
                mounts.drive_to_end(number)
            return
        may_go_on()
        is_whole = request.phase == "whole"
        if request.direction == INBOUND:
            wanted = [Mount(location, name) for name, location in request.topics.items()]
            number = mounts.mount(*wanted, is_automatic=is_whole)
        else:
            _check_same_topics(cluster, request)
            number = mounts.unmount(*request.topics, is_automatic=is_whole)
        if is_whole:
            drive_or_undo(mounts, number)
        else:
            mounts.prepare(number)

    def list_detached_topics(self) -> Iterator[tuple[str, MountableTopic | UserError]]:
        """Yield all topics ever detached, with one GET each."""
        self.who.check_super_user("list what can be mounted")
        storage, is_empty = self._require_storage(), True
        for register in list_registers(storage):
            is_empty = False
            yield register
        if is_empty:
            check_storage(storage, self._bound_storage_id())

    def read_releasable_topic(self, location: str, owner: str) -> MountableTopic:
        """Return a topic from its current manifests, with one GET per partition."""
        self.who.check_super_user(f"release {location}")
        return read_releasable_topic(self._require_storage(), location, owner)

    def release_topic(self, location: str, owner: str) -> MountableTopic:
        """Release a topic's manifests, then its register."""
        self.who.check_super_user(f"release {location}")
        return release_lost_topic(self._require_storage(), location, owner, now_ms=self.now_ms())

    def _bound_storage_id(self) -> str | None:
        try:
            return self.open_cluster().catalog.read().cluster.storage_id
        except ReconcilerError:
            return None

    def _require_storage(self) -> ObjectStore:
        return require_storage(self.address, self.storage)

    def _measure_migration(
        self, cluster: EmbeddedCluster, catalog: Catalog, number: int, migration: MigrationEntry
    ) -> Migration:
        state, is_inbound = MigrationState(migration.state), migration.direction == INBOUND
        left = None
        if not is_inbound and state in BEFORE_EXECUTED:
            left = sum(count_bytes_to_upload(cluster.store, topic.topic_id) for topic in migration.topics)
        waits = list(
            self._find_inbound_waits(cluster, migration)
            if is_inbound
            else _find_outbound_waits(cluster, catalog, migration)
        )
        if not migration.is_automatic and state in NEXT_VERBS:
            names = [address_of("topic", cluster_of(self.address) or "", topic.name) for topic in migration.topics]
            waits.append(finish_command("inbound" if is_inbound else "outbound", *names))
        return replace(_to_migration(catalog, number, migration), bytes_left=left, waits=tuple(waits))

    def _find_inbound_waits(self, cluster: EmbeddedCluster, migration: MigrationEntry) -> Iterator[str]:
        state = MigrationState(migration.state)
        if state not in BEFORE_EXECUTED | _CLAIMED:
            return
        if self.storage is None:
            yield f"{self.address} has no object storage any more"
            return
        for topic in migration.topics:
            try:
                if state in _CLAIMED:
                    location = TopicLocation.parse(topic.location)
                    check_claim_held(
                        location, read_ownership(self.storage, location), cluster.cluster_id, migration.claim
                    )
                else:
                    self._check_mountable(self.storage, cluster.cluster_id, migration.claim, topic, state)
            except ReconcilerError as error:
                yield error.message

    @staticmethod
    def _check_mountable(
        storage: ObjectStore, cluster_id: str, claim: str, topic: MigrantEntry, state: MigrationState
    ) -> None:
        remote_topic = find_topic_at(storage, TopicLocation.parse(topic.location))
        check_claimable(remote_topic.location, read_ownership(storage, remote_topic.location), cluster_id, claim)
        if state is _S.EXECUTING:
            read_whole_partitions(storage, remote_topic)


def _find_migrations(cluster: EmbeddedCluster, request: HandMigration) -> list[int]:
    numbers: list[int] = []
    for number, migration in list_migrations(cluster.catalog.read()).items():
        names = {topic.name for topic in migration.topics}
        if (
            migration.direction != request.direction
            or not is_in_progress(migration.state)
            or names.isdisjoint(request.topics)
        ):
            continue
        if others := sorted(names - request.topics.keys()):
            message = f"migration {number} has other topics as well: {', '.join(others)}"
            raise StalePlanError(
                message, hint="It was begun after the command read the cluster: run the command again."
            )
        numbers.append(number)
    return numbers


def _check_same_topics(cluster: EmbeddedCluster, request: HandMigration) -> None:
    topics = cluster.catalog.read().topics
    for name, location in request.topics.items():
        topic = topics.get(name)
        if location and topic is not None and str(get_topic_location(name, topic, cluster.cluster_id)) != location:
            message = f"topic {name} was deleted and created again after it was read"
            raise StalePlanError(message, hint="Nothing was unmounted. Run the command again.")


def _unfinished_error(migration: int, error: ReconcilerError) -> IncompleteError:
    before = "" if isinstance(error, InterruptedRunError) else f"{error.hint.removesuffix('.')}. Then "
    message = f"migration {migration} is canceling, and not cancelled yet: {error.message}"
    return IncompleteError(message, hint=f"{before}continue with: reconciler run --once --only migrations")


def _find_outbound_waits(cluster: EmbeddedCluster, catalog: Catalog, migration: MigrationEntry) -> Iterator[str]:
    if MigrationState(migration.state) not in BEFORE_EXECUTED:
        return
    for name in sorted(map_names_by_id(catalog, {topic.topic_id for topic in migration.topics}).values()):
        tiering = find_tiering(catalog, name, cluster.cluster_id)
        if tiering is None or not tiering.uploads:
            yield f"topic {name} is not uploaded: uploads are switched off"


def _to_migration(catalog: Catalog, number: int, migration: MigrationEntry) -> Migration:
    names = map_names_by_id(catalog, {topic.topic_id for topic in migration.topics})
    partitions = {topic_id: catalog.topics[name].partitions for topic_id, name in names.items()}
    closed = {topic_id for topic_id, name in names.items() if is_closed(catalog.topics[name])}
    topics = (
        Migrant(topic.name, topic.location, topic.mounting, partitions.get(topic.topic_id), topic.topic_id in closed)
        for topic in migration.topics
    )
    return Migration(
        id=number,
        direction="inbound" if migration.direction == INBOUND else "outbound",
        state=migration.state,
        topics=tuple(topics),
        created_ms=migration.created_ms,
        completed_ms=migration.completed_ms,
        is_automatic=migration.is_automatic,
    )
