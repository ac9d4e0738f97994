"""Reading both tiers in one pass: chunks of remote segments are fetched before they are asked for.

A reader begins with what it needs at once and fetches further ahead the longer it goes on: one old record costs one
chunk, and who reads everything waits for none. However large segments are, it holds a few chunks at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from reconciler.embedded.partition.partfiles import first_since, first_since_in, read_part, records_of, undamaged
from reconciler.embedded.remote.cache.machine import machine_of
from reconciler.embedded.remote.reading.segments import OpenSegment
from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from reconciler.embedded.partition.tiers import Piece
    from reconciler.embedded.remote.cache.layout import Span
    from reconciler.embedded.remote.cache.machine import Machine
    from reconciler.embedded.remote.tier import RemoteTier

_AHEAD: Final = 4
"""Chunks a reader holds or waits for, at most; of segments that are smaller than a chunk as many as make up these."""
_SMALL_AHEAD: Final = 32
"""Segments of one chunk that are on their way, at most."""


def read_pieces(tier: RemoteTier | None, pieces: Iterable[Piece], partition: int) -> Generator[pa.RecordBatch]:
    """Yield the records of pieces, in their order.

    Raises:
        MissingObjectError: An object is not there; it says which offsets lay in it.
        UserError: One is damaged.
    """
    reader = _Reader(None if tier is None else machine_of(tier.properties, tier.cache_folder), pieces)
    try:
        for each in reader:
            if isinstance(each, OpenSegment):
                yield from _records(each, partition)
            else:
                yield from read_part(each.store, each.entry, partition, each.offsets)
    finally:
        reader.close()


def first_since_of(tier: RemoteTier | None, piece: Piece, since_ms: int) -> int | None:
    """Return the first offset of a piece whose record is at or after a time: of a remote one a chunk tells, mostly."""
    if tier is None or not piece.is_remote:
        return first_since(piece.store, piece.entry, since_ms, piece.offsets)
    segment = OpenSegment(machine_of(tier.properties, tier.cache_folder), piece)
    try:
        with undamaged(piece.store, piece.entry):
            return first_since_in(segment.open(), piece.entry, since_ms, piece.offsets)
    finally:
        segment.close()


def _records(segment: OpenSegment, partition: int) -> Iterator[pa.RecordBatch]:
    piece = segment.piece
    with undamaged(piece.store, piece.entry):
        yield from records_of(segment.open(), piece.entry, partition, piece.offsets)


class _Reader:
    """The pieces of a log: remote segments, of which several are on their way, then local parts as they come."""

    def __init__(self, machine: Machine | None, pieces: Iterable[Piece]) -> None:
        self._machine = machine
        self._pieces = iter(pieces)
        self._open: deque[OpenSegment] = deque()
        """Pulled and not yet done with: the first is being read."""
        self._following: Piece | None = None
        """The first piece that is not remote."""
        self._failed: Exception | None = None
        """What came of pulling one; it is told once all before it is read."""
        self._chunks = self._wanted_chunks()
        self._next: tuple[OpenSegment, Span] | None = None
        self._depth = 0

    def __iter__(self) -> Iterator[OpenSegment | Piece]:
        """Yield what there is, in order."""
        self._step()
        while self._open:
            yield self._open[0]
            self._open.popleft().close()
            if not self._open:
                self._step()
        if self._failed is not None:
            raise self._failed
        if self._following is not None:
            yield self._following
        yield from self._pieces

    def close(self) -> None:
        """Let everything go."""
        while self._open:
            self._open.popleft().close()

    def _step(self) -> None:
        """Request what may be on its way by now: one chunk at first, and more with every one that was waited for."""
        self._depth = min(2 * self._depth or 1, _SMALL_AHEAD)
        while True:
            self._next = self._next or next(self._chunks, None)
            if self._next is None or not self._may_request(self._next[1]):
                return
            segment, span = self._next
            segment.request(span)
            self._next = None

    def _may_request(self, span: Span) -> bool:
        outstanding = [each for segment in self._open for each in segment.outstanding]
        if self._machine is None or not outstanding:
            return True
        held = sum(each.length for each in outstanding) + span.length
        is_little = held <= _AHEAD * self._machine.cache.chunk_bytes
        return is_little and len(outstanding) < self._depth and self._machine.ahead.has(span.length)

    def _wanted_chunks(self) -> Iterator[tuple[OpenSegment, Span]]:
        """Yield the chunks of all segments in the order in which they will be wanted, but those that were by now."""
        segment = self._pulled()
        while segment is not None:
            following = self._pulled()  # whose index is on its way while chunks of this one are
            for span in _wanted_of(segment):
                if segment.may_want(span):
                    yield segment, span
            segment = following

    def _pulled(self) -> OpenSegment | None:
        """Open the next remote piece; `None`: there is none."""
        if self._machine is None or self._following is not None or self._failed is not None:
            return None
        try:
            piece = next(self._pieces, None)
        except Exception as error:  # noqa: BLE001 - it is raised where its turn comes
            self._failed = error
            return None
        if piece is None or not piece.is_remote:
            self._following = piece
            return None
        segment = OpenSegment(self._machine, piece, self._step)
        self._open.append(segment)
        return segment


def _wanted_of(segment: OpenSegment) -> Iterable[Span]:
    """Return the chunks that are wanted; none, where it fails: who comes to read it meets the same error."""
    try:
        return segment.wanted()
    except (ReconcilerError, pa.ArrowException, OSError, ValueError):
        return ()
