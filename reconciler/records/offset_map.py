"""Offset maps: the offsets of a log's records in a copy with other offsets.

A piece is a run of records with consecutive offsets in both logs. A chunk stores up to 500 pieces; an append rewrites
only the last chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Only functions over columns need numpy, so only they import it.
# ruff: noqa: PLC0415

CHUNK_PIECES: Final = 500
"""Maximum pieces in a chunk."""


class Piece(NamedTuple):
    """A run of records with consecutive offsets in source and copy."""

    source: int
    target: int
    length: int

    @property
    def source_end(self) -> int:
        """Offset after the run in the source."""
        return self.source + self.length

    @property
    def target_end(self) -> int:
        """Offset after the run in the copy."""
        return self.target + self.length


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pieces of an offset map. A partition's chunks are numbered from 0."""

    number: int = 0
    pieces: tuple[Piece, ...] = ()

    def to_document(self) -> dict[str, object]:
        """Return the stored form: for each piece, the gaps before it in source and copy, and its length."""
        numbers: list[int] = []
        source = target = 0
        for piece in self.pieces:
            numbers += (piece.source - source, piece.target - target, piece.length)
            source, target = piece.source_end, piece.target_end
        return {"pieces": numbers}


def parse_chunk(number: int, document: Mapping[str, Any]) -> Chunk:
    """Parse the stored form of a chunk."""
    numbers = document["pieces"]
    pieces: list[Piece] = []
    source = target = 0
    for source_gap, target_gap, length in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        piece = Piece(source + source_gap, target + target_gap, length)
        pieces.append(piece)
        source, target = piece.source_end, piece.target_end
    return Chunk(number, tuple(pieces))


def make_pieces(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> tuple[Piece, ...]:
    """Return the pieces of records with these offsets in source and copy."""
    if not len(sources):
        return ()
    import numpy as np

    breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(sources)])))
    columns = (sources[starts].tolist(), targets[starts].tolist(), lengths.tolist())
    return tuple(Piece(*piece) for piece in zip(*columns, strict=True))


def append_pieces(chunk: Chunk, pieces: Iterable[Piece]) -> list[Chunk]:
    """Add pieces to a map's last chunk, joining adjacent pieces; return the changed and new chunks."""
    joined = _join_pieces([*chunk.pieces[-1:], *pieces])
    if joined == [*chunk.pieces[-1:]]:
        return []
    every = [*chunk.pieces[:-1], *joined]
    starts = range(0, len(every), CHUNK_PIECES)
    return [Chunk(chunk.number + nth, tuple(every[at : at + CHUNK_PIECES])) for nth, at in enumerate(starts)]


def _join_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.source_end, last.target_end) == (piece.source, piece.target):
            joined[-1] = Piece(last.source, last.target, last.length + piece.length)
        else:
            joined.append(piece)
    return joined


class OffsetMap:
    """The offset map of one partition. The source was copied up to `through`, including gaps."""

    def __init__(self, chunks: Iterable[Chunk], through: int) -> None:
        ordered = sorted(chunks, key=lambda chunk: chunk.number)
        self._pieces = [piece for chunk in ordered for piece in chunk.pieces]
        self._starts = [piece.source for piece in self._pieces]
        self.through = through
        self._columns: npt.NDArray[np.int64] | None = None

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def find_target(self, source: int) -> int | None:
        """Return the copy's offset of a source offset; `None` if not copied.

        An offset without a record maps to the next record.
        """
        if source > self.through or not self._pieces:
            return None
        at = bisect_right(self._starts, source) - 1
        if at >= 0 and source < self._pieces[at].source_end:
            return self._pieces[at].target + source - self._pieces[at].source
        if at + 1 < len(self._pieces):
            return self._pieces[at + 1].target
        return self._pieces[at].target_end

    def find_target_end(self, source: int) -> int:
        """Return the copy's offset after the last record below a source offset; 0 without such a record."""
        at = bisect_left(self._starts, source) - 1
        if at < 0:
            return 0
        piece = self._pieces[at]
        return piece.target + min(source, piece.source_end) - piece.source

    def find_sources(self, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the source offset of each offset in the copy; -1 for offsets without a copied record."""
        import numpy as np

        if not self._pieces:
            return np.full(len(targets), -1, np.int64)
        if self._columns is None:
            self._columns = np.array(self._pieces, np.int64).T
        sources, starts, lengths = self._columns
        at = np.maximum(np.searchsorted(starts, targets, side="right") - 1, 0)
        within = targets - starts[at]
        return np.where((within >= 0) & (within < lengths[at]), sources[at] + within, -1)

    def find_source(self, target: int) -> int:
        """Return the source offset of the first record at or after an offset of the copy; else `through`."""
        at = bisect_right(self._pieces, target, key=lambda piece: piece.target_end)
        if at == len(self._pieces):
            return self.through
        return self._pieces[at].source + max(0, target - self._pieces[at].target)
