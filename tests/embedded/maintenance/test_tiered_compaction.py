"""Compaction over both tiers: of each key the newest value, wherever its older ones lie, whatever dies in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.parts import read_part
from tests.embedded.maintenance.tiny_segments import ALL, TOPIC, append, copied, head_of, held
from tests.embedded.samples import rows_of
from tests.embedded.stores import DiedError, dying
from tests.embedded.tiered.tiered_cluster import Tiered, begin_at, tiered

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


Values = dict[str, str | None]

TOMBSTONES_MS = 20_000
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": str(TOMBSTONES_MS),
    "retention_local_target_bytes": "1",
    "retention_local_strict": "true",
}


def newest(rows: Iterable[dict[str, Any]]) -> Values:
    """Return what a reader who keeps the newest value of each key ends with; what is deleted is not there."""
    values: Values = {}
    for row in rows:
        values[row["key"].decode()] = None if row["value"] is None else row["value"].decode()
    return {key: value for key, value in sorted(values.items()) if value is not None}


def remote_rows(it: Tiered) -> list[dict[str, Any]]:
    """Return what object storage alone has, as a recovery finds it."""
    return [row for entry in it.segments() for row in rows_of(read_part(it.storage, entry, 0, ALL))]


def evict(it: Tiered) -> None:
    """Let what is uploaded leave the local tier."""
    assert not it.cluster.upkeep().retain().failed


def compacted_topic() -> Tiered:
    return tiered(partitions=1, storage=None, **COMPACTED)


def write(it: Tiered, *records: tuple[str, str | None]) -> None:
    append(it.cluster, *records)
    append(it.cluster, ("z", "1"))
    append(it.cluster, ("z", "2"))


def archived(it: Tiered, *records: tuple[str, str | None]) -> None:
    write(it, *records)
    it.upload()
    evict(it)
    assert head_of(it.cluster).local_start > 0


@pytest.mark.fact("F-R-020")
def test_what_is_superseded_goes_from_object_storage_too() -> None:
    it = compacted_topic()
    archived(it, ("a", "old"), ("b", "kept"))
    write(it, ("a", "new"))
    it.upload()
    before = newest(held(it.cluster))
    done = it.cluster.upkeep().compact()
    assert (done.partitions, done.failed) == (1, 0)
    assert done.records >= 1
    assert newest(held(it.cluster)) == before
    assert [row["value"] for row in held(it.cluster) if row["key"] == b"a"] == [b"new"]
    assert [row["value"] for row in remote_rows(it) if row["key"] == b"a"] == [b"new"]
    assert it.cluster.upkeep().compact() == MaintenanceResult()


def test_a_remote_segment_that_the_start_of_the_log_cuts_is_cleaned_with_the_rest() -> None:
    it = compacted_topic()
    archived(it, ("a", "1"), ("b", "2"))
    archived(it, ("b", "3"))
    write(it, ("a", "4"))
    it.upload()
    begin_at(it, 4)
    assert [(entry.base, entry.last) for entry in it.segments()] == [(3, 4), (5, 6), (7, 8)]
    before = newest(held(it.cluster))
    assert it.cluster.upkeep().compact().records == 3
    assert newest(held(it.cluster)) == before
    assert [row["offset"] for row in held(it.cluster)] == [4, 7, 8, 9]
    assert it.segments()[0].base == 4
    assert it.cluster.upkeep().compact() == MaintenanceResult()


@pytest.mark.fact("F-R-020")
def test_nothing_is_compacted_before_it_is_uploaded() -> None:
    it = compacted_topic()
    write(it, ("a", "1"), ("a", "2"))
    assert it.cluster.upkeep().compact() == MaintenanceResult()
    it.upload()
    assert [row["value"] for row in remote_rows(it) if row["key"] == b"a"] == [b"1", b"2"]
    assert it.cluster.upkeep().compact().partitions == 1
    it.upload()
    assert [row["value"] for row in remote_rows(it) if row["key"] == b"a"] == [b"2"]


@pytest.mark.fact("F-R-020")
def test_a_tombstone_goes_only_when_no_older_value_is_left_in_either_tier() -> None:
    it = compacted_topic()
    archived(it, ("a", "old"))
    write(it, ("a", None))
    it.upload()
    it.cluster.upkeep().compact()
    assert [row["value"] for row in held(it.cluster) if row["key"] == b"a"] == [None]
    assert b"a" not in {row["key"] for row in remote_rows(it) if row["value"] is not None}
    it.clock.now_ms += TOMBSTONES_MS + 1
    it.cluster.upkeep().compact()
    assert b"a" not in {row["key"] for row in held(it.cluster)}
    it.upload()
    assert "a" not in newest(remote_rows(it))


def test_a_tombstone_that_lies_in_object_storage_alone_goes_too() -> None:
    it = compacted_topic()
    archived(it, ("a", "old"))
    archived(it, ("a", None))
    write(it, ("b", "1"))
    it.upload()
    it.cluster.upkeep().compact()
    it.clock.now_ms += TOMBSTONES_MS + 1
    it.cluster.upkeep().compact()
    assert b"a" not in {row["key"] for row in remote_rows(it)}
    assert b"a" not in {row["key"] for row in held(it.cluster)}


def test_a_tombstone_is_not_forgotten_where_its_segment_is_evicted_once_it_was_cleaned() -> None:
    it = compacted_topic()
    archived(it, ("a", "old"))
    write(it, ("a", None))
    it.upload()
    it.cluster.upkeep().compact()
    it.upload()
    evict(it)
    assert head_of(it.cluster).local_start == head_of(it.cluster).uploaded_to
    assert None in {row["value"] for row in remote_rows(it)}
    it.clock.now_ms += TOMBSTONES_MS + 1
    it.cluster.upkeep().compact()
    assert b"a" not in {row["key"] for row in remote_rows(it)}


def test_where_object_storage_is_switched_off_nothing_is_compacted_that_may_lie_there() -> None:
    it = compacted_topic()
    archived(it, ("a", "old"))
    write(it, ("a", None))
    it.upload()
    it.switch_on(enabled="false")
    assert it.cluster.upkeep().compact() == MaintenanceResult()
    it.switch_on()
    assert it.cluster.upkeep().compact().partitions == 1


def prepared() -> Tiered:
    """Return a topic with something to clean in both tiers, in one pass after another."""
    it = compacted_topic()
    archived(it, ("a", "1"), ("b", "1"), ("c", "1"))
    archived(it, ("a", "2"), ("d", "1"))
    write(it, ("b", None), ("d", None), ("a", "3"))
    write(it, ("c", "2"))
    it.upload()
    return it


def copy_of(it: Tiered) -> Tiered:
    copy = Tiered.__new__(Tiered)
    copy.store, copy.storage, copy.clock = copied(it.store), copied(it.storage), it.clock
    copy.cluster = copy.opened()
    return copy


def passes(cluster: EmbeddedCluster, it: Tiered) -> None:
    """Do all that compaction leads to, in two passes: the second drops the tombstones."""
    start_ms = it.clock.now_ms
    for _ in range(2):
        upkeep = cluster.upkeep()
        upkeep.compact()
        upkeep.upload()
        it.clock.now_ms += TOMBSTONES_MS + 1
    it.clock.now_ms = start_ms


@pytest.mark.thorough
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("dies", ["here", "there"])
def test_whoever_dies_at_any_write_leaves_the_newest_value_of_every_key(dies: str, done: bool) -> None:  # noqa: FBT001
    it = prepared()
    expected = newest(held(it.cluster))
    assert expected == {"a": "3", "c": "2", "z": "2"}
    points = 0
    for at in itertools.count():
        left = copy_of(it)
        watched = dying(left.store if dies == "here" else left.storage, at, done=done)
        cluster = left.opened(watched) if dies == "here" else left.opened(storage=watched)
        try:
            passes(cluster, left)
        except DiedError:
            points += 1
            assert newest(held(left.opened())) == expected
            assert newest(remote_rows(left)) == expected
            passes(left.opened(), left)
            assert newest(held(left.opened())) == expected
            assert newest(remote_rows(left)) == expected
            assert {row["key"] for row in held(left.opened())} == {b"a", b"c", b"z"}
        else:
            break
    assert points > 10


KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from([None, "x"])


class TieredCompaction(RuleBasedStateMachine):
    """One partition, and the newest value of each key that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.it = compacted_topic()
        self.written: list[tuple[str, str | None]] = []

    @initialize(segment=st.sampled_from(["1500", "4500"]))
    def begin(self, segment: str) -> None:
        self.it.cluster.alter_topic(TOPIC, {"segment.bytes": segment})

    @rule(records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3), parts=st.integers(1, 2))
    def write(self, records: list[tuple[str, str | None]], parts: int) -> None:
        for _ in range(parts):
            append(self.it.cluster, *records)
            self.written += records

    @rule(records=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4))
    def archive(self, records: list[tuple[str, str | None]]) -> None:
        self.write(records, 1)
        self.write([("z", "1")], 2)
        self.upload(rolls=True)
        evict(self.it)

    @rule(rolls=st.booleans())
    def upload(self, *, rolls: bool) -> None:
        assert not self.it.upload(rolls=rolls).failed

    @rule()
    def evict(self) -> None:
        evict(self.it)

    @rule(waits=st.lists(st.sampled_from([0, 1_000, TOMBSTONES_MS + 1]), min_size=1, max_size=3))
    def compact_whole(self, waits: list[int]) -> None:
        self.write([("z", "1")], 2)
        for ms in waits:
            self.upload(rolls=True)
            assert not self.it.cluster.upkeep().compact().failed
            self.it.clock.now_ms += ms

    @rule(key=KEYS, evicts=st.booleans())
    def forget(self, key: str, *, evicts: bool) -> None:
        """Have a tombstone cleaned twice, maybe where it lies in object storage alone."""
        self.write([(key, None)], 1)
        if evicts:
            self.archive([("z", "2")])
        self.compact_whole([TOMBSTONES_MS + 1, 0])

    @rule(at=st.one_of(st.none(), st.integers(0, 6)), done=st.booleans(), there=st.booleans())
    def compact(self, at: int | None, *, done: bool, there: bool) -> None:
        if at is None:
            assert not self.it.cluster.upkeep().compact().failed
            return
        watched = dying(self.it.storage if there else self.it.store, at, done=done)
        cluster = self.it.opened(storage=watched) if there else self.it.opened(watched)
        try:
            cluster.upkeep().compact()
        except DiedError:
            self.it.cluster = self.it.opened()

    @invariant()
    def the_newest_value_of_each_key_is_there(self) -> None:
        rows = held(self.it.cluster)
        assert newest(rows) == self.expected(len(self.written))
        assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})
        assert all(self.written[row["offset"]][0] == row["key"].decode() for row in rows)

    @invariant()
    def object_storage_alone_has_it_as_far_as_it_was_told(self) -> None:
        head = self.it.cluster.log(TOPIC).read_head(0)
        if head is not None and head.uploaded_to:
            assert newest(remote_rows(self.it)) == self.expected(self.it.manifest().end)

    def expected(self, end: int) -> Values:
        return {key: value for key, value in sorted(dict(self.written[:end]).items()) if value is not None}


TestTieredCompaction = pytest.mark.thorough(TieredCompaction.TestCase)
TestTieredCompaction.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
