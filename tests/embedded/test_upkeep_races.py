"""Writers, readers and all jobs of upkeep at once on one partition: every acknowledged record is there once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.head import NOBODY, head_register
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import NOW
from tests.embedded.upkeeping import (
    ALL,
    DAY,
    TOPIC,
    TWO_PARTS,
    append,
    append_parts,
    clocked,
    digest_in,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
    with_topic,
)
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


def test_appends_rolls_and_reads_side_by_side(store: ObjectStore) -> None:
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes="9000")
    writers, parts = 3, 30
    is_over = threading.Event()

    def write(writer: int) -> None:
        for number in range(parts):
            append(cluster, (None, f"{writer}-{number}"))

    def tend() -> int:
        rolled = 0
        while not is_over.is_set():
            done = cluster.upkeep().roll()
            assert not done.failed, done.errors
            rolled += done.partitions
        return rolled

    def look() -> None:
        while not is_over.is_set():
            offsets = [
                offset for batch in cluster.log(TOPIC).read(0, ALL) for offset in batch.column("offset").to_pylist()
            ]
            assert offsets == list(range(len(offsets)))

    with ThreadPoolExecutor() as threads:
        others = [threads.submit(tend), threads.submit(tend), threads.submit(look)]
        try:
            for writing in [threads.submit(write, writer) for writer in range(writers)]:
                writing.result()
        finally:
            is_over.set()
        assert others[0].result() + others[1].result() > 0
        others[2].result()
    cluster.upkeep().roll()
    rows = held(cluster)
    assert len(rows) == writers * parts
    for writer in range(writers):
        mine = [row["value"].decode() for row in rows if row["value"].startswith(b"%d-" % writer)]
        assert mine == [f"{writer}-{number}" for number in range(parts)]
    assert parts_in(store) == named_in(cluster)


class Racing(WatchedStore):
    """A store in which something else happens just before the next swap of a head."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, before=self._meanwhile)
        self.meanwhile: Any = None

    def _meanwhile(self, what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()


def raced(**configs: str) -> tuple[EmbeddedCluster, EmbeddedCluster, Any, Racing]:
    """Return a cluster, the same for those who are faster, their clock, and the store."""
    store = Racing(MemoryStore())
    cluster, clock = clocked(store)
    with_topic(cluster, **{"segment_bytes": TWO_PARTS, "min_cleanable_dirty_ratio": "0", **configs})
    others, _ = clocked(store.inner, clock)
    return cluster, others, clock, store


def test_a_roll_finds_its_entries_again_after_an_append_has_spilled_them() -> None:
    cluster, others, _, store = raced()
    append_parts(cluster, 64)
    before = held(cluster)
    assert not head_of(cluster).pages

    def meanwhile() -> None:
        append_parts(others, 3)
        assert head_of(others).pages

    store.meanwhile = meanwhile
    assert cluster.upkeep().roll().partitions == 1
    assert held(cluster)[:128] == before
    assert len(held(cluster)) == 134
    assert parts_in(store) == named_in(cluster)
    assert {listed.key for listed in store.list("pages/")} == {page.key for page in head_of(cluster).pages}


RACES = [
    pytest.param(first, second, parts, marks=pytest.mark.soak if parts > 9 and first == second else ())
    for first, second, parts in product(("roll", "compact", "retain"), ("roll", "compact", "retain"), (9, 80))
]


@pytest.mark.parametrize(("first", "second", "parts"), RACES)
def test_whoever_is_slower_loses_nothing_and_leaves_nothing(first: str, second: str, parts: int) -> None:
    cluster, others, clock, store = raced(cleanup_policy="compact,delete", retention_ms="1d")
    for number in range(parts):
        append(cluster, (f"k{number % 5}", str(number)), ("same", "x"), at_ms=NOW + 1_000 * number)
    clock.now_ms = NOW + DAY + 1_000 * parts // 2
    jobs = {"roll": lambda on: on.upkeep().roll(), "compact": lambda on: on.upkeep().compact(),
            "retain": lambda on: on.upkeep().retain()}  # fmt: skip
    before = pairs_of(held(cluster))
    store.meanwhile = lambda: jobs[first](others)
    done = jobs[second](cluster)
    assert not done.failed, done.errors
    assert parts_in(store) == named_in(cluster)
    rows = pairs_of(held(cluster))
    assert set(rows) <= set(before)
    for job in ("retain", "roll", "compact"):
        jobs[job](others)
    newest = {key: offset for offset, key, _ in before if offset < head_of(cluster).compacted_to}
    start, to = head_of(cluster).start, head_of(cluster).compacted_to
    expected = [row for row in before if row[0] >= start and (row[0] >= to or newest[row[1]] == row[0])]
    assert pairs_of(held(cluster)) == expected
    assert start > 0 or to > 0


def test_a_topic_deleted_meanwhile_stays_deleted() -> None:
    cluster, others, _, store = raced()
    append_parts(cluster, 7)
    store.meanwhile = lambda: others.delete_topic(TOPIC)
    assert cluster.upkeep().roll() == MaintenanceResult()
    assert [key for prefix in ("heads/", "topics/", "pages/") for key in store.list(prefix)] == []


def test_a_head_sealed_meanwhile_keeps_every_part_it_names() -> None:
    cluster, _, _, store = raced()
    append_parts(cluster, 7)
    register = head_register(store.inner, cluster.topic(TOPIC).id, 0)

    def seal() -> None:
        register.update(lambda held: {**(held.value if held else {}), "writer": NOBODY}, mark="x", raises_epoch=True)

    store.meanwhile = seal
    before = parts_in(store)
    assert cluster.upkeep().roll() == MaintenanceResult()
    assert parts_in(store) == before == named_in(cluster)


def test_what_is_published_twice_holds_once() -> None:
    cluster, others, _, store = raced()
    append_parts(cluster, 7)
    digest = digest_in(cluster)
    store.meanwhile = lambda: others.upkeep().roll()
    assert cluster.upkeep().roll() == MaintenanceResult()
    assert digest_in(cluster) == digest
    assert parts_in(store) == named_in(cluster)
