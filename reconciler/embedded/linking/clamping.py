"""Consumer groups at the end of mirroring: none points beyond what there is (F-C-041).

A reader clamps what it finds; that is not enough here, for the log goes on growing below such an offset, and what
comes in between would never be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.consuming.groups import change_group, list_groups
from reconciler.embedded.consuming.offsets import Committed, Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.consuming.offsets import Place
    from reconciler.objectstore.base import ObjectStore


def clamp_groups(store: ObjectStore, topic_id: str, ends: Mapping[int, int]) -> int:
    """Set offsets of a topic that lie beyond the ends of its partitions to them; return how many groups had some."""

    def clamped(offsets: Mapping[Place, Committed]) -> dict[Place, Committed]:
        return {
            place: Committed(ends.get(place[1], 0), each.metadata, each.at_ms)
            if place[0] == topic_id and each.offset > ends.get(place[1], 0)
            else each
            for place, each in offsets.items()
        }

    def within(found: Group) -> Group:
        return Group(clamped(found.own), clamped(found.synced))

    return sum(change_group(store, group, within) for group in list_groups(store))
