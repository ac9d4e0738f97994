"""What groups have read: committed offsets beside what the logs hold. Opens no part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tiering import hides_remote
from reconciler.embedded.consuming.groups import existing_group, list_groups, read_group
from reconciler.embedded.keys import GROUPS, group_of_key
from reconciler.embedded.partition.head import read_bounds
from reconciler.resources.groups import READING_MS, ConsumerGroup, GroupOffset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.consuming.offsets import Group
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds

MANY: Final = 1_000
"""With more groups than this, nobody is told which of them read a topic: each costs a request."""

_CLOCKS_APART_MS: Final = 2 * 60 * 60 * 1000
"""How far the clock of who commits and that of the store may be apart, at most, for a group not to be overlooked."""


@dataclass(frozen=True, slots=True)
class Read:
    """Topics as one look at the catalog has them, and where their partitions begin and end, each read once."""

    store: ObjectStore
    names: Mapping[str, tuple[str, int]]
    bounds: dict[str, Mapping[int, Bounds]]
    hiding: frozenset[str] = frozenset()
    """Full names of topics that begin at their local start: what is remote may not be fetched."""

    @classmethod
    def of(cls, store: ObjectStore, catalog: Catalog) -> Read:
        """Look at nothing yet."""
        names = {entry.id: (name, entry.partitions) for name, entry in catalog.topics.items()}
        return cls(store, names, {}, frozenset(name for name in catalog.topics if hides_remote(catalog, name)))

    def rows(self, group: Group, topic_id: str) -> Iterator[GroupOffset]:
        """Yield every partition of a topic, as a group reads it."""
        name, partitions = self.names[topic_id]
        if topic_id not in self.bounds:
            whole, is_hiding = read_bounds(self.store, topic_id, partitions), name in self.hiding
            self.bounds[topic_id] = {number: at.only_local() if is_hiding else at for number, at in whole.items()}
        offsets = group.offsets
        for partition, at in sorted(self.bounds[topic_id].items()):
            found = offsets.get((topic_id, partition))
            if found is None:
                yield GroupOffset(name, partition, None, at.start, at.stable, at.end)
                continue
            committed = found.clamped(at).offset
            yield GroupOffset(name, partition, committed, at.start, at.stable, at.end, found.at_ms, found.metadata)

    def living(self, group: Group) -> list[str]:
        """Return the ids of the topics a group has offsets of, sorted by name; topics that are gone are left out."""
        return sorted(group.topic_ids & self.names.keys(), key=lambda topic_id: self.names[topic_id])


def describe_group(store: ObjectStore, catalog: Catalog, group: str, *, now_ms: int) -> ConsumerGroup:
    """Return every partition of the topics a group has read.

    Raises:
        UserError: There is no such group.
    """
    found, read = existing_group(store, group), Read.of(store, catalog)
    rows = (row for topic_id in read.living(found) for row in read.rows(found, topic_id))
    return ConsumerGroup(group, found.is_reading(now_ms), found.last_commit_ms(), tuple(rows))


def groups_of(store: ObjectStore, catalog: Catalog, topic_id: str, *, now_ms: int) -> list[ConsumerGroup] | None:
    """Return the groups that have offsets of one topic, each of that topic alone; `None`: there are too many to ask."""
    names, read, found = list_groups(store), Read.of(store, catalog), []
    if len(names) > MANY:
        return None
    for name in names:
        group = read_group(store, name)
        if group is not None and topic_id in group.topic_ids:
            rows = tuple(read.rows(group, topic_id))
            is_reading = group.is_reading(now_ms, topic_id)
            found.append(ConsumerGroup(name, is_reading, group.last_commit_ms(topic_id), rows))
    return found


def reading_groups(store: ObjectStore, *, now_ms: int) -> dict[str, tuple[str, ...]] | None:
    """Return the groups that are reading each topic, by topic id; `None`: there are too many to ask.

    One listing tells which groups were written at all within the time: only those are read.
    """
    young = store.clock_ms() - READING_MS - _CLOCKS_APART_MS
    names = [group_of_key(listed.key) for listed in store.list(GROUPS) if listed.modified_ms >= young]
    if len(names) > MANY:
        return None
    reading: dict[str, tuple[str, ...]] = {}
    for name in sorted(name for name in names if name is not None):
        group = read_group(store, name)
        if group is not None:
            for topic_id in group.topic_ids:
                if group.is_reading(now_ms, topic_id):
                    reading[topic_id] = (*reading.get(topic_id, ()), name)
    return reading
