"""Mirrors that a link makes by itself: of topics that its filters take, that it may read, and whose name is free here.

With a prefix none is made of a topic that is a mirror itself: links in both directions would make mirrors for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.namefilters import is_never_made, takes
from reconciler.workflow.linking.following.telling import TaskDone, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.syncs import Offered
    from reconciler.workflow.linking.following.sides import Sides


def make(sides: Sides, offered: Mapping[str, Offered]) -> TaskDone:
    """Make the mirrors that are missing. Names that are taken are told by nobody: that is how one keeps a topic out."""
    asked = sides.spec.auto_create
    filters = () if asked is None or not asked.enabled else asked.filters
    there = {mirror.source for mirror in sides.mirrors}
    wanted = {
        name: seen.topic
        for name, seen in offered.items()
        if name not in there and takes(filters, name) and not is_never_made(name)
        if seen.is_readable and not (sides.spec.prefix and seen.is_mirror)
    }
    if not wanted:
        return TaskDone()
    found = sides.destination.links.syncs.make_mirrors(sides.link.name, wanted)
    errors = {name: error for name, error in found.items() if error is not None}
    return failed(len(found) - len(errors), errors)
