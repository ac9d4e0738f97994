"""What a copy has to move, cut along what is stored, and dealt out to rounds and tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from reconciler.errors import UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.records.log import Bounds, Extent

MIB: Final = 1 << 20
PIECE_BYTES: Final = 32 * MIB
"""Neighbouring extents become one piece up to here."""
PIECE_COST: Final = 4 * MIB
"""What a piece costs beside its bytes, in bytes: requests, and a swap of its head."""
_TASKS_A_CORE: Final = 3
_ROUND_S: Final = 10.0
"""How long a round should take: what is published in between is what a crash does not lose."""
_TASK_COST: Final = 16 * MIB
"""Work smaller than this is not worth a task of its own."""


class Costly(Protocol):
    """A piece of work that says how much of a round it takes, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...


C = TypeVar("C", bound=Costly)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one partition that one task copies."""

    partition: int
    offsets: OffsetRange
    records: int
    stored_bytes: int

    @property
    def cost(self) -> int:
        """How much of a round it takes."""
        return self.stored_bytes + PIECE_COST


def missing(
    bounds: Mapping[int, Bounds], ends: Mapping[int, int], until: Mapping[int, int] | None = None
) -> dict[int, OffsetRange]:
    """Return what a sink lacks of its source, up to the last stable offsets.

    `until` are offsets beyond which nothing is wanted; of a partition that is not among them, nothing at all.

    Raises:
        UserError: The sink has no such partition, or goes on where its source ends.
    """
    ranges: dict[int, OffsetRange] = {}
    for partition, source in sorted(bounds.items()):
        if partition not in ends:
            hint = "Plan and apply again: the partitions of a mirror follow its source."
            raise UserError(f"partition {partition} is on the source only", hint=hint)
        if ends[partition] > source.end:
            message = f"partition {partition} ends at {ends[partition]:,}, its source at {source.end:,}"
            raise UserError(
                message, hint="It is not a copy of this source: `reconciler verify` shows where they differ."
            )
        stop = source.stable if until is None else min(source.stable, until.get(partition, 0))
        if ends[partition] < stop:
            ranges[partition] = OffsetRange(ends[partition], stop)
    return ranges


def pieces_of(partition: int, offsets: OffsetRange, extents: Iterable[Extent]) -> Iterator[Piece]:
    """Yield pieces that cover `offsets` without a gap, each a run of whole extents."""
    at = offsets.start
    stop, records, stored = at, 0, 0
    for extent in extents:
        if stored and stored + extent.stored_bytes > PIECE_BYTES:
            yield Piece(partition, OffsetRange(at, stop), records, stored)
            at, records, stored = stop, 0, 0
        stop = extent.offsets.stop
        records += extent.records
        stored += extent.stored_bytes
    # The last piece reaches the end also where the last offsets hold nothing (aborted, compacted).
    yield Piece(partition, OffsetRange(at, offsets.stop), records, stored)


def next_piece(pieces: Iterable[Piece], most_bytes: int) -> Piece:
    """Return the first of neighbouring pieces of a partition as one, so many bytes at most, always at least one."""
    taken: list[Piece] = []
    for piece in pieces:
        if taken and sum(each.stored_bytes for each in taken) + piece.stored_bytes > most_bytes:
            break
        taken.append(piece)
    (whole,) = joined(taken)
    return whole


def rounds(pieces: Sequence[C], budget: Budget) -> Iterator[list[C]]:
    """Yield pieces in order, as many at a time as the budget allows at that moment, always at least one."""
    taken: list[C] = []
    cost = 0
    for piece in pieces:
        if taken and cost + piece.cost > budget.cost:
            yield taken
            taken, cost = [], 0
        taken.append(piece)
        cost += piece.cost
    if taken:
        yield taken


def tasks_of(pieces: Sequence[C], cores: int) -> list[tuple[C, ...]]:
    """Deal a round's pieces out in order: a few tasks a core, tiny pieces bundled."""
    share = max(sum(piece.cost for piece in pieces) / (cores * _TASKS_A_CORE), _TASK_COST)
    tasks: list[list[C]] = []
    left = 0.0
    for piece in pieces:
        if left <= 0:
            tasks.append([])
            left += share
        tasks[-1].append(piece)
        left -= piece.cost
    return [tuple(task) for task in tasks]


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same ranges, neighbours of one partition as one."""
    held: Piece | None = None
    for piece in pieces:
        if held is None:
            held = piece
        elif held.partition == piece.partition and held.offsets.stop == piece.offsets.start:
            offsets = OffsetRange(held.offsets.start, piece.offsets.stop)
            held = Piece(held.partition, offsets, held.records + piece.records, held.stored_bytes + piece.stored_bytes)
        else:
            yield held
            held = piece
    if held is not None:
        yield held


class Budget:
    """How much a round may cost, in bytes; learns from the rounds before to end each in due time."""

    def __init__(self, cores: int) -> None:
        """Begin with less than may be: nothing is known of the stores yet."""
        self.cost = 768 * MIB * cores

    def learn(self, pieces: Sequence[Costly], seconds: float, *, cores: int) -> None:
        """Fit the next round to how long this one took; never more than 1 GiB a core."""
        rate = sum(piece.cost for piece in pieces) / max(seconds, 0.001)
        self.cost = max(PIECE_COST, min(1024 * MIB * cores, int(rate * _ROUND_S)))
