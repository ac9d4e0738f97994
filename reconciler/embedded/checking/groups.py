"""Consumer groups looked at: their registers, and the topics and logs their offsets are of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.consuming.groups import bounds_at, read_group
from reconciler.embedded.keys import group_of_key
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.embedded.checking.partitions import Topics
    from reconciler.embedded.consuming.offsets import Group
    from reconciler.objectstore.base import ObjectStore

Partition: TypeAlias = tuple[str, int]
"""Topic id and number."""


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """Looks at groups, from any thread. `topics` reads the catalog, `ends` are those of partitions ever written."""

    store: ObjectStore
    topics: Callable[[], Topics | None]
    ends: Mapping[Partition, int]
    headless: set[Partition] = field(default_factory=set)
    """Gathers where groups have read from partitions that have no head."""

    def look(self, key: str) -> list[Finding]:
        """Look at the group whose register has this key."""
        name = group_of_key(key)
        if name is None:
            return [Finding(Kind.FOREIGN, f"{key} is no group's", Place(key))]
        try:
            group = read_group(self.store, name)
        except UserError as error:
            return [Finding(Kind.GROUP_DAMAGED, error.message, Place(key))]
        if group is not None:
            self.headless.update(place for place, at in group.own.items() if at.offset > 0 and place not in self.ends)
        # The catalog is read after the register: a topic that a group has offsets of was there before them.
        known = self.topics() if group is not None and group.topic_ids else None
        return [] if group is None or known is None else list(judge_group(name, group, Place(key), known, self._end))

    def _end(self, place: Partition, offset: int) -> int:
        """Return where a log ends; what lies beyond the end that was seen is looked for again: logs grow.

        Of a head that cannot be read, which is a finding of its own, nothing is said here: it ends at `offset`.
        """
        seen = self.ends.get(place, 0)
        try:
            return seen if offset <= seen else bounds_at(self.store, place).end
        except UserError:
            return offset


def judge_group(
    name: str, group: Group, place: Place, topics: Topics, end_of: Callable[[Partition, int], int]
) -> Iterator[Finding]:
    """Yield which offsets of a group are of no topic, or beyond where its log ends."""
    gone = sorted(group.topic_ids - topics.by_id.keys())
    if gone:
        what = f"group {name} has offsets of {len(gone)} topics that are gone, the first of id {gone[0]}"
        yield Finding(Kind.GROUP_LEFT_OVER, what, place, objects=len(gone))
    for (topic_id, partition), committed in sorted(group.own.items()):
        if topic_id not in topics.by_id:
            continue
        topic, entry = topics.by_id[topic_id]
        at = Place(place.key, topic, partition)
        end = end_of((topic_id, partition), committed.offset)
        if partition >= entry.partitions:
            what = f"group {name} has an offset of partition {partition}, the topic has {entry.partitions}"
            yield Finding(Kind.GROUP_BEYOND, what, at)
        elif committed.offset > end:
            yield Finding(Kind.GROUP_BEYOND, f"group {name} is at offset {committed.offset}, the log ends at {end}", at)
