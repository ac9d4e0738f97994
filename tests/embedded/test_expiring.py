"""Which remote segments expire: whole ones from the front, by time and size together, spilled ones first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.embedded.segments.entries import Entry
from reconciler.embedded.segments.pages import all_entries, read_page
from reconciler.embedded.segments.retention import CleanupPolicy, SegmentLimits
from reconciler.embedded.tiered.manifest import Manifest, ManifestSpill, RemotePartition
from reconciler.embedded.tiered.remote_retention import Expiry, cut_below, expiry
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_000
PLACE = RemotePartition("west", 1, 0)


def policy(*, retention_ms: int = -1, retention_bytes: int = -1, kinds: str = "delete") -> CleanupPolicy:
    return CleanupPolicy(
        SegmentLimits(1, 1), "delete" in kinds, "compact" in kinds, retention_ms, retention_bytes, 0.5, 0, 1, 1
    )


def segment(number: int, size: int = 10, age_ms: int = 0) -> Entry:
    """Return the segment of offsets `10 * number` to `10 * number + 9`."""
    first, when = 10 * number, NOW - age_ms
    return Entry(first, first + 9, when, when, size, 0, f"s{number}", Digest(10, 1, 1))


def manifest_of(segments: Sequence[Entry], storage: WatchedStore | None = None, *, paged: int = 0) -> Manifest:
    """Return a manifest of segments, the first `paged` in pages of three."""
    spill = ManifestSpill(storage or MemoryStore(), PLACE, 1024)
    pages = [spill.page(segments[at : min(at + 3, paged)]) for at in range(0, paged, 3)]
    return Manifest(
        "west", 0, 1, segments[0].base, segments[-1].last + 1, pages=tuple(pages), entries=tuple(segments[paged:])
    )


def walked(manifest: Manifest, policy: CleanupPolicy, storage: WatchedStore | None = None, *, start: int = 0) -> Expiry:
    store = storage or MemoryStore()
    return expiry(manifest, policy, start=start, now_ms=NOW, read=lambda page: read_page(store, page))


TABLE = [
    # ages, retention.ms, retention.bytes → segments that go of five of ten bytes
    ([0, 0, 0, 0, 0], -1, -1, 0),
    ([0, 0, 0, 0, 0], -1, 50, 0),
    ([0, 0, 0, 0, 0], -1, 49, 1),  # the one that crosses the limit goes too
    ([0, 0, 0, 0, 0], -1, 40, 1),
    ([0, 0, 0, 0, 0], -1, 39, 2),
    ([0, 0, 0, 0, 0], -1, 9, 5),
    ([0, 0, 0, 0, 0], -1, 0, 5),
    ([9, 9, 9, 0, 0], 8, -1, 3),
    ([9, 9, 9, 0, 0], 9, -1, 0),
    ([9, 9, 9, 0, 0], 8, 40, 3),  # size wants one, time wants three
    ([9, 0, 0, 0, 0], 8, 20, 3),  # time wants one, size wants three
    ([9, 0, 9, 9, 9], 8, -1, 1),  # from the front only
    ([9, 9, 9, 9, 9], 8, -1, 5),  # all of it may go
    ([9, 9, 9, 9, 9], 0, 0, 5),
]


@pytest.mark.fact("F-R-016")
@pytest.mark.fact("F-R-017")
@pytest.mark.parametrize("paged", [0, 3, 5])
@pytest.mark.parametrize(("ages", "retention_ms", "retention_bytes", "gone"), TABLE)
def test_whichever_removes_more_decides(
    ages: list[int], retention_ms: int, retention_bytes: int, gone: int, paged: int
) -> None:
    storage = WatchedStore(MemoryStore())
    manifest = manifest_of([segment(number, age_ms=age) for number, age in enumerate(ages)], storage, paged=paged)
    limits = policy(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert walked(manifest, limits, storage).start == 10 * gone


@pytest.mark.fact("F-R-018")
@pytest.mark.fact("F-R-019")
def test_compact_alone_removes_nothing_and_both_remove() -> None:
    manifest = manifest_of([segment(number, age_ms=99) for number in range(4)])
    assert walked(manifest, policy(retention_ms=1, retention_bytes=1, kinds="compact")).start == 0
    assert walked(manifest, policy(retention_ms=1, kinds="compact,delete")).start == 40
    assert walked(manifest, policy(retention_bytes=15, kinds="compact,delete")).start == 30


def test_what_lies_below_the_start_of_the_log_goes_whatever_the_policy_says() -> None:
    manifest = manifest_of([segment(number) for number in range(4)])
    assert walked(manifest, policy(kinds="compact"), start=20) == Expiry(20)
    # It does not count against the limit any more.
    assert walked(manifest, policy(retention_bytes=20), start=20).start == 20
    assert walked(manifest, policy(retention_bytes=19), start=20).start == 30


@pytest.mark.fact("F-R-068")
@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start", "reads"),
    [
        (-1, -1, 0, 0),
        (1_000, -1, 0, 0),  # nothing in the first page can be old
        (90, -1, 110, 1),  # only some of the last page are
        (5, -1, 130, 0),  # a page goes by its newest record
        (-1, 60, 90, 0),  # and by its bytes
        (-1, 50, 100, 1),
        (-1, 0, 150, 0),
    ],
)
def test_pages_that_go_or_stay_as_a_whole_are_not_read(
    retention_ms: int, retention_bytes: int, start: int, reads: int
) -> None:
    storage = WatchedStore(MemoryStore())
    ages = [100] * 11 + [10, 6] + [0] * 2
    segments = [segment(number, age_ms=age) for number, age in enumerate(ages)]
    manifest = manifest_of(segments, storage, paged=12)
    storage.calls.clear()
    found = walked(manifest, policy(retention_ms=retention_ms, retention_bytes=retention_bytes), storage)
    assert found.start == start
    assert storage.count("get") == reads


def test_when_the_next_one_expires_is_known_without_reading_pages_of_the_future() -> None:
    storage = WatchedStore(MemoryStore())
    manifest = manifest_of([segment(number, age_ms=40 - number) for number in range(9)], storage, paged=6)
    storage.calls.clear()
    assert walked(manifest, policy(retention_ms=100), storage).due_ms == NOW - 40 + 100 + 1
    assert walked(manifest, policy(retention_bytes=1_000), storage).due_ms is None
    assert storage.calls == []
    found = walked(manifest, policy(retention_ms=38), storage)
    assert found == Expiry(20, NOW - 38 + 38 + 1)
    assert walked(manifest, policy(retention_ms=1), storage) == Expiry(90)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=14),
    ages=st.lists(st.integers(0, 20), min_size=14, max_size=14),
    paged=st.integers(0, 14),
    limits=st.tuples(st.integers(-1, 20), st.integers(-1, 200)),
    start=st.integers(0, 90),
)
def test_a_manifest_in_pages_expires_as_one_that_is_not(
    sizes: list[int], ages: list[int], paged: int, limits: tuple[int, int], start: int
) -> None:
    storage = WatchedStore(MemoryStore())
    segments = [segment(number, size, ages[number]) for number, size in enumerate(sizes)]
    held = policy(retention_ms=limits[0], retention_bytes=limits[1])
    whole = walked(manifest_of(segments), held, start=start)
    manifest = manifest_of(segments, storage, paged=min(paged, len(segments)))
    assert walked(manifest, held, storage, start=start).start == whole.start
    left = [each for each in segments if each.last >= whole.start]
    if limits[1] >= 0:
        assert sum(each.bytes for each in left) <= limits[1] or all(each.base < start for each in left)
    # What is cut is garbage, what is left is as it was, and nothing is in both.
    spill = ManifestSpill(storage, PLACE, 1024)
    cut = cut_below(storage, manifest, whole.start, spill)
    after = manifest if cut is None else cut.manifest
    assert list(all_entries(storage, after)) == left
    assert after.stored_bytes == sum(each.bytes for each in left)
    dead = [entry for page in after.garbage.pages for entry in read_page(storage, page)] + [*after.garbage.entries]
    assert sorted(entry.base for entry in dead) == [each.base for each in segments if each.last < whole.start]
    if cut is not None:
        assert (cut.segments, cut.records) == (len(dead), 10 * len(dead))
        assert after.start == min(whole.start, manifest.end)


def test_a_large_page_is_cut_at_the_price_of_a_small_one() -> None:
    storage = WatchedStore(MemoryStore())
    segments = [segment(number) for number in range(5_000)]
    spill = ManifestSpill(storage, PLACE, 1024)
    manifest = Manifest("west", 0, 1, 0, 50_000, pages=(spill.page(segments),))
    written = 0
    for number in range(400):
        fresh = ManifestSpill(storage, PLACE, 1024)
        cut = cut_below(storage, manifest, 10 * (number + 1), fresh)
        assert cut is not None
        before = {page.key for page in manifest.pages}
        manifest = replace(cut.manifest, garbage=replace(cut.manifest.garbage, pages=(), entries=()))
        written += sum(page.entries for page in manifest.pages if page.key not in before)
    assert [entry.base for entry in all_entries(storage, manifest)] == list(range(4_000, 50_000, 10))
    assert written < 5_000 + 400 * 100


def test_much_garbage_goes_to_a_page_and_the_manifest_stays_small() -> None:
    storage = MemoryStore()
    segments = [segment(number) for number in range(500)]
    spill = ManifestSpill(storage, PLACE, 1024)
    manifest = Manifest("west", 0, 1, 0, 5_000, pages=(spill.page(segments[:400]),), entries=tuple(segments[400:]))
    cut = cut_below(storage, manifest, 3_000, spill)
    assert cut is not None
    assert cut.manifest.garbage.entries == ()
    assert [page.entries for page in cut.manifest.garbage.pages] == [300]
    assert cut.pages == (manifest.pages[0].key,)
