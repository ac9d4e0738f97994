"""A flow whose sink commits by itself, while a job copies it: one task a partition, records under offsets of their own.

What a task committed stays whatever becomes of the task, the round or the driver; the sink says how far it is. A pass
takes the next piece of every partition, so that all of them go on side by side and each round ends in due time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from reconciler.errors import LostRaceError
from reconciler.jobs.flows import Following, Gained
from reconciler.jobs.ranges import Piece, next_piece
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.records.log import Copied, TopicLog, TransactionalSink

_SHARES: Final = 6
"""Into how many pieces at most the budget of a round is cut for partitions side by side."""


class Committing(Following):
    """A flow into a `TransactionalSink`."""

    _left: LostRaceError | None = None
    _lost: frozenset[int] = frozenset()

    @property
    def ends(self) -> tuple[TopicLog, TransactionalSink]:
        """What tasks read from, and where they write: the sink that knows how far it is, and of which source."""
        return self.flow.source, cast("TransactionalSink", self._sink)

    def pieces(self, budget: int) -> list[Piece]:
        """Return the next piece of every partition, unless nobody wants the copy any more."""
        # What is asked here is asked after the sink was: tasks see for themselves what was changed since.
        if not self.flow.is_wanted():
            self._is_halted = True
            return []
        share = budget // max(1, min(len(self._wanted), _SHARES))
        pieces = [next_piece(self._pieces(partition, offsets), share) for partition, offsets in self._wanted.items()]
        self._expect(pieces)
        return pieces

    def publish(self, staged: Sequence[Any]) -> None:
        """Count what tasks have committed."""
        ends: dict[int, OffsetRange] = {}
        for one in staged:
            had = self._gained.get(one.partition, Gained())
            ends[one.partition] = OffsetRange(had.end, one.through)
            self._gained[one.partition] = replace(
                had,
                records=had.records + one.records,
                bytes=had.bytes + one.stored_bytes,
                offsets=had.offsets + max(0, one.through - had.end),
                end=max(had.end, one.through),
            )
        self._tell(ends)

    def leave(self, partition: int, error: LostRaceError) -> None:
        """Leave a partition to who copies it now, until somebody asks anew."""
        self._lost |= {partition}
        self._left = self._left or error

    def end_pass(self) -> None:
        """Look what is missing still; where others copied, too."""
        self._check_fruitful()
        reached = self._look_at_both()
        self._lacks(reached)
        self._wanted = {number: offsets for number, offsets in self._wanted.items() if number not in self._lost}

    def end(self) -> None:
        """Say that all is there that was to be; what was left to others may be, too.

        Raises:
            LostRaceError: Others copy partitions that are not there yet.
        """
        if self._left is not None and self.error is None and not self._is_halted:
            self._lacks(self._look_at_both())
            if self._wanted:
                raise self._left
        super().end()

    @property
    def _has_all(self) -> bool:
        return not self._wanted


def committed(
    source: TopicLog, sink: TransactionalSink, pieces: Iterator[Piece]
) -> Iterator[tuple[int, Copied | LostRaceError]]:
    """Do pieces of one flow, wherever it runs; a partition that somebody else took leaves the others alone."""
    for piece in pieces:
        try:
            for copied in sink.copy_range(piece.partition, source, piece.offsets):
                yield piece.partition, copied
        except LostRaceError as error:
            yield piece.partition, error
