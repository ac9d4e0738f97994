"""Group offsets that links copy to mirrors. Offsets that a group commits on the mirror take precedence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.tables import Catalog, check_namespace_exists, map_names_by_id
from reconciler.embedded.keys import GROUPS, parse_group_key
from reconciler.embedded.segments.groups import (
    Group,
    Place,
    change_group,
    group_register,
    list_groups,
    parse_group,
    read_group,
    read_partition_bounds,
)
from reconciler.errors import ReconcilerError
from reconciler.objectstore.register import create_mark
from reconciler.resources.mirrors import GroupOffsets, GroupOffsetsResult, GroupPosition
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import RegisterSnapshot


def list_group_versions(store: ObjectStore) -> dict[str, str]:
    """Return a version per group, which changes with every commit."""
    versions = ((parse_group_key(listed.key), listed.hint) for listed in store.list(GROUPS))
    return {name: hint for name, hint in versions if name is not None}


def read_group_offsets(cluster: Admin, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Return groups' committed offsets by topic name and partition; one GET per group."""

    def read(name: str) -> Group | None:
        return read_group(cluster.store, name)

    groups_read = dict(zip(groups, map_in_parallel(read, groups, name="groups"), strict=True))
    catalog = cluster.catalog.read()  # It is read after the groups, to include the topics of new offsets.
    ids = {topic_id for group in groups_read.values() if group is not None for topic_id in group.topic_ids}
    names = map_names_by_id(catalog, ids)
    return {name: _key_offsets_by_name(group, names) for name, group in groups_read.items() if group is not None}


def _key_offsets_by_name(group: Group, names: Mapping[str, str]) -> dict[tuple[str, int], GroupPosition]:
    return {
        (names[topic_id], partition): GroupPosition(committed.offset, committed.metadata)
        for (topic_id, partition), committed in sorted(group.offsets.items())
        if topic_id in names
    }


def sync_group_offsets(
    cluster: Admin, groups: Mapping[str, GroupOffsets]
) -> dict[str, GroupOffsetsResult | ReconcilerError]:
    """Store group offsets that a link read from its source; return each group's result or error."""
    if not groups:
        return {}
    bringing = _OffsetCopy(cluster, cluster.catalog.read())

    def copy_group(name: str) -> GroupOffsetsResult | ReconcilerError:
        try:
            return bringing.copy_offsets(name, groups[name])
        except ReconcilerError as error:
            return error

    return dict(zip(groups, map_in_parallel(copy_group, groups, name="groups"), strict=True))


def mark_offsets_synced(store: ObjectStore, topic_id: str) -> int:
    """Mark offsets committed in a new mirror as synced, so the link may overwrite them.

    Return the number of changed groups.
    """

    def mark_synced(group: Group) -> Group:
        of_topic = {place: committed for place, committed in group.own.items() if place[0] == topic_id}
        others = {place: committed for place, committed in group.own.items() if place[0] != topic_id}
        return Group(others, {**group.synced, **of_topic}) if of_topic else group

    return sum(change_group(store, name, mark_synced) for name in list_groups(store))


@dataclass
class _OffsetCopy:
    cluster: Admin
    catalog: Catalog
    _ends: dict[Place, int] = field(default_factory=dict)

    def copy_offsets(self, name: str, offsets: GroupOffsets) -> GroupOffsetsResult:
        check_namespace_exists(self.catalog, name)
        wanted, topics, is_early = self._split_offsets(offsets)
        register = group_register(self.cluster.store, name)
        result = GroupOffsetsResult()

        def change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
            nonlocal result
            before = parse_group(register, held)
            reading = sorted(topics[key] for key in topics if before.is_reading(self.cluster.now_ms(), key))
            if reading:
                result = GroupOffsetsResult(reading=tuple(reading))
                return None
            clamped = {
                place: self._clamp_position(place, position, before.synced.get(place))
                for place, position in wanted.items()
            }
            is_clamped = is_early or any(clamped[place].offset < position.offset for place, position in wanted.items())
            after = Group(before.own, {**before.synced, **clamped})
            result = GroupOffsetsResult(is_changed=after != before, is_clamped=is_clamped)
            return after.to_json() if after != before else None

        register.update(change, mark=create_mark())
        return result

    def _split_offsets(self, offsets: GroupOffsets) -> tuple[dict[Place, GroupPosition], dict[str, str], bool]:
        places: dict[Place, GroupPosition] = {}
        topics: dict[str, str] = {}
        is_early = False
        for (topic, partition), position in offsets.items():
            entry = self.catalog.topics.get(topic)
            if entry is None or entry.active_mirror is None:
                continue  # The mirror was deleted or stopped since.
            topics[entry.id] = topic
            if partition < entry.partitions:
                places[entry.id, partition] = position
            else:
                is_early = True
        return places, topics, is_early

    def _clamp_position(
        self, place: Place, position: GroupPosition, existing: CommittedOffset | None
    ) -> CommittedOffset:
        if existing is not None and (existing.offset, existing.metadata) == (position.offset, position.metadata):
            return existing
        if place not in self._ends:
            self._ends[place] = read_partition_bounds(self.cluster.store, place).end
        return CommittedOffset(min(position.offset, self._ends[place]), position.metadata)
