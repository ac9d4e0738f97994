"""Check owners, migrations and mirrors.

Ownership registers are read before the catalog. Problems are read again, since migrations may be running.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import MOUNTABLE, build_mountable_key, is_mountable_key
from reconciler.archives.ownership import Ownership, OwnershipState, read_ownership_at
from reconciler.archives.topic_manifest import read_topic_manifest
from reconciler.embedded.catalog.migration_tables import INBOUND
from reconciler.embedded.catalog.tables import SEAL, Catalog, Draft, is_closed
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.check.damage import CheckFinding, FindingPlace, Kind
from reconciler.embedded.keys import CATALOG, parse_head_key
from reconciler.embedded.segments.gate import find_writer
from reconciler.embedded.segments.groups import clamp_groups
from reconciler.embedded.segments.head import PRODUCERS, Head, changes_mirroring, read_head, replace_writer
from reconciler.errors import UserError
from reconciler.lifecycles import MigrationState
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrationEntry, TopicEntry
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


_S = MigrationState
_ENDED: Final = frozenset({_S.FINISHED, _S.CANCELLED, _S.GONE})
_WAITING_STATES: Final = frozenset({_S.PLANNED, _S.PREPARED, _S.EXECUTED, _S.FINISHED})
_OPEN_STATES: Final = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED})
"""States of an outbound migration in which clients still read and write."""
_CLOSED: Final = frozenset({_S.EXECUTING, _S.EXECUTED, _S.CUT_OVER})
_CREATED_STATES: Final = _CLOSED | {_S.PREPARED}
"""States of an inbound migration whose topics exist but are closed."""
_SEALED_STATES: Final = frozenset({_S.EXECUTED, _S.CUT_OVER})


def parse_migration_state(migration: MigrationEntry) -> MigrationState | None:
    """Return a migration's state; `None` if invalid."""
    try:
        return MigrationState(migration.state)
    except ValueError:
        return None


def find_holding_migration(catalog: Catalog | Draft, topic: TopicEntry) -> MigrationEntry | None:
    """Return the active migration of a topic, or `None`."""
    if topic.hold is None:
        return None
    migration = catalog.migrations.get(str(topic.hold.migration))
    is_its = migration is not None and any(migrant.topic_id == topic.id for migrant in migration.topics)
    return migration if migration is not None and is_its and parse_migration_state(migration) not in _ENDED else None


def find_migration_problems(catalog: Catalog) -> Iterator[CheckFinding]:
    """Yield active migrations, their contradictions with topics, and topics that ended migrations still hold."""
    for number, migration in catalog.migrations.items():
        names = [topic.name for topic in migration.topics]
        place, state = FindingPlace(CATALOG, names[0] if names else None), parse_migration_state(migration)
        if state is None:
            what = f"migration {number}: {migration.state!r} is not a state of a migration"
            yield CheckFinding(Kind.MIGRATION_CONTRADICTION, what, place)
        elif state is not _S.CANCELLED:
            more = f" and {len(names) - 1} more" if names[1:] else ""
            waiting = "" if migration.is_automatic else ", and continues only by command"
            what = f"migration {number}, {migration.direction}, is {state}{waiting}: {', '.join(names[:1])}{more}"
            is_waiting = not migration.is_automatic and state in _WAITING_STATES
            kind = Kind.MIGRATION_WAITS if is_waiting else Kind.MIGRATION_UNDER_WAY
            yield CheckFinding(kind, what, place, objects=len(names))
            yield from _check_topics(catalog, number, migration, state)
    for name, topic in catalog.topics.items():
        if topic.hold is not None and find_holding_migration(catalog, topic) is None:
            closed = "closed, " if topic.hold.is_closed else ""
            what = f"it is {closed}held by migration {topic.hold.migration}, which does not exist or has ended"
            yield CheckFinding(Kind.HOLD_STALE, what, FindingPlace(CATALOG, name))


def _check_topics(
    catalog: Catalog, number: str, migration: MigrationEntry, state: MigrationState
) -> Iterator[CheckFinding]:
    topics_by_id = {topic.id: topic for topic in catalog.topics.values()}
    closed = _CREATED_STATES if migration.direction == INBOUND else _CLOSED
    is_expected = state in closed or (migration.direction != INBOUND and state in _OPEN_STATES)
    for migrant in migration.topics if is_expected else ():
        topic, wrong = topics_by_id.get(migrant.topic_id), None
        if topic is None:
            wrong = "is not there"
        elif topic.hold is None or str(topic.hold.migration) != number:
            wrong = "is not held by it"
        elif topic.hold.is_closed != (state in closed):
            wrong = "takes records" if state in closed else "takes no records"
        if wrong is not None:
            what = f"migration {number} is {state}, and its topic {migrant.name} {wrong}"
            yield CheckFinding(Kind.MIGRATION_CONTRADICTION, what, FindingPlace(CATALOG, migrant.name))


def find_writer_difference(
    catalog: Catalog, topic: TopicEntry, head: Head, place: FindingPlace
) -> Iterator[CheckFinding]:
    """Yield a head whose writer differs from the catalog's, unless a migration will change it."""
    writer = find_writer(topic)
    if head.writer == writer:
        return
    if head.writer.startswith(SEAL):
        if not is_closed(topic):
            number = head.writer.removeprefix(SEAL)
            yield CheckFinding(
                Kind.SEAL_LEFT, f"migration {number} has sealed it, and it does not hold the topic", place
            )
        return
    migration = find_holding_migration(catalog, topic)
    if is_closed(topic) and (migration is None or not _is_sealed(migration) or not head.is_settled):
        return  # If the migration has ended, `find_migration_problems` reports the topic.
    kind = Kind.HANDOVER_UNFINISHED if changes_mirroring(head.writer, writer) else Kind.HEAD_WRITER
    yield CheckFinding(
        kind, f"{head.writer} may append according to the head, {writer} according to the catalog", place
    )


def _is_sealed(migration: MigrationEntry) -> bool:
    return migration.direction != INBOUND and parse_migration_state(migration) in _SEALED_STATES


_LOOKS: Final = 3
_CLAIMED_STATES: Final = frozenset({MigrationState.EXECUTED, MigrationState.CUT_OVER})
_OVER: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED, MigrationState.GONE, None})


@dataclass(frozen=True, slots=True)
class OwnershipReport:
    """Findings about the ownership registers.

    `lost` are topics of this catalog that this cluster does not own in object storage.
    """

    findings: tuple[CheckFinding, ...] = ()
    lost: frozenset[str] = frozenset()


def check_ownership(storage: ObjectStore, cluster_id: str, catalog: Callable[[], Catalog | None]) -> OwnershipReport:
    """Check every ownership register with one LIST, and one GET each.

    If `catalog` returns `None`, topics are not compared.
    """
    result = _check_once(storage, cluster_id, catalog)
    for _ in range(_LOOKS - 1):
        if not result.findings:
            break
        before, result = result, _check_once(storage, cluster_id, catalog)
        if result == before:
            break
    return result


def _check_once(storage: ObjectStore, cluster_id: str, read: Callable[[], Catalog | None]) -> OwnershipReport:
    findings: list[CheckFinding] = []
    keys: list[str] = []
    for listed in storage.list(MOUNTABLE):
        if is_mountable_key(listed.key):
            keys.append(listed.key)
        else:
            findings.append(
                CheckFinding(Kind.FOREIGN, f"{listed.key} is not an ownership register", FindingPlace(listed.key))
            )
    registers: dict[str, Ownership] = {}
    looked = map_in_parallel(lambda key: read_ownership_at(storage, key), keys, name="owners")
    for key, ownership in zip(keys, looked, strict=True):
        if isinstance(ownership, UserError):
            findings.append(CheckFinding(Kind.OWNERSHIP_DAMAGED, ownership.message, FindingPlace(key)))
        elif ownership is not None:
            registers[key] = ownership
    catalog = read()
    if catalog is None:
        return OwnershipReport(tuple(findings))
    lost = dict(find_lost_topics(catalog, cluster_id, registers))
    findings += lost.values()
    findings += _check_stale_claims(catalog, cluster_id, registers)
    findings += (
        finding
        for finding in _check_owned_topics(catalog, cluster_id, registers)
        if _has_objects(storage, registers, finding)
    )
    return OwnershipReport(tuple(findings), frozenset(lost))


def find_lost_topics(
    catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]
) -> Iterator[tuple[str, CheckFinding]]:
    """Yield topics of this catalog that this cluster does not own in object storage."""
    for name, topic in catalog.topics.items():
        key = _get_register_key(name, topic, cluster_id)
        ownership = registers.get(key)
        if ownership is not None and not _is_owned_here(ownership, cluster_id, find_holding_migration(catalog, topic)):
            yield (
                name,
                CheckFinding(Kind.OWNERSHIP_LOST, _describe_owner(ownership, cluster_id), FindingPlace(key, name)),
            )


def _is_owned_here(ownership: Ownership, cluster_id: str, migration: MigrationEntry | None) -> bool:
    has_it = ownership.state is OwnershipState.MOUNTED and ownership.owner == cluster_id
    if migration is None:
        return has_it
    if migration.direction == "outbound":
        return has_it or ownership.claim == migration.claim
    is_claimed = (
        ownership.owner == cluster_id
        and ownership.claim == migration.claim
        and ownership.state is not OwnershipState.DETACHED
    )
    return is_claimed or parse_migration_state(migration) not in _CLAIMED_STATES


def _describe_owner(ownership: Ownership, cluster_id: str) -> str:
    match ownership.state:
        case OwnershipState.DETACHED:
            return f"{ownership.location} was released: it is detached, and no cluster owns it"
        case OwnershipState.CLAIMED:
            return f"{ownership.location} is being mounted on cluster {_describe_cluster(ownership, cluster_id)}"
        case OwnershipState.MOUNTED:
            return f"{ownership.location} is mounted on cluster {_describe_cluster(ownership, cluster_id)}"


def _describe_cluster(ownership: Ownership, cluster_id: str) -> str:
    whose = "this one, by another migration," if ownership.owner == cluster_id else str(ownership.owner)
    return f"{whose} as {ownership.name}"


def _check_stale_claims(
    catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]
) -> Iterator[CheckFinding]:
    for key, ownership in find_stale_claims(catalog, cluster_id, registers):
        what = f"{ownership.location} is claimed by this cluster as {ownership.name}, and no migration of it exists"
        yield CheckFinding(Kind.CLAIM_LEFT, what, FindingPlace(key))


def find_stale_claims(
    catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]
) -> Iterator[tuple[str, Ownership]]:
    """Yield this cluster's claims on topics without an active migration."""
    going_on = {
        migration.claim for migration in catalog.migrations.values() if parse_migration_state(migration) not in _OVER
    }
    own = {_get_register_key(name, topic, cluster_id) for name, topic in catalog.topics.items()}
    for key, ownership in registers.items():
        is_claim = ownership.state is OwnershipState.CLAIMED and ownership.owner == cluster_id
        if is_claim and ownership.claim not in going_on and key not in own:
            yield key, ownership


def _check_owned_topics(
    catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]
) -> Iterator[CheckFinding]:
    own = {_get_register_key(name, topic, cluster_id) for name, topic in catalog.topics.items()}
    doomed = {entry.location for entry in catalog.deletions.values()}
    for key, ownership in registers.items():
        is_ours = ownership.state is OwnershipState.MOUNTED and ownership.owner == cluster_id
        if is_ours and key not in own and str(ownership.location) not in doomed:
            what = (
                f"{ownership.location} is mounted here as {ownership.name}, "
                "and no topic of this cluster is at that location"
            )
            yield CheckFinding(Kind.OWNED_WITHOUT_TOPIC, what, FindingPlace(key))


def _has_objects(storage: ObjectStore, registers: Mapping[str, Ownership], finding: CheckFinding) -> bool:
    location = registers[finding.place.key].location
    try:
        return read_topic_manifest(storage, location.cluster_id, location.revision) is not None
    except UserError:
        return True


def _get_register_key(full_name: str, topic: TopicEntry, cluster_id: str) -> str:
    location = get_topic_location(full_name, topic, cluster_id)
    return build_mountable_key(location.topic, location.cluster_id, location.revision)


def find_mirror_problems(catalog: Catalog) -> Iterator[CheckFinding]:
    """Yield findings about mirrors without a link or with an unfinished operation."""
    links = {entry.id for entry in catalog.links.values()}
    for name, entry in catalog.topics.items():
        mirror, place = entry.mirror, FindingPlace(CATALOG, name)
        if mirror is None:
            continue
        if mirror.link_id not in links:
            kind = Kind.MIRROR_LEFT_OVER if mirror.is_stopped else Kind.LINK_MISSING
            yield CheckFinding(kind, f"{name} is a mirror of a link that does not exist", place)
        if mirror.operation is not None:
            what = f"mirror {name} is {mirror.state}: {mirror.operation.verb} is in progress"
            yield CheckFinding(Kind.TRANSITION_UNDER_WAY, what, place)


def find_source_difference(topic: TopicEntry, head: Head, place: FindingPlace) -> Iterator[CheckFinding]:
    """Yield a partition that is a copy of another topic than its mirror's source, except during operations."""
    source, mirror = head.source, topic.active_mirror
    if source is None:
        return
    fetched, copied = source.get("fetched"), source.get("topic_id")
    if type(fetched) is int and fetched > head.end:
        what = f"its source is recorded as copied to offset {fetched}, and ends at {head.end}"
        yield CheckFinding(Kind.HEAD_CONTRADICTION, what, place)
    if mirror is None or mirror.operation is not None or mirror.source_topic_id is None or copied is None:
        return
    if copied != mirror.source_topic_id:
        what = (
            f"it holds a copy of topic id {copied}, and its mirror follows {mirror.source} ({mirror.source_topic_id})"
        )
        yield CheckFinding(Kind.MIRROR_SOURCE, what, place)


def correct_head_writers(cluster: EmbeddedCluster, findings: Sequence[CheckFinding]) -> int:
    """Set partitions' writers to the catalog's; return the number of partitions.

    If producers become the writer, group offsets are first clamped to the mirror's end.
    """
    store, topics = cluster.store, {entry.id: entry for entry in cluster.catalog.read().topics.values()}
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for finding in findings:
        topic_id, number = parse_head_key(finding.place.key)
        numbers[topic_id].append(number)
    done = 0
    for topic_id in sorted(numbers.keys() & topics.keys()):
        writer = find_writer(topics[topic_id])
        if writer == PRODUCERS:
            heads = {number: read_head(store, topic_id, number) for number in numbers[topic_id]}
            ends = {number: head.end for number, head in heads.items() if head is not None and head.writer != writer}
            clamp_groups(store, topic_id, ends)
        done += sum(
            replace_writer(store, (topic_id, number), writer, makes=False) is not None for number in numbers[topic_id]
        )
    return done


def convert_unlinked_mirrors(cluster: EmbeddedCluster) -> list[str]:
    """Turn stopped mirrors without a link into ordinary topics."""
    gone: list[str] = []

    def decide(draft: Draft) -> None:
        links = {entry.id for entry in draft.links.values()}
        gone[:] = sorted(
            name
            for name, entry in draft.topics.items()
            if entry.mirror is not None and entry.mirror.is_stopped and entry.mirror.link_id not in links
        )
        for name in gone:
            draft.put_topic(name, replace(draft.topics[name], mirror=None))

    cluster.catalog.commit(decide)
    return gone
