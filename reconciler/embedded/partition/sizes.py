"""How much topics hold, read from heads and, of what is remote only, from manifests: no part is opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.entries import Entry, PageRef
from reconciler.embedded.partition.head import read_heads
from reconciler.embedded.partition.pages import read_pages
from reconciler.embedded.partition.positions import position_of
from reconciler.embedded.remote.measuring.shares import share_below, share_within
from reconciler.resources.measures import TieredPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.measuring.shares import ReadManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.standing import Positions

STRETCHES: Final = 100
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Size:
    """What all partitions of a topic hold; `ages`: (newest time in ms, bytes) of oldest-first stretches."""

    bytes: int
    records: int
    ages: tuple[tuple[int, int], ...]
    local_only_bytes: int = 0
    tiered: tuple[TieredPartition, ...] = ()
    """Every partition ever written to, in order."""
    positions: Positions = field(default_factory=dict)
    """Where they stand."""


def size_of(store: ObjectStore, topic_id: str, manifest_of: ReadManifest = lambda _number: None) -> Size:
    """Measure one topic, each record once: what is local, and what is in object storage alone.

    One listing, one GET for each partition ever written, one more where some of it is remote only, and a few where
    pages are large.
    """
    heads = read_heads(store, topic_id)
    longest = sum(head.stored_bytes for head in heads.values()) // STRETCHES
    stretches = [stretch for head in heads.values() for stretch in _stretches(store, head, longest)]
    total, records = sum(size for _, size in stretches), sum(head.records for head in heads.values())
    remote = dict.fromkeys(heads, 0)
    for number, manifest in _manifests(heads, manifest_of):
        head, named = heads[number], list[PageRef | Entry]([*manifest.pages, *manifest.entries])
        for each in named:
            share = share_within(each, head.start, head.local_start)
            total, records = total + share.bytes, records + share.records
            remote[number] += share.bytes
            stretches.append((each.max_ts, share.bytes))
    return Size(
        total,
        records,
        _ages([(at_ms, size) for at_ms, size in stretches if size]),
        sum(head.stored_bytes - share_below(head, head.uploaded_to).bytes for head in heads.values()),
        tuple(
            TieredPartition(number, head.start, head.local_start, head.uploaded_to, remote[number])
            for number, head in sorted(heads.items())
        ),
        {number: position_of(head) for number, head in sorted(heads.items())},
    )


def _manifests(heads: Mapping[int, Head], manifest_of: ReadManifest) -> Iterator[tuple[int, Manifest]]:
    """Yield the manifests of partitions of which something is remote only; many are read side by side."""
    wanted = [number for number, head in heads.items() if head.start < head.local_start]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifests") as threads:
        for number, manifest in zip(wanted, threads.map(manifest_of, wanted), strict=True):
            if manifest is not None:
                yield number, manifest


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
