"""List, describe, reset and delete consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.acl import Kind, Operation, Permissions, find_visible_topic, hidden_topics_error
from reconciler.embedded.catalog.tables import Catalog, get_topic, map_names_by_id
from reconciler.embedded.catalog.tiering_state import hides_remote_records
from reconciler.embedded.keys import GROUPS, parse_group_key
from reconciler.embedded.segments.groups import (
    Group,
    Place,
    check_commit,
    check_idle,
    commit_offsets,
    delete_group,
    delete_offsets,
    fetch_offsets,
    get_existing_group,
    group_register,
    list_groups,
    parse_group,
    read_group,
)
from reconciler.embedded.segments.head import read_bounds
from reconciler.errors import NotFoundError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.resources.groups import READING_MS, ConsumerGroup, GroupOffset, OffsetMove, Reset, plan_offset_move
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from reconciler.embedded.context import ClusterContext
    from reconciler.embedded.tiered.remote_tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import RegisterSnapshot
    from reconciler.records.log import Bounds


MAX_GROUPS: Final = 1_000
"""Maximum groups to read; each takes a request."""

_MAX_CLOCK_SKEW_MS: Final = 2 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """A catalog's topics; their bounds are read once, on demand."""

    store: ObjectStore
    names: Mapping[str, tuple[str, int]]
    bounds: dict[str, Mapping[int, Bounds]]
    hiding: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: ObjectStore, catalog: Catalog) -> TopicBounds:
        """Index a catalog's topics, without reading bounds."""
        names = {entry.id: (name, entry.partitions) for name, entry in catalog.topics.items()}
        return cls(store, names, {}, frozenset(name for name in catalog.topics if hides_remote_records(catalog, name)))

    def iter_offsets(self, group: Group, topic_id: str) -> Iterator[GroupOffset]:
        """Yield a group's offset for every partition of a topic."""
        name, partitions = self.names[topic_id]
        if topic_id not in self.bounds:
            whole, is_hiding = read_bounds(self.store, topic_id, partitions), name in self.hiding
            self.bounds[topic_id] = {number: at.limit_to_local() if is_hiding else at for number, at in whole.items()}
        offsets = group.offsets
        for partition, at in sorted(self.bounds[topic_id].items()):
            own = offsets.get((topic_id, partition))
            if own is None:
                yield GroupOffset(name, partition, None, at.start, at.stable, at.end)
                continue
            committed = own.clamp(at).offset
            yield GroupOffset(name, partition, committed, at.start, at.stable, at.end, own.at_ms, own.metadata)

    def list_existing_topics(self, group: Group) -> list[str]:
        """Return the ids of existing topics in which the group has offsets, sorted by name."""
        return sorted(group.topic_ids & self.names.keys(), key=lambda topic_id: self.names[topic_id])


def describe_group(store: ObjectStore, catalog: Catalog, group: str, *, now_ms: int) -> ConsumerGroup:
    """Return a group with its offsets in all partitions of its topics."""
    existing, read = get_existing_group(store, group), TopicBounds.of(store, catalog)
    rows = (row for topic_id in read.list_existing_topics(existing) for row in read.iter_offsets(existing, topic_id))
    return ConsumerGroup(group, existing.is_reading(now_ms), existing.find_last_commit_ms(), tuple(rows))


def describe_topic_groups(
    store: ObjectStore, catalog: Catalog, topic_id: str, *, now_ms: int
) -> list[ConsumerGroup] | None:
    """Return the groups with offsets in a topic, and only these offsets; `None` above `MAX_GROUPS`."""
    names, read, matching = list_groups(store), TopicBounds.of(store, catalog), []
    if len(names) > MAX_GROUPS:
        return None
    for name in names:
        group = read_group(store, name)
        if group is not None and topic_id in group.topic_ids:
            rows = tuple(read.iter_offsets(group, topic_id))
            is_reading = group.is_reading(now_ms, topic_id)
            matching.append(ConsumerGroup(name, is_reading, group.find_last_commit_ms(topic_id), rows))
    return matching


def list_reading_groups(store: ObjectStore, *, now_ms: int) -> dict[str, tuple[str, ...]] | None:
    """Return the reading groups of each topic, by topic id; `None` above `MAX_GROUPS`."""
    young = store.read_clock_ms() - READING_MS - _MAX_CLOCK_SKEW_MS
    names = [parse_group_key(listed.key) for listed in store.list(GROUPS) if listed.modified_ms >= young]
    if len(names) > MAX_GROUPS:
        return None
    reading: dict[str, tuple[str, ...]] = {}
    for name in sorted(name for name in names if name is not None):
        group = read_group(store, name)
        if group is not None:
            for topic_id in group.topic_ids:
                if group.is_reading(now_ms, topic_id):
                    reading[topic_id] = (*reading.get(topic_id, ()), name)
    return reading


# pyarrow is imported only for a reset by time, which reads records.
# ruff: noqa: PLC0415


@dataclass(frozen=True, slots=True)
class Groups:
    """Consumer groups of a cluster. Offsets are keyed by full topic name and partition."""

    store: ObjectStore
    catalog: CatalogRegister
    permissions: Permissions
    now_ms: Callable[[], int]
    remote: RemoteTier | None = None

    @classmethod
    def of(cls, cluster: ClusterContext) -> Groups:
        """Create a cluster's groups."""
        return cls(cluster.store, cluster.catalog, cluster.permissions, cluster.now_ms, cluster.remote)

    def list_names(self) -> list[str]:
        """Return the names of groups that the caller may describe, sorted."""
        catalog = self.catalog.read()
        return [name for name in list_groups(self.store) if self._may_describe(catalog, Kind.GROUP, name)]

    def describe(self, group: str) -> ConsumerGroup:
        """Return a group's offsets, lag and activity.

        Raises:
            UserError: The group does not exist.
        """
        catalog = self._read_if_allowed(Operation.DESCRIBE, group)
        described = describe_group(self.store, catalog, group, now_ms=self.now_ms())
        shown = (row for row in described.offsets if self._may_describe(catalog, Kind.TOPIC, row.topic))
        return replace(described, offsets=tuple(shown))

    def find_platform_name(self, group: str) -> str:
        """Return the name unchanged."""
        return group

    def list_for_topic(self, full_name: str) -> list[ConsumerGroup] | None:
        """Return a topic's groups as `describe_topic_groups` does."""
        catalog = self._read_if_allowed(Operation.DESCRIBE, full_name, kind=Kind.TOPIC)
        topic_id = find_visible_topic(self.permissions, catalog, full_name).id
        groups = describe_topic_groups(self.store, catalog, topic_id, now_ms=self.now_ms())
        if groups is None:
            return None
        return [group for group in groups if self._may_describe(catalog, Kind.GROUP, group.name)]

    def find_topic_readers(self) -> dict[str, tuple[str, ...]] | None:
        """Return reading groups by topic; `None` above `MAX_GROUPS`."""
        catalog, names_by_topic = self.catalog.read(), list_reading_groups(self.store, now_ms=self.now_ms())
        if names_by_topic is None:
            return None
        return {
            full_name: tuple(name for name in names_by_topic[entry.id] if self._may_describe(catalog, Kind.GROUP, name))
            for full_name, entry in catalog.topics.items()
            if entry.id in names_by_topic
        }

    def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int | CommittedOffset], *, mark: str | None = None
    ) -> None:
        """Commit a group's offsets; a repeated `mark` has no effect."""
        catalog = self._read_if_allowed(Operation.READ, group, *{topic for topic, _ in offsets})
        places = {
            (find_visible_topic(self.permissions, catalog, topic).id, partition): offset
            for (topic, partition), offset in offsets.items()
        }
        self.commit_places(group, places, mark=mark)

    def commit_places(
        self, group: str, offsets: Mapping[Place, int | CommittedOffset], *, mark: str | None = None
    ) -> None:
        """Commit offsets by topic id and partition; a repeated `mark` has no effect."""
        self._read_if_allowed(Operation.READ, group)
        commit_offsets(self.store, self.catalog, group, offsets, mark=mark or create_mark(), now_ms=self.now_ms())

    def fetch(self, group: str, topics: Iterable[str] | None = None) -> dict[tuple[str, int], CommittedOffset]:
        """Return a group's committed offsets, limited to the logs' bounds."""
        catalog = self._read_if_allowed(Operation.READ, group)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        wanted = None if topics is None else frozenset(topics)
        places = None
        if wanted is not None:
            topic_sizes = [(entry.id, entry.partitions) for name, entry in catalog.topics.items() if name in wanted]
            places = [(topic_id, partition) for topic_id, partitions in topic_sizes for partition in range(partitions)]
        fetched = fetch_offsets(self.store, self.catalog, group, places)
        named = {
            (names.get(topic_id, ""), partition): committed for (topic_id, partition), committed in fetched.items()
        }
        return {
            place: committed
            for place, committed in named.items()
            if place[0] and self._may_describe(catalog, Kind.TOPIC, place[0])
        }

    def read_committed_offsets(self, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets, without metadata."""
        return {place: committed.offset for place, committed in self.fetch(group, topics).items()}

    def fetch_places(self, group: str, places: Iterable[Place]) -> dict[Place, CommittedOffset]:
        """Return a group's committed offsets by topic id and partition, limited to the logs' bounds."""
        self._read_if_allowed(Operation.READ, group)
        return fetch_offsets(self.store, self.catalog, group, places)

    def plan_reset(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> tuple[OffsetMove, ...]:
        """Plan a reset, by default in all the group's topics."""
        if topic is None:
            self._check_all_readable(self._read_if_allowed(Operation.READ, group), group)
        else:
            find_visible_topic(self.permissions, self._read_if_allowed(Operation.READ, group, topic), topic)
        logs = SearchableLogs(self.store, self.catalog, self.remote)
        return plan_offset_moves(logs, group, reset, topic=topic, partition=partition)

    def reset_offsets(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets in one swap.

        Raises:
            BlockedError: The group is reading, and `force` is not set.
        """
        self._read_if_allowed(Operation.READ, group, *{move.topic for move in moves})
        move_offsets(self.store, self.catalog, group, moves, now_ms=self.now_ms(), force=force)

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Delete a group, or its offsets of one topic.

        Raises:
            BlockedError: The group is reading, and `force` is not set.
            NotAuthorizedError: The caller may not delete the group or read one of its topics.
        """
        catalog, now_ms = self._read_if_allowed(Operation.DELETE, group), self.now_ms()
        if topic is None:
            self._check_all_readable(catalog, group)
            return delete_group(self.store, group, now_ms=now_ms, force=force)
        self.permissions.check_allowed(catalog, Operation.READ, Kind.TOPIC, topic)
        return delete_offsets(
            self.store, group, find_visible_topic(self.permissions, catalog, topic).id, now_ms=now_ms, force=force
        )

    def _read_if_allowed(self, operation: Operation, name: str, *topics: str, kind: Kind = Kind.GROUP) -> Catalog:
        catalog = self.catalog.read()
        self.permissions.check_allowed(catalog, operation, kind, name)
        for topic in sorted(topics):
            self.permissions.check_allowed(catalog, Operation.READ, Kind.TOPIC, topic)
        return catalog

    def _check_all_readable(self, catalog: Catalog, group: str) -> None:
        who = self.permissions
        existing = None if who.is_super_user else read_group(self.store, group)
        names = [] if existing is None else sorted(map_names_by_id(catalog, existing.topic_ids).values())
        for name in names:
            if self._may_describe(catalog, Kind.TOPIC, name):
                who.check_allowed(catalog, Operation.READ, Kind.TOPIC, name)
        if not all(self._may_describe(catalog, Kind.TOPIC, name) for name in names):
            raise hidden_topics_error(who, group)

    def _may_describe(self, catalog: Catalog, kind: Kind, name: str) -> bool:
        return self.permissions.is_allowed(catalog, Operation.DESCRIBE, kind, name)


@dataclass(frozen=True, slots=True)
class SearchableLogs:
    """Logs in which offsets can be found by time."""

    store: ObjectStore
    catalog: CatalogRegister
    remote: RemoteTier | None = None

    def open_log(self, full_name: str, topic_id: str) -> EmbeddedLog:
        """Return a topic's log."""
        from reconciler.embedded.clients.topic_log import EmbeddedLog

        return EmbeddedLog(self.store, self.catalog, full_name, topic_id, remote=self.remote)


def plan_offset_moves(
    logs: SearchableLogs, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
) -> tuple[OffsetMove, ...]:
    """Plan the offset changes of a reset, limited to each log's bounds.

    The group must exist unless a `topic` is given.
    """
    store, catalog = logs.store, logs.catalog.read()
    existing, read = read_group(store, group), TopicBounds.of(store, catalog)
    if existing is None and topic is None:
        raise NotFoundError(f"group {group} does not exist", hint="Name a topic to give a new group its first offsets.")
    known = existing or Group()
    topic_ids = read.list_existing_topics(known) if topic is None else [get_topic(catalog, topic).id]
    rows = [(topic_id, row) for topic_id in topic_ids for row in read.iter_offsets(known, topic_id)]
    if partition is not None:
        rows = [(topic_id, row) for topic_id, row in rows if row.partition == partition]
        if not rows:
            raise UserError(f"partition {partition}: no topic of the reset has it", hint="Partitions count from 0.")
    moves = (_plan_move(logs.open_log(row.topic, topic_id), row, reset) for topic_id, row in rows)
    return tuple(move for move in moves if move is not None)


def _plan_move(log: EmbeddedLog, row: GroupOffset, reset: Reset) -> OffsetMove | None:
    return plan_offset_move(row, reset, lambda at_ms: log.find_offset_at(row.partition, at_ms))


def move_offsets(
    store: ObjectStore,
    catalog: CatalogRegister,
    group: str,
    moves: Sequence[OffsetMove],
    *,
    now_ms: int,
    force: bool = False,
) -> None:
    """Set a group's offsets in one swap, without marking the group as reading.

    Raises:
        BlockedError: The group is reading, and `force` is not set.
    """
    register = group_register(store, group)

    def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        known = catalog.read()
        before = parse_group(register, held)
        places = _key_by_place(known, moves)
        if not force:
            for topic_id in sorted({topic_id for topic_id, _ in places}):
                check_idle(group, before, now_ms, topic_id)
        check_commit(known, group, places)
        after = {place: _make_offset(before, place, offset) for place, offset in places.items()}
        return before.with_own(after).limit_to_topics(topic.id for topic in known.topics.values()).to_json()

    if moves:
        register.update(change, mark=create_mark())


def _key_by_place(catalog: Catalog, moves: Sequence[OffsetMove]) -> dict[Place, int]:
    return {(get_topic(catalog, move.topic).id, move.partition): move.after for move in moves}


def _make_offset(before: Group, place: Place, offset: int) -> CommittedOffset:
    own = before.own.get(place)
    return CommittedOffset(offset, at_ms=None if own is None else own.at_ms)
