"""Resetting a group: what it would do, partition by partition, and doing it. Two steps, so that it can be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.lookups import topic_named
from reconciler.embedded.consuming.groups import check_commit, check_idle, group_of, group_register, read_group
from reconciler.embedded.consuming.offsets import Committed, Group
from reconciler.embedded.consuming.views import Read
from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.partition.log import EmbeddedLog
from reconciler.errors import UserError
from reconciler.resources.groups import move_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.consuming.offsets import Place
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held
    from reconciler.resources.groups import GroupOffset, OffsetMove, Reset


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs of a cluster, both tiers of each: a search by time reads records."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None = None

    def log(self, full_name: str, topic_id: str) -> EmbeddedLog:
        """Return one."""
        return EmbeddedLog(self.store, self.catalog, full_name, topic_id, remote=self.remote)


def moves_of(
    logs: Logs, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
) -> tuple[OffsetMove, ...]:
    """Return what a reset would set, within each log as it is now; what stays is left out. Changes nothing.

    Without `topic` it is every topic the group has offsets of; with one, the group need not exist yet.

    Raises:
        UserError: There is no such group, topic or partition.
    """
    store, catalog = logs.store, logs.catalog.read()
    found, read = read_group(store, group), Read.of(store, catalog)
    if found is None and topic is None:
        raise UserError(f"group {group} does not exist", hint="Name a topic to give a new group its first offsets.")
    known = found or Group()
    topic_ids = read.living(known) if topic is None else [topic_named(catalog, topic).id]
    rows = [(topic_id, row) for topic_id in topic_ids for row in read.rows(known, topic_id)]
    if partition is not None:
        rows = [(topic_id, row) for topic_id, row in rows if row.partition == partition]
        if not rows:
            raise UserError(f"partition {partition}: no topic of the reset has it", hint="Partitions count from 0.")
    moves = (_move(logs.log(row.topic, topic_id), row, reset) for topic_id, row in rows)
    return tuple(move for move in moves if move is not None)


def _move(log: EmbeddedLog, row: GroupOffset, reset: Reset) -> OffsetMove | None:
    return move_of(row, reset, lambda at_ms: log.offset_for_time(row.partition, at_ms))


def move_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    moves: Sequence[OffsetMove],
    *,
    now_ms: int,
    force: bool = False,
) -> None:
    """Set a group's offsets by one swap. It is not thereby reading: when it last committed stays as it was.

    Raises:
        BlockedError: The group is reading one of the topics, and `force` is not set.
        InvalidNamespaceError: The group's namespace does not exist.
        UserError: A topic or partition is not there any more.
    """
    register = group_register(store, group)

    def change(held: Held | None) -> dict[str, Any] | None:
        known = catalog.read()
        before = group_of(register, held)
        places = _places(known, moves)
        if not force:
            for topic_id in sorted({topic_id for topic_id, _ in places}):
                check_idle(group, before, now_ms, topic_id)
        check_commit(known, group, places)
        after = {place: _set(before, place, offset) for place, offset in places.items()}
        return before.with_own(after).only(topic.id for topic in known.topics.values()).to_json()

    if moves:
        register.update(change, mark=fresh_mark())


def _places(catalog: Catalog, moves: Sequence[OffsetMove]) -> dict[Place, int]:
    return {(topic_named(catalog, move.topic).id, move.partition): move.after for move in moves}


def _set(before: Group, place: Place, offset: int) -> Committed:
    own = before.own.get(place)
    return Committed(offset, at_ms=None if own is None else own.at_ms)
