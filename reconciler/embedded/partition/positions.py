"""Where a partition stands, in the words of links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.mirroring import NEVER_FETCHED, Position

if TYPE_CHECKING:
    from reconciler.embedded.partition.head import Head


def position_of(head: Head | None) -> Position:
    """Return where a partition stands; one never written stands at the beginning."""
    if head is None:
        return Position(0, 0)
    source = head.source
    if source is None:
        return Position(head.start, head.end, head.epochs)
    epochs = tuple((epoch, start) for epoch, start in source["epochs"])
    fetched = source.get("fetched", NEVER_FETCHED)
    return Position(head.start, head.end, head.epochs, source["topic_id"], epochs, fetched)
