"""Heads go from one writer to another: to producers when mirroring ends, to a link when a topic becomes a mirror.

The catalog says so first. A swap under the next epoch then shuts the old writer out, whatever it had begun; a head that
nobody came to is taken over by the next append (`partition.gate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.partition.head import NOBODY, PRODUCERS, Head, head_register

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

LINK: Final = "link:"
"""What the writer of a mirror's head begins with; the link's id follows."""


def is_mirroring(before: str, now: str) -> bool:
    """Tell whether one writer follows the other because mirroring began or ended."""
    return before != now and {_kind(before), _kind(now)} in ({PRODUCERS, LINK}, {LINK})


def _kind(writer: str) -> str:
    return LINK if writer.startswith(LINK) else writer


def hand_over(store: ObjectStore, partition: tuple[str, int], writer: str, *, makes: bool) -> Head | None:
    """Let `writer` alone append to a partition, by topic id and number, and return its head; it may be done again.

    Where there is no head one is made, if it `makes` one: the first append of somebody else would not be noticed. The
    head is not settled: who comes late and hands it to the wrong one lets nobody in, for the next append reads the
    catalog.
    """
    topic_id, number = partition
    register = head_register(store, topic_id, number)

    def handed(held: Held | None) -> dict[str, Any] | None:
        if held is None:
            return Head(writer).to_json() if makes else None
        if held.value["writer"] in {NOBODY, writer}:
            return None
        end = held.value["end"]
        # An epoch in which nothing was written tells nothing.
        epochs = [each for each in held.value["epochs"] if each[1] < end]
        return {**held.value, "writer": writer, "is_settled": False, "epochs": [*epochs, [held.epoch + 1, end]]}

    held = register.update(handed, mark=fresh_mark(), raises_epoch=True)
    return None if held is None else Head.from_json(held.value)
