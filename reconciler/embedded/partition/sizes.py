"""How much topics hold, read from heads: no part is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.head import NEVER_WRITTEN, read_heads
from reconciler.embedded.partition.pages import read_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import Bounds

STRETCHES: Final = 100


@dataclass(frozen=True, slots=True)
class Size:
    """What all partitions of a topic hold; `ages`: (newest time in ms, bytes) of oldest-first stretches."""

    bytes: int
    records: int
    ages: tuple[tuple[int, int], ...]


def size_of(store: ObjectStore, topic_id: str) -> Size:
    """Measure one topic: one listing, one GET for each partition ever written, and a few where pages are large."""
    heads = list(read_heads(store, topic_id).values())
    total = sum(head.stored_bytes for head in heads)
    stretches = [stretch for head in heads for stretch in _stretches(store, head, total // STRETCHES)]
    return Size(total, sum(head.records for head in heads), _ages(stretches))


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a topic holds: where each partition begins and ends, and the sums of all."""

    bounds: Mapping[int, Bounds]
    records: int
    bytes: int


def holdings_of(store: ObjectStore, topic_id: str, partitions: int) -> Holdings:
    """Look at every partition of a topic once: one listing, and one GET for each that was ever written."""
    heads = read_heads(store, topic_id)
    bounds = {number: heads[number].bounds if number in heads else NEVER_WRITTEN for number in range(partitions)}
    return Holdings(
        bounds, sum(head.records for head in heads.values()), sum(head.stored_bytes for head in heads.values())
    )


def _stretches(store: ObjectStore, head: Head, longest: int) -> Iterator[tuple[int, int]]:
    """Yield what lies in each page and entry; pages that hold more than `longest` bytes are looked into."""
    pages = list(reversed(head.pages))
    while pages:
        page = pages.pop()
        if page.level and page.bytes > longest:
            pages += reversed(read_pages(store, page))
        else:
            yield page.max_ts, page.bytes
    yield from ((entry.max_ts, entry.bytes) for entry in head.entries)


def _ages(stretches: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join neighbours until there are at most a hundred; a joined one is as young as its youngest part."""
    ordered = sorted(stretches)
    step = max(1, -(-len(ordered) // STRETCHES))
    groups = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    return tuple((group[-1][0], sum(size for _, size in group)) for group in groups)
