"""Consumer groups at the end of mirroring: none points beyond what there is (F-C-041).

A reader clamps what it finds; that is not enough here, for the log goes on growing below such an offset, and what
comes in between would never be read. So this comes before producers get the head, whoever gives it to them, and only
then: later they may have written more, and a group may have read that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.consuming.groups import change_group, list_groups
from reconciler.embedded.consuming.offsets import Committed, Group
from reconciler.records.log import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.consuming.offsets import Place
    from reconciler.objectstore.base import ObjectStore


def clamp_groups(store: ObjectStore, topic_id: str, ends: Mapping[int, int]) -> int:
    """Set offsets that lie beyond the ends of these partitions of a topic to them; return how many groups had some."""

    def clamped(offsets: Mapping[Place, Committed]) -> dict[Place, Committed]:
        return {
            place: Committed(ends[place[1]], each.metadata, each.at_ms)
            if place[0] == topic_id and each.offset > ends.get(place[1], MAX_OFFSET)
            else each
            for place, each in offsets.items()
        }

    def within(found: Group) -> Group:
        return Group(clamped(found.own), clamped(found.synced))

    return sum(change_group(store, group, within) for group in list_groups(store))
