"""Migrations judged: what the catalog says of them and of the topics they hold, and who may append to those. Pure.

What is half-way of a topic that is mounted or unmounted is no damage: it is said that it is on its way. What no
migration is going to finish is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.holding import SEAL, is_closed
from reconciler.embedded.catalog.migrations import INBOUND
from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.keys import CATALOG
from reconciler.embedded.partition.gate import writer_of
from reconciler.embedded.partition.handing import is_mirroring
from reconciler.lifecycles.mounting import MigrationState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.migrationentries import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.partition.head import Head

_S = MigrationState
_ENDED: Final = frozenset({_S.FINISHED, _S.CANCELLED, _S.GONE})
_TOLD: Final = frozenset({_S.PLANNED, _S.PREPARED, _S.EXECUTED, _S.FINISHED})
"""States that one which is not automatic leaves only where that is asked for."""
_OPEN: Final = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED})
"""States of an outbound migration in which clients still read and write."""
_CLOSED: Final = frozenset({_S.EXECUTING, _S.EXECUTED, _S.CUT_OVER})
_MADE: Final = _CLOSED | {_S.PREPARED}
"""States of an inbound migration in which its topics are there, closed."""
_CUT: Final = frozenset({_S.EXECUTED, _S.CUT_OVER})
"""States of an outbound migration in which every head is sealed."""


def state_of(migration: MigrationEntry) -> MigrationState | None:
    """Return the state of a migration; `None`: what is written there is none."""
    try:
        return MigrationState(migration.state)
    except ValueError:
        return None


def migration_of(catalog: Catalog | Draft, topic: TopicEntry) -> MigrationEntry | None:
    """Return the migration that holds a topic; `None`: none does, or the one that did is over."""
    if topic.hold is None:
        return None
    found = catalog.migrations.get(str(topic.hold.migration))
    is_its = found is not None and any(each.topic_id == topic.id for each in found.topics)
    return found if found is not None and is_its and state_of(found) not in _ENDED else None


def judge_migrations(catalog: Catalog) -> Iterator[Finding]:
    """Yield the migrations that are under way, where one and its topics disagree, and holds that nobody takes off."""
    for number, migration in catalog.migrations.items():
        names = [topic.name for topic in migration.topics]
        place, state = Place(CATALOG, names[0] if names else None), state_of(migration)
        if state is None:
            what = f"migration {number}: {migration.state!r} is no state of one"
            yield Finding(Kind.MIGRATION_CONTRADICTION, what, place)
        elif state is not _S.CANCELLED:
            more = f" and {len(names) - 1} more" if names[1:] else ""
            told = "" if migration.is_automatic else ", and moves on only when it is told to"
            what = f"migration {number}, {migration.direction}, is {state}{told}: {', '.join(names[:1])}{more}"
            is_waiting = not migration.is_automatic and state in _TOLD
            kind = Kind.MIGRATION_WAITS if is_waiting else Kind.MIGRATION_UNDER_WAY
            yield Finding(kind, what, place, objects=len(names))
            yield from _of_topics(catalog, number, migration, state)
    for name, topic in catalog.topics.items():
        if topic.hold is not None and migration_of(catalog, topic) is None:
            closed = "closed, " if topic.hold.is_closed else ""
            what = f"it is {closed}held by migration {topic.hold.migration}, which is not there or over"
            yield Finding(Kind.HOLD_STALE, what, Place(CATALOG, name))


def _of_topics(catalog: Catalog, number: str, migration: MigrationEntry, state: MigrationState) -> Iterator[Finding]:
    """Yield which topics are not as the state of their migration says."""
    there = {topic.id: topic for topic in catalog.topics.values()}
    closed = _MADE if migration.direction == INBOUND else _CLOSED
    is_expected = state in closed or (migration.direction != INBOUND and state in _OPEN)
    for migrant in migration.topics if is_expected else ():
        topic, wrong = there.get(migrant.topic_id), None
        if topic is None:
            wrong = "is not there"
        elif topic.hold is None or str(topic.hold.migration) != number:
            wrong = "is not held by it"
        elif topic.hold.is_closed != (state in closed):
            wrong = "takes records" if state in closed else "takes no records"
        if wrong is not None:
            what = f"migration {number} is {state}, and its topic {migrant.name} {wrong}"
            yield Finding(Kind.MIGRATION_CONTRADICTION, what, Place(CATALOG, migrant.name))


def judge_writer(catalog: Catalog, topic: TopicEntry, head: Head, place: Place) -> Iterator[Finding]:
    """Yield where a head lets another append than the catalog does; what a migration is about to change is no fault."""
    writer = writer_of(topic)
    if head.writer == writer:
        return
    if head.writer.startswith(SEAL):
        if not is_closed(topic):
            number = head.writer.removeprefix(SEAL)
            yield Finding(Kind.SEAL_LEFT, f"migration {number} has sealed it, and it does not hold the topic", place)
        return
    migration = migration_of(catalog, topic)
    if is_closed(topic) and (migration is None or not _is_cut(migration) or not head.is_settled):
        return  # It is about to be sealed, is being mounted, or takes nothing by the catalog; a stale hold is told.
    kind = Kind.HANDOVER_UNFINISHED if is_mirroring(head.writer, writer) else Kind.HEAD_WRITER
    yield Finding(kind, f"{head.writer} may append by the head, {writer} by the catalog", place)


def _is_cut(migration: MigrationEntry) -> bool:
    return migration.direction != INBOUND and state_of(migration) in _CUT
