"""Dying before and after every write of every job: readers see the state before or after, and the next one finishes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.check.sweep import sweep_store
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.head import NOBODY, head_register
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    DAY,
    TOPIC,
    TWO_PARTS,
    Clock,
    LateStore,
    append,
    append_parts,
    clocked,
    copied,
    digest_in,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
    swept_later,
    with_topic,
)
from tests.embedded.samples import NOW, ids
from tests.embedded.stores import DiedError, WatchedStore, dying

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

Job = Callable[[EmbeddedCluster], object]

pytestmark = pytest.mark.thorough

JOBS: dict[str, Job] = {
    "retention": lambda cluster: cluster.upkeep().retain(),
    "roll": lambda cluster: cluster.upkeep().roll(),
    "compact": lambda cluster: cluster.upkeep().compact(),
}


def opened(store: ObjectStore, clock: Clock) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=clock, new_id=ids())


def filled(parts: int) -> tuple[MemoryStore, Clock]:
    """Return a topic that every job finds something in, in pages too; only some of it is old."""
    store = MemoryStore()
    cluster, clock = clocked(store)
    with_topic(
        cluster, cleanup_policy="compact,delete", retention_ms="1d", segment_bytes=TWO_PARTS,
        min_cleanable_dirty_ratio="0",
    )  # fmt: skip
    for number in range(parts):
        if number == parts // 2 + 1:
            clock.now_ms += DAY
        append(cluster, (f"k{number % 7}", str(number)), ("same", str(number)))
    clock.now_ms += 1
    return store, clock


def crashes(store: ObjectStore, clock: Clock, job: Job, step: int) -> Iterator[MemoryStore]:
    """Yield the store for every point at which the job can die, or every so many, as it is left behind."""
    for done in (False, True):
        for at in itertools.count(step=step):
            inner = copied(store)
            try:
                job(opened(dying(inner, at, done=done), clock))
            except DiedError:
                yield inner
            else:
                assert at > 1
                break


@pytest.mark.parametrize(("parts", "step"), [(9, 1), pytest.param(80, 11, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_that_died_is_finished_by_the_next_and_nothing_else_is_lost(name: str, parts: int, step: int) -> None:
    store, clock = filled(parts)
    before = held(opened(store, clock))
    whole = copied(store)
    JOBS[name](opened(whole, clock))
    after = held(opened(whole, clock))
    points = 0
    for left in crashes(store, clock, JOBS[name], step):
        points += 1
        assert held(opened(left, clock)) in (before, after)
        JOBS[name](opened(left, clock))
        finished = opened(left, clock)
        assert pairs_of(held(finished)) == pairs_of(after)
        append(finished, ("next", "one"))
        assert held(finished)[-1]["offset"] == head_of(finished).end - 1
        if points % 5 == 0:
            swept = swept_later(left, clock)
            assert parts_in(left) == named_in(swept)
            assert pairs_of(held(swept))[:-1] == pairs_of(after)
    assert points >= 8


def test_a_sweep_that_died_deletes_nothing_that_is_named_and_the_next_goes_on() -> None:
    store, clock = filled(40)
    before = held(opened(store, clock))
    for number in range(5):
        store.put(f"topics/orders_0/{number:016}.parquet", b"left over")
    for done in (False, True):
        for at in itertools.count():
            inner = copied(store)
            try:
                swept_later(dying(inner, at, done=done), clock)
            except DiedError:
                assert held(opened(inner, clock)) == before
                cluster = swept_later(inner, clock)
                assert parts_in(inner) == named_in(cluster)
                assert held(cluster) == before
            else:
                assert at >= 5
                break


# Writers, readers and all jobs of upkeep at once on one partition: every acknowledged record is there once.


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


class Overtaking(WatchedStore):
    """A store in which another process rolls what is about to be read, several times."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.others: EmbeddedCluster | None = None
        self.left = 5

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if self.others is not None and self.left and key.startswith("topics/"):
            self.left -= 1
            self.others.upkeep().roll()
            append_parts(self.others, 4)
        return super().get_range(key, start, length)


def test_a_roll_goes_on_as_long_as_others_replace_its_parts() -> None:
    store = Overtaking(MemoryStore())
    cluster, clock = clocked(store)
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 7)
    store.others, _ = clocked(store.inner, clock)
    done = cluster.upkeep().roll()
    assert (store.left, done.errors, done.partitions) == (0, [], 1)
    assert len(held(cluster)) == 2 * (7 + 5 * 4)
    assert parts_in(store) == named_in(cluster)


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


# Whatever retention, rolling and compaction do, in any order: what is readable is what a model allows.


KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
VALUES = st.one_of(st.none(), st.sampled_from(["", "x", "y"]))
RETENTION_MS = 50_000
TOMBSTONES_MS = 20_000

Row = tuple[int, bytes | None, bytes | None]


class Upkeep(RuleBasedStateMachine):
    """One partition, and all that was ever acknowledged of it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster, self.clock = clocked()
        self.written: list[Row] = []
        self.times: list[int] = []
        self.cleaned: dict[int, int] = {}
        """When each tombstone was first behind a cleaning."""

    @initialize(segment=st.sampled_from(["1500", "4500", "9000"]), ratio=st.sampled_from(["0", "0.5"]))
    def create(self, segment: str, ratio: str) -> None:
        with_topic(
            self.cluster,
            segment_bytes=segment,
            min_cleanable_dirty_ratio=ratio,
            cleanup_policy="compact,delete",
            retention_ms=str(RETENTION_MS),
            delete_retention_ms=str(TOMBSTONES_MS),
        )
        append(self.cluster, ("a", "first"))
        self.written.append((0, b"a", b"first"))
        self.times.append(self.clock.now_ms)

    @rule(records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), parts=st.integers(1, 3))
    def write(self, records: list[tuple[str, str | None]], parts: int) -> None:
        for _ in range(parts):
            append(self.cluster, *records)
            for key, value in records:
                row = (len(self.written), key.encode(), None if value is None else value.encode())
                self.written.append(row)
                self.times.append(self.clock.now_ms)

    @rule(ms=st.sampled_from([1_000, 15_000, 40_000]))
    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    @rule()
    def roll(self) -> None:
        before = held(self.cluster)
        assert not self.cluster.upkeep().roll().failed
        assert held(self.cluster) == before

    @rule()
    def retain(self) -> None:
        before, start = self.rows(), head_of(self.cluster).start
        assert not self.cluster.upkeep().retain().failed
        after, begun = self.rows(), head_of(self.cluster).start
        assert begun >= start
        assert after == [row for row in before if row[0] >= begun]
        assert all(self.clock.now_ms - self.times[offset] > RETENTION_MS for offset, _, _ in before if offset < begun)

    @rule()
    def compact(self) -> None:
        before = self.rows()
        assert not self.cluster.upkeep().compact().failed
        after = self.rows()
        assert set(after) <= set(before)
        to = head_of(self.cluster).compacted_to
        newest = {key: offset for offset, key, _ in before if offset < to}
        for row in set(before) - set(after):
            offset, key, value = row
            is_superseded = newest[key] > offset
            is_over = value is None and self.clock.now_ms - self.cleaned.get(offset, self.clock.now_ms) >= TOMBSTONES_MS
            assert offset < to
            assert is_superseded or is_over, row
        for offset, key, value in after:
            assert offset >= to or newest[key] == offset
            if offset < to and value is None:
                self.cleaned.setdefault(offset, self.clock.now_ms)

    @invariant()
    def nothing_is_changed_or_made_up(self) -> None:
        rows = self.rows()
        assert rows == sorted(rows)
        assert all(self.written[row[0]] == row for row in rows)
        if self.written:
            head = head_of(self.cluster)
            assert head.end == len(self.written)
            # The newest record of all is never taken, be it old or a tombstone.
            assert rows[-1] == self.written[-1]
            assert parts_in(self.cluster.store) == named_in(self.cluster)

    def rows(self) -> list[Row]:
        return pairs_of(self.rows_read()) if self.written else []

    def rows_read(self) -> list[dict[str, Any]]:
        rows = held(self.cluster)
        assert all(row["timestamp_ms"] == self.times[row["offset"]] for row in rows)
        return rows


Upkeep.TestCase.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)
test_what_is_readable_is_what_the_model_allows = Upkeep.TestCase


# All jobs on a real S3 server: what is readable stays, what is left over goes.


def test_a_partition_is_tended_in_a_bucket(s3_store: ObjectStore) -> None:
    cluster, clock = clocked(s3_store)
    with_topic(
        cluster, cleanup_policy="compact,delete", retention_ms="1d", segment_bytes=TWO_PARTS,
        min_cleanable_dirty_ratio="0",
    )  # fmt: skip
    for number in range(70):
        if number == 20:
            clock.now_ms += DAY
        append(cluster, (f"k{number % 9}", str(number)))
    clock.now_ms += 1
    before = pairs_of(held(cluster))

    upkeep = cluster.upkeep()
    assert upkeep.retain().records == 20
    assert pairs_of(held(cluster)) == before[20:]
    digest = digest_in(cluster)
    assert upkeep.roll().partitions == 1
    assert digest_in(cluster) == digest
    assert upkeep.compact().partitions == 1
    open_from = head_of(cluster).compacted_to
    newest = {key: (offset, key, value) for offset, key, value in before[20:open_from]}
    assert pairs_of(held(cluster)) == sorted(newest.values()) + before[open_from:]

    s3_store.put("topics/orders_0/0123456789abcdef.parquet", b"left over")
    assert cluster.sweep().objects == 0
    late: Any = LateStore(s3_store, DAY + 60_000)
    assert sweep_store(late, CatalogRegister(late)).objects == 1
    assert parts_in(s3_store) == named_in(cluster)
    assert (upkeep.retain().partitions, upkeep.roll().partitions, upkeep.compact().partitions) == (0, 0, 0)
