"""What a cluster should hold, as plain values: the machine compares clusters with it after whatever happened.

A model changes in place; `copy` it where an outcome is uncertain and keep the one that turns out to be true. `seen` is
what anybody can observe, in the form `observe` has it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from reconciler.records.log import Isolation, OffsetRange
from tests.embedded.samples import rows_of

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


SHORT_MS: Final = 3_600_000
"""`retention.ms` of topics that expire soon."""
TOMBSTONE_MS: Final = 600_000
"""`delete.retention.ms` of compacted topics."""
TIMEOUT_MS: Final = 60_000
"""What a transaction may take."""

Seen = dict[str, Any]


class Row(NamedTuple):
    """One record, byte for byte."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Rule(NamedTuple):
    """An access rule about everything in a namespace, or about one topic."""

    principal: str
    is_allowed: bool
    operation: str


@dataclass
class Partition:
    """A log: rows by offset, and which of them are undecided."""

    start: int = 0
    end: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    """By transactional id: where its first record of the open transaction lies."""
    owners: dict[int, str] = field(default_factory=dict)
    """By offset: whose open transaction a record belongs to."""
    survived_ms: dict[int, int] = field(default_factory=dict)
    """By offset: when a tombstone first stayed in a compaction."""

    @property
    def stable(self) -> int:
        return min([self.end, *self.open.values()])

    def append(self, rows: Sequence[Row], owner: str | None) -> None:
        """Put rows at the end, which gives them their offsets."""
        if owner is not None:
            self.open.setdefault(owner, self.end)
        for row in rows:
            self.rows[self.end] = row._replace(offset=self.end)
            if owner is not None:
                self.owners[self.end] = owner
            self.end += 1

    def decide(self, owner: str, *, commits: bool) -> None:
        self.open.pop(owner, None)
        for offset in [offset for offset, who in self.owners.items() if who == owner]:
            del self.owners[offset]
            if not commits:
                del self.rows[offset]

    def until(self, stop: int) -> list[Row]:
        """Return what can be read below an offset."""
        return [self.rows[offset] for offset in sorted(self.rows) if self.start <= offset < stop]

    @property
    def seen(self) -> tuple[int, int, int, list[Row], list[Row]]:
        """Return bounds, and what is read committed and uncommitted."""
        return self.start, self.stable, self.end, self.until(self.stable), self.until(self.end)


@dataclass
class Topic:
    """A topic, wherever it is."""

    id: int
    kind: str
    """`plain`, `short` (expires after an hour) or `compact`."""
    partitions: list[Partition]
    rules: tuple[Rule, ...] = ()


@dataclass
class Model:
    """A whole cluster."""

    namespaces: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    """By group, then by topic and partition: the next offset."""
    began_ms: dict[str, int] = field(default_factory=dict)
    """Of open transactions that may have written something."""
    promised: dict[str, dict[str, dict[tuple[int, int], int]]] = field(default_factory=dict)
    """By transactional id: the offsets its open transaction will commit."""
    topics_made: int = 0

    def copy(self) -> Self:
        return copy.deepcopy(self)

    # -- names

    def create_namespace(self, name: str) -> None:
        tiers = name.split(":")
        for count in range(1, len(tiers) + 1):
            self.namespaces.setdefault(":".join(tiers[:count]), ())

    def create_topic(self, name: str, kind: str, partitions: int) -> None:
        self.topics_made += 1
        self.topics[name] = Topic(self.topics_made, kind, [Partition() for _ in range(partitions)])

    def delete_topic(self, name: str) -> None:
        """Forget a topic, and every offset committed on it."""
        gone = self.topics.pop(name).id
        for offsets in self.groups.values():
            for place in [place for place in offsets if place[0] == gone]:
                del offsets[place]

    def delete_namespace(self, name: str) -> None:
        for topic in self.topics_below(name):
            self.delete_topic(topic)
        self.namespaces = {
            each: rules for each, rules in self.namespaces.items() if each != name and not each.startswith(f"{name}:")
        }

    def move_topic(self, name: str, to: str) -> None:
        self.topics[to] = self.topics.pop(name)

    def topics_below(self, namespace: str) -> list[str]:
        """Return what lies in a namespace and below it."""
        return [name for name in self.topics if name.startswith(f"{namespace}:")]

    # -- transactions

    def decide(self, owner: str, *, commits: bool) -> None:
        self.began_ms.pop(owner, None)
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.decide(owner, commits=commits)
        promised = self.promised.pop(owner, {})
        if commits:
            for group, offsets in promised.items():
                self.commit(group, offsets)

    def commit(self, group: str, offsets: dict[tuple[int, int], int]) -> None:
        """Commit a group's offsets of topics that are there."""
        living = {topic.id for topic in self.topics.values()}
        kept = {place: offset for place, offset in offsets.items() if place[0] in living}
        if kept:
            self.groups.setdefault(group, {}).update(kept)

    def overdue(self, now_ms: int) -> list[str]:
        return sorted(owner for owner, began_ms in self.began_ms.items() if now_ms - began_ms > TIMEOUT_MS)

    # -- access rules

    def may(self, principal: str, operation: str, name: str) -> bool:
        """Answer as KIP-37 says: outermost first, a denial ends it; without any rule everybody may."""
        tiers = name.split(":")[:-1]
        levels = [self.namespaces.get(":".join(tiers[:count]), ()) for count in range(1, len(tiers) + 1)]
        levels.append(self.topics[name].rules)
        is_allowed = False
        for rules in levels:
            about = [rule for rule in rules if rule.principal in {principal, "User:*"} and rule.operation == operation]
            if not all(rule.is_allowed for rule in about):
                return False
            is_allowed = is_allowed or bool(about)
        return is_allowed or not any(levels)

    # -- what can be observed

    @property
    def seen(self) -> Seen:
        names = {topic.id: name for name, topic in self.topics.items()}
        return {
            "namespaces": sorted(self.namespaces),
            "topics": {
                name: [partition.seen for partition in topic.partitions] for name, topic in sorted(self.topics.items())
            },
            "groups": {
                group: {
                    (names[topic_id], number): self._clamped(names[topic_id], number, offset)
                    for (topic_id, number), offset in offsets.items()
                }
                for group, offsets in sorted(self.groups.items())
                if offsets
            },
        }

    def _clamped(self, name: str, number: int, offset: int) -> int:
        partition = self.topics[name].partitions[number]
        return min(max(offset, partition.start), partition.end)

    # -- upkeep: what may have become of records

    def adopt_expired(self, found: Seen, now_ms: int) -> None:
        """Take over what retention removed: the oldest records of a partition, all of them old enough."""
        for partition, seen in self._partitions_of("short", found):
            start = seen[0]
            assert partition.start <= start <= partition.stable
            gone = [row for row in partition.until(partition.end) if row.offset < start]
            assert all(now_ms - row.timestamp_ms > SHORT_MS for row in gone)
            partition.start = start
            for row in gone:
                del partition.rows[row.offset]

    def adopt_compacted(self, found: Seen, now_ms: int) -> None:
        """Take over what compaction removed: superseded records, and tombstones whose time has come."""
        for partition, seen in self._partitions_of("compact", found):
            stays = {row.offset for row in seen[4]}
            newest = {row.key: row.offset for row in partition.until(partition.stable)}
            for row in partition.until(partition.end):
                is_newest = row.key is None or row.offset >= newest.get(row.key, row.offset)
                if row.offset in stays:
                    partition.survived_ms.setdefault(row.offset, now_ms)
                    continue
                assert row.offset < partition.stable
                assert not is_newest or self._is_due(partition, row, now_ms), f"{row} was removed"
                del partition.rows[row.offset]

    def _is_due(self, partition: Partition, row: Row, now_ms: int) -> bool:
        survived_ms = partition.survived_ms.get(row.offset)
        return row.value is None and survived_ms is not None and now_ms - survived_ms >= TOMBSTONE_MS

    def _partitions_of(self, kind: str, found: Seen) -> Iterable[tuple[Partition, tuple[Any, ...]]]:
        for name, topic in self.topics.items():
            if topic.kind == kind:
                yield from zip(topic.partitions, found["topics"][name], strict=True)


# What of a cluster anybody can observe, read through its own interface, in the form `Model.seen` has it.


GROUPS = ("readers", "shop:readers")


def observe(cluster: EmbeddedCluster) -> Seen:
    topics = cluster.topics()
    groups = {
        group: {place: each.offset for place, each in cluster.groups.fetch(group).items()} for group in sorted(GROUPS)
    }
    return {
        "namespaces": cluster.namespaces(),
        "topics": {name: observe_topic(cluster, name) for name in topics},
        "groups": {group: offsets for group, offsets in groups.items() if offsets},
    }


def observe_topic(cluster: EmbeddedCluster, name: str) -> list[tuple[int, int, int, list[Row], list[Row]]]:
    bounds = cluster.log(name).read_bounds()
    return [
        (
            each.start,
            each.stable,
            each.end,
            _rows(cluster, name, number, "read_committed"),
            _rows(cluster, name, number, "read_uncommitted"),
        )
        for number, each in sorted(bounds.items())
    ]


def _rows(cluster: EmbeddedCluster, name: str, partition: int, isolation: Isolation) -> list[Row]:
    log = cluster.log(name, isolation=isolation)
    return [
        Row(
            row["offset"],
            row["timestamp_ms"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows_of(log.read(partition, OffsetRange(0, 1 << 40)))
    ]
