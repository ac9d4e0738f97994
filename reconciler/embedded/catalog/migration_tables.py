"""Migrations in the catalog: mounts (inbound) and unmounts (outbound).

Outbound topics are closed from `executing` on, and removed at the end. Inbound topics are created closed in `prepared`,
and opened at the end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from reconciler.archives.location import TopicLocation
from reconciler.embedded.catalog.model import DeletionEntry, HoldEntry, MigrantEntry, MigrationEntry, TieringEntry
from reconciler.embedded.catalog.tables import (
    Catalog,
    Draft,
    check_name_free,
    check_name_unreserved,
    check_not_migrating,
    check_not_replica,
    get_topic,
    map_names_by_id,
)
from reconciler.embedded.catalog.tiering_state import find_tiering, get_topic_location
from reconciler.embedded.catalog.topic_configs import find_explicit_configs, validate_configs
from reconciler.embedded.catalog.topics import TopicShape, create_topic
from reconciler.errors import NotFoundError, UserError
from reconciler.lifecycles import MOUNT, UNMOUNT, Lifecycle, MigrationState, TieringState
from reconciler.resources.cluster_properties import ENABLED, read_property
from reconciler.resources.mount import pin_configs
from reconciler.resources.tiering_policy import RETAIN, read_switches
from reconciler.runtime.dataclass import dataclass, replace

LOGGER: Final = logging.getLogger("reconciler.mounting")
LOGGER.addHandler(logging.NullHandler())  # Without a handler, Python prints warnings to standard error.
INBOUND: Final = "inbound"
OUTBOUND: Final = "outbound"
_ENDED: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED})


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """Options of a new migration."""

    claim: str
    now_ms: int
    is_automatic: bool = True


def get_lifecycle(migration: MigrationEntry) -> Lifecycle[MigrationState]:
    """Return the states and verbs of a migration's direction."""
    return MOUNT if migration.direction == INBOUND else UNMOUNT


def find_migration(catalog: Catalog | Draft, migration: int) -> MigrationEntry:
    """Return a migration by id; reject unknown ids."""
    migration_entry = catalog.migrations.get(str(migration))
    if migration_entry is None:
        message = f"migration {migration}: Data migration does not exist"
        raise NotFoundError(
            message, hint="A finished migration is no longer listed; see those in progress: reconciler mount status"
        )
    return migration_entry


def begin_unmount(draft: Draft, topics: Mapping[str, str | None], request: MigrationRequest, *, cluster_id: str) -> int:
    """Record an unmount of topics (full name → requesting Mounting); return the migration's id."""
    if not topics:
        raise _no_topics_error()
    migrants = [build_unmount_entry(draft, name, mounting, cluster_id) for name, mounting in topics.items()]
    return _begin_migration(draft, OUTBOUND, migrants, request)


def begin_mount(draft: Draft, migrants: Sequence[MigrantEntry], request: MigrationRequest, *, cluster_id: str) -> int:
    """Record a mount of topics; return the migration's id."""
    if not migrants:
        raise _no_topics_error()
    _check_tiered(draft, migrants[0].name)
    wanted = {migrant.location for migrant in migrants}
    under_way = {
        topic.location: number
        for number, migration in draft.migrations.items()
        if migration.direction == INBOUND
        for topic in migration.topics
        # Parsing the state is slow, so this condition comes last.
        if topic.location in wanted and MigrationState(migration.state) not in _ENDED
    }
    for migrant in migrants:
        if migrant.name in draft.topics:
            LOGGER.warning(
                "%s cannot be mounted as %s: The topic has already been created", migrant.location, migrant.name
            )
        check_name_free(draft, migrant.name)
        check_name_unreserved(draft, migrant.name)
        if migrant.location in under_way:
            message = f"{migrant.location} is undergoing data migration {under_way[migrant.location]}"
            raise UserError(message, hint="See how far it is: reconciler mount status")
    _check_not_in_cluster(draft, wanted, cluster_id)
    for word, values in (
        ("name", [item.name for item in migrants]),
        ("location", [item.location for item in migrants]),
    ):
        twice = next((item for item, times in Counter(values).items() if times > 1), None)
        if twice is not None:
            raise UserError(f"{word} {twice} is listed twice in one migration", hint="Mount each topic once.")
    return _begin_migration(draft, INBOUND, migrants, request)


def _check_not_in_cluster(draft: Draft, locations: Collection[str], cluster_id: str) -> None:
    revisions = {TopicLocation.parse(location).revision for location in locations}
    for full_name, topic in draft.topics.items():
        if topic.revision not in revisions:
            continue  # Mounts and topics may be thousands, so revisions are compared first.
        location = str(get_topic_location(full_name, topic, cluster_id))
        if location not in locations:
            continue
        if topic.hold is not None:
            message = f"{location} is undergoing data migration {topic.hold.migration}: topic {full_name} is leaving"
            hint = "Finish that first: reconciler run --once --only migrations"
            raise UserError(message, hint=hint)
        message = f"{location} was released, and is topic {full_name} here still"
        hint = f"Copy what was written to {full_name} since, if it matters, and delete it here first."
        raise UserError(message, hint=hint)
    for entry in draft.deletions.values():
        if entry.location in locations:
            message = f"{entry.location} is being deleted here: it was topic {entry.name}"
            raise UserError(message, hint="Finish that first: reconciler run --once --only deletions")


def apply_verb(draft: Draft, migration: int, verb: str) -> MigrationEntry:
    """Apply a verb such as `execute` to a migration; return its new entry."""
    current = find_migration(draft, migration)
    table = get_lifecycle(current)
    state = MigrationState(current.state)
    try:
        after = table.apply_verb(state, verb)
    except UserError as error:
        message = (
            f"migration {migration} is {state}: {error.message} (Invalid data migration state transition requested)"
        )
        raise UserError(message, hint=error.hint) from error
    if after is MigrationState.GONE:
        if current.direction == OUTBOUND and state is MigrationState.PLANNED:
            _set_hold(draft, current, None)  # Other states have released them already.
        draft.put_migration(migration, None)
        return replace(current, state=str(after))
    return _enter_state(draft, migration, current, after)


def complete_state(draft: Draft, migration: int, begun: MigrationEntry, end: MigrationState, *, now_ms: int) -> bool:
    """Move a migration from the state of `begun` to `end`; return `False` if another process did so first."""
    current = draft.migrations.get(str(migration))
    if current is None or (current.state, current.claim) != (begun.state, begun.claim):
        return False
    after = get_lifecycle(current).follow_automatic_move(MigrationState(current.state), end)
    if after in _ENDED:
        current = replace(current, completed_ms=now_ms)
    _enter_state(draft, migration, current, after)
    return True


def drop_lost_topics(draft: Draft, migration: MigrationEntry, topics: Sequence[MigrantEntry]) -> None:
    """Remove topics that another cluster owns from the catalog; their remote objects stay."""
    _remove_topics(draft, replace(migration, topics=tuple(topics)))


def check_mount_name(draft: Catalog | Draft, full_name: str) -> None:
    """Reject a taken topic name, or a cluster without object storage."""
    _check_tiered(draft, full_name)
    if full_name in draft.topics:
        message = f"topic {full_name} exists: The topic has already been created"
        raise UserError(message, hint="Choose another name with --to, or unmount or delete the topic that is there.")
    check_name_free(draft, full_name)
    check_name_unreserved(draft, full_name)


def _check_tiered(draft: Catalog | Draft, full_name: str) -> None:
    if draft.cluster.storage_id is None:
        message = f"topic {full_name} cannot be mounted: the cluster is bound to no object storage"
        raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
    if read_property(draft.cluster.properties, ENABLED) != "true":
        message = f"topic {full_name} cannot be mounted: {ENABLED} is off (Requested feature is disabled)"
        raise UserError(message, hint=f"Switch {ENABLED} on: all records of a mounted topic are in object storage.")


def build_unmount_entry(draft: Catalog | Draft, full_name: str, mounting: str | None, cluster_id: str) -> MigrantEntry:
    """Build a migration's entry for a topic; reject a topic that cannot be unmounted."""
    try:
        topic = get_topic(draft, full_name)
    except UserError as error:
        if full_name not in draft.topics:
            error.message = f"{error.message} (Topic does not exists)"
        raise
    check_not_migrating(full_name, topic, "to unmount it")
    check_not_replica(full_name, topic, "to unmount it")
    if topic.active_mirror is not None:
        message = f"topic {full_name} is a mirror: its records belong to its source"
        raise UserError(message, hint="Promote or delete the mirror first; its source can be unmounted where it is.")
    if topic.recovering is not None:
        message = f"topic {full_name} is being recovered from {topic.recovering}: the recovery is not complete"
        raise UserError(message, hint="Wait until that is done: `reconciler run --once` continues it.")
    if topic.id in draft.rewrites:
        message = f"topic {full_name} is being rewritten under another key"
        raise UserError(message, hint="Wait until that is done: `reconciler run --once --only rewrites` continues it.")
    tiering = find_tiering(draft, full_name, cluster_id)
    if tiering is None or not tiering.uploads:
        message = f"topic {full_name} has no tiering that uploads: resources that are not eligible"
        hint = (
            "Switch remote.write on, or give it a TieringPolicy; without it nothing of the topic is in object storage."
        )
        raise UserError(message, hint=hint)
    if not tiering.serves:
        message = f"topic {full_name} only uploads: resources that are not eligible"
        hint = "Switch remote.read on: once mounted, all its records are in object storage, and none could be read."
        raise UserError(message, hint=hint)
    return MigrantEntry(full_name, topic.id, str(get_topic_location(full_name, topic, cluster_id)), mounting)


def _begin_migration(draft: Draft, direction: str, migrants: Iterable[MigrantEntry], request: MigrationRequest) -> int:
    number = draft.assign_revision()
    entry = MigrationEntry(
        direction,
        str(MOUNT.initial),
        tuple(migrants),
        request.claim,
        request.now_ms,
        is_automatic=request.is_automatic,
    )
    draft.put_migration(number, entry)
    if direction == OUTBOUND:
        _set_hold(draft, entry, HoldEntry(number))
    return number


def _enter_state(draft: Draft, number: int, migration: MigrationEntry, state: MigrationState) -> MigrationEntry:
    after = replace(migration, state=str(state))
    draft.put_migration(number, after)
    match migration.direction, state:
        case "outbound", MigrationState.EXECUTING:
            _set_hold(draft, migration, HoldEntry(number, is_closed=True))
        case "outbound", MigrationState.CANCELLED:
            _set_hold(draft, migration, None)
        case "outbound", MigrationState.FINISHED:
            _remove_topics(draft, migration)
        case "inbound", MigrationState.CANCELLED:
            _remove_topics(draft, migration)
        case "inbound", MigrationState.FINISHED:
            _set_hold(draft, migration, None)
        case _:
            pass
    return after


def _set_hold(draft: Draft, migration: MigrationEntry, hold: HoldEntry | None) -> None:
    for full_name in _list_topic_names(draft, migration):
        draft.put_topic(full_name, replace(draft.topics[full_name], hold=hold))


def _remove_topics(draft: Draft, migration: MigrationEntry) -> None:
    for full_name in _list_topic_names(draft, migration):
        topic_id = draft.topics[full_name].id
        draft.put_topic(full_name, None)
        if topic_id in draft.rewrites:
            draft.put_rewrite(topic_id, None)
        draft.put_deletion(topic_id, DeletionEntry(full_name))


def _list_topic_names(draft: Draft, migration: MigrationEntry) -> list[str]:
    ids = {topic.topic_id for topic in migration.topics}
    return sorted(map_names_by_id(draft, ids).values())


def _no_topics_error() -> UserError:
    message = "no topics: Data migration definition contains errors"
    return UserError(message, hint="Name at least one topic.")


@dataclass(frozen=True, slots=True)
class MountedTopic:
    """A topic to mount, as its description in object storage says."""

    location: TopicLocation
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    effective: Mapping[str, str]
    initial: Mapping[str, str]
    tiered_epoch: int


def create_mounted_topics(draft: Draft, migration: int, made: Mapping[str, MountedTopic]) -> None:
    """Create a mount's topics (by location) as closed, with their original configs and epochs.

    A config is set on a topic if its namespace would change the value.
    """
    for migrant in find_migration(draft, migration).topics:
        existing, original = draft.topics.get(migrant.name), made[migrant.location]
        if existing is not None and existing.id == migrant.topic_id:
            continue  # Another process created the topic for this migration.
        own, effective = (
            validate_configs(f"topic at {original.location}", configs_there)
            for configs_there in (original.configs, original.effective)
        )
        shape = TopicShape(partitions=original.partitions, replication_factor=original.replication_factor)
        create_topic(draft, migrant.name, shape, topic_id=migrant.topic_id)
        place = original.location
        topic = replace(
            draft.topics[migrant.name],
            initial=dict(original.initial),
            revision=place.revision,
            origin=(place.topic, place.cluster_id),
            tiering=_build_tiering_entry(effective, original.tiered_epoch),
            hold=HoldEntry(migration, is_closed=True),
        )
        draft.put_topic(migrant.name, topic)
        configs = pin_configs(find_explicit_configs(draft, migrant.name), own, effective)
        draft.put_topic(migrant.name, replace(topic, configs=configs))


def _build_tiering_entry(effective: Mapping[str, str], epoch: int) -> TieringEntry:
    origins = {key: (value, "topic") for key, value in effective.items()}
    if not read_switches(origins).is_off:
        return TieringEntry(str(TieringState.ENABLED), epoch)
    return TieringEntry(str(TieringState.DISABLED), epoch, RETAIN)
