"""Consumer group offsets that links carry from source to mirror.

Brought are the offsets that a group said there, into the part of its register that is the link's: what the group
commits here itself stays beside that and wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.catalog.tables import Catalog, check_namespace_of, names_by_id
from reconciler.embedded.keys import GROUPS, group_of_key
from reconciler.embedded.segments.groups import (
    Group,
    Place,
    bounds_at,
    change_group,
    group_of,
    group_register,
    list_groups,
    read_group,
)
from reconciler.errors import ReconcilerError
from reconciler.objectstore.register import fresh_mark
from reconciler.resources.mirrors import GroupOffsets, GroupOffsetsResult, GroupPosition
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import ReadRegister


def group_versions(store: ObjectStore) -> dict[str, str]:
    """Return what changes whenever a group commits, by its name: one listing, nothing is opened."""
    found = ((group_of_key(listed.key), listed.hint) for listed in store.list(GROUPS))
    return {name: hint for name, hint in found if name is not None}


def group_offsets(cluster: Admin, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Return where groups go on reading, by full names of topics; a GET each. Groups that are gone are absent."""

    def read(name: str) -> Group | None:
        return read_group(cluster.store, name)

    found = dict(zip(groups, side_by_side(read, groups, name="groups"), strict=True))
    catalog = cluster.catalog.read()  # After the groups: what they committed of new topics has a name then.
    ids = {topic_id for group in found.values() if group is not None for topic_id in group.topic_ids}
    names = names_by_id(catalog, ids)
    return {name: _named(group, names) for name, group in found.items() if group is not None}


def _named(group: Group, names: Mapping[str, str]) -> dict[tuple[str, int], GroupPosition]:
    return {
        (names[topic_id], partition): GroupPosition(each.offset, each.metadata)
        for (topic_id, partition), each in sorted(group.offsets.items())
        if topic_id in names
    }


def bring_offsets(
    cluster: Admin, groups: Mapping[str, GroupOffsets]
) -> dict[str, GroupOffsetsResult | ReconcilerError]:
    """Set what links brought of groups; one swap for each of which something changes."""
    if not groups:
        return {}
    bringing = _Bringing(cluster, cluster.catalog.read())

    def bring(name: str) -> GroupOffsetsResult | ReconcilerError:
        try:
            return bringing.bring(name, groups[name])
        except ReconcilerError as error:
            return error

    return dict(zip(groups, side_by_side(bring, groups, name="groups"), strict=True))


def release_groups(store: ObjectStore, topic_id: str) -> int:
    """Let what groups committed of a topic be as if brought: it becomes a mirror, and its source has the last word.

    Else a group would go on here where it stood when it left. Return how many groups had any.
    """

    def released(found: Group) -> Group:
        of_topic = {place: each for place, each in found.own.items() if place[0] == topic_id}
        others = {place: each for place, each in found.own.items() if place[0] != topic_id}
        return Group(others, {**found.synced, **of_topic}) if of_topic else found

    return sum(change_group(store, name, released) for name in list_groups(store))


@dataclass
class _Bringing:
    """One look at the catalog, and the ends of partitions, each read once."""

    cluster: Admin
    catalog: Catalog
    _ends: dict[Place, int] = field(default_factory=dict)

    def bring(self, name: str, offsets: GroupOffsets) -> GroupOffsetsResult:
        check_namespace_of(self.catalog, name)
        wanted, topics, is_early = self._places(offsets)
        register = group_register(self.cluster.store, name)
        found = GroupOffsetsResult()

        def change(held: ReadRegister | None) -> dict[str, Any] | None:
            nonlocal found
            before = group_of(register, held)
            reading = sorted(topics[key] for key in topics if before.is_reading(self.cluster.now_ms(), key))
            if reading:
                found = GroupOffsetsResult(reading=tuple(reading))
                return None
            brought = {place: self._within(place, each, before.synced.get(place)) for place, each in wanted.items()}
            is_clamped = is_early or any(brought[place].offset < each.offset for place, each in wanted.items())
            after = Group(before.own, {**before.synced, **brought})
            found = GroupOffsetsResult(is_changed=after != before, is_clamped=is_clamped)
            return after.to_json() if after != before else None

        register.update(change, mark=fresh_mark())
        return found

    def _places(self, offsets: GroupOffsets) -> tuple[dict[Place, GroupPosition], dict[str, str], bool]:
        """Return offsets by topic id, what these topics are called, and whether some partition is not there yet."""
        places: dict[Place, GroupPosition] = {}
        topics: dict[str, str] = {}
        is_early = False
        for (topic, partition), position in offsets.items():
            entry = self.catalog.topics.get(topic)
            if entry is None or entry.follows is None:
                continue  # It was deleted or stopped meanwhile.
            topics[entry.id] = topic
            if partition < entry.partitions:
                places[entry.id, partition] = position
            else:
                is_early = True
        return places, topics, is_early

    def _within(self, place: Place, position: GroupPosition, kept: Committed | None) -> Committed:
        """Return an offset that the mirror has: the log would go on growing below one that it has not."""
        if kept is not None and (kept.offset, kept.metadata) == (position.offset, position.metadata):
            return kept  # It was within when it was brought.
        if place not in self._ends:
            self._ends[place] = bounds_at(self.cluster.store, place).end
        return Committed(min(position.offset, self._ends[place]), position.metadata)
