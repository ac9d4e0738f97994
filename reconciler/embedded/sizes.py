"""How much topics hold, read from heads: no part is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.head import read_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.head import Head
    from reconciler.objectstore.base import ObjectStore

STRETCHES: Final = 100


@dataclass(frozen=True, slots=True)
class Size:
    """What all partitions of a topic hold; `ages`: (newest time in ms, bytes) of oldest-first stretches."""

    bytes: int
    records: int
    ages: tuple[tuple[int, int], ...]


def size_of(store: ObjectStore, topic_id: str) -> Size:
    """Measure one topic: one listing, and one GET for each partition ever written."""
    heads = list(read_heads(store, topic_id).values())
    return Size(
        sum(head.stored_bytes for head in heads),
        sum(head.records for head in heads),
        _ages([stretch for head in heads for stretch in _stretches(head)]),
    )


def _stretches(head: Head) -> list[tuple[int, int]]:
    paged = [(page.max_ts, page.bytes) for page in head.pages]
    return paged + [(entry.max_ts, entry.bytes) for entry in head.entries]


def _ages(stretches: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join neighbours until there are at most a hundred; a joined one is as young as its youngest part."""
    ordered = sorted(stretches)
    step = max(1, -(-len(ordered) // STRETCHES))
    groups = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    return tuple((group[-1][0], sum(size for _, size in group)) for group in groups)
