"""How two copies of a topic stand to each other: what one lacks of the other, and where they agree last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.resources.mirroring import NEVER_FETCHED, Position, agreed_to

Positions: TypeAlias = Mapping[int, Position]
"""By partition; one that is absent was never written to."""

_BEGINNING: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of one partition, `start` to before `stop`; there may be fewer records."""

    partition: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many offsets it spans."""
        return self.stop - self.start


def length_of(stretches: Iterable[Stretch]) -> int:
    """Return how many offsets stretches span together."""
    return sum(each.length for each in stretches)


def lacking(copy: Positions, source: Positions, source_topic_id: str | None) -> tuple[Stretch, ...] | None:
    """Return what a mirror has not of what its source has; `None`: what it has is of another topic.

    What the source let go of is nobody's loss. Where the source was cut, all above the cut is what it has now.
    """
    # One that was made anew and never written to has no positions that would tell.
    if source_topic_id is not None and any(at.source_topic_id not in {None, source_topic_id} for at in copy.values()):
        return None
    found: list[Stretch] = []
    for partition, there in sorted(source.items()):
        here = copy.get(partition, _BEGINNING)
        begins = max(_reached(here, there), there.start)
        if begins < there.end:
            found.append(Stretch(partition, begins, there.end))
    return tuple(found)


def last_fetched(copy: Positions) -> tuple[tuple[int, int], ...]:
    """Return (partition, the last offset that was copied of it); -1: none ever was."""
    return tuple((partition, max(at.fetched - 1, NEVER_FETCHED)) for partition, at in sorted(copy.items()))


def cuts(topic: Positions, topic_id: str | None, mirror: Positions, mirror_id: str | None) -> dict[int, int]:
    """Return where each partition of an original source is to be cut: where it and its mirror agree last.

    Each side knows what it copied from the other; where both ever did, what is known of more counts.
    """
    found: dict[int, int] = {}
    for partition, here in topic.items():
        there = mirror.get(partition)
        agreed = 0 if there is None else max(_copied(there, here, topic_id), _copied(here, there, mirror_id))
        found[partition] = min(here.end, agreed)
    return found


def cut_off(topic: Positions, at: Mapping[int, int]) -> tuple[Stretch, ...]:
    """Return what lies from the cuts on."""
    begins = {partition: max(cut, topic[partition].start) for partition, cut in sorted(at.items())}
    return tuple(
        Stretch(partition, start, topic[partition].end)
        for partition, start in begins.items()
        if start < topic[partition].end
    )


def _reached(copy: Position, source: Position) -> int:
    """Return from which offset on a mirror lacks what its source has."""
    compared = min(copy.fetched, source.end)
    if compared <= 0 or not copy.source_epochs:
        return copy.end
    agreed = agreed_to(copy.source_epochs, source.epochs, compared)
    return agreed if agreed < compared else copy.end


def _copied(copy: Position, source: Position, source_topic_id: str | None) -> int:
    """Return up to which offset one log is known to be a copy of another as it is now."""
    if copy.fetched <= 0 or copy.source_topic_id != source_topic_id:
        return 0
    return agreed_to(copy.source_epochs, source.epochs, min(copy.fetched, copy.end, source.end))
