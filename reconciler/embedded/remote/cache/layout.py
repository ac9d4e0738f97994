"""How a remote segment is cut into chunks: at row groups, so that what lies together is fetched together. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes of an object, from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many bytes it has."""
        return self.stop - self.start


def chunks_of(borders: Iterable[int], size: int, chunk_bytes: int) -> tuple[Span, ...]:
    """Return the chunks of a segment of `size` bytes, side by side: none is larger than `chunk_bytes`.

    `borders` are where row groups end, first to last: what lies between two stays together as far as it fits. A
    segment that is no larger than a chunk is one.
    """
    cuts = [0]
    for begin, end in pairwise([0, *borders, size]):
        if end - cuts[-1] > chunk_bytes and begin > cuts[-1]:
            cuts.append(begin)
        while end - cuts[-1] > chunk_bytes:
            cuts.append(cuts[-1] + chunk_bytes)
    return tuple(Span(start, stop) for start, stop in pairwise([*cuts, size]))


def touched(chunks: Sequence[Span], wanted: Span) -> Sequence[Span]:
    """Return the chunks that hold bytes of a span; `chunks` lie side by side."""
    if wanted.length <= 0:
        return ()
    first = bisect_right(chunks, wanted.start, key=lambda chunk: chunk.start) - 1
    last = bisect_right(chunks, wanted.stop - 1, key=lambda chunk: chunk.start)
    return chunks[first:last]
