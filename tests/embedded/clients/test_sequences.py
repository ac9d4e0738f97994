"""Idempotent producing: whatever is sent again is there once, and what does not follow on is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.archives.entries import Entry
from reconciler.embedded.clients.sequences import (
    KEPT_MS,
    MAX_PASSING_PRODUCERS,
    SEQUENCES,
    ProducerIdentity,
    SequencedBatch,
    advance_sequence,
    find_batch_offsets,
    is_batch_stored,
    update_producers,
)
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import PRODUCERS, Head, read_head
from reconciler.errors import OutOfOrderSequenceError, ProducerFencedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.samples import NOW, cluster_in, contents, ids, values

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

LAST = SEQUENCES - 1


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


def append(cluster: EmbeddedCluster, sequence: int, *contents: str, partition: int = 0, epoch: int = 0) -> Any:
    """Append as a process does that was just started."""
    producer = cluster.sequenced_producer("loader", epoch=epoch)
    return producer.append("orders", partition, values(*contents), sequence=sequence)


def seen(cluster: EmbeddedCluster, partition: int = 0) -> list[bytes | None]:
    return [value for _, value in contents(cluster.log("orders"), partition)]


def head(cluster: EmbeddedCluster) -> Head:
    found = read_head(cluster.store, cluster.topic("orders").id, 0)
    assert found is not None
    return found


# -- what a partition takes


def test_a_batch_that_is_there_is_not_appended_again_and_its_offsets_are_told(orders: EmbeddedCluster) -> None:
    assert append(orders, 0, "a", "b") == OffsetRange(0, 2)
    assert append(orders, 2, "c", "d") == OffsetRange(2, 4)
    assert append(orders, 0, "a", "b") == OffsetRange(0, 2)
    assert append(orders, 2, "c", "d") == OffsetRange(2, 4)
    assert append(orders, 3, "d") == OffsetRange(3, 4)
    assert append(orders, 1, "b", "c") == OffsetRange(1, 3)
    assert seen(orders) == [b"a", b"b", b"c", b"d"]


def test_every_partition_has_numbers_of_its_own(orders: EmbeddedCluster) -> None:
    assert append(orders, 0, "a") == append(orders, 0, "b", partition=1) == OffsetRange(0, 1)
    assert append(orders, 1, "c", partition=1) == OffsetRange(1, 2)
    assert orders.sequenced_producer("loader").last_sequences("orders") == {0: 0, 1: 1}
    assert orders.sequenced_producer("other").last_sequences("orders") == {}


@pytest.mark.parametrize("sequence", [3, 4, 1, 1_000_000, LAST])
def test_a_batch_that_does_not_follow_on_is_refused(orders: EmbeddedCluster, sequence: int) -> None:
    append(orders, 0, "a", "b")
    with pytest.raises(
        OutOfOrderSequenceError, match=r"Out of order sequence number for producer loader in orders"
    ) as e:
        append(orders, sequence, "c", "d")
    assert f"{sequence} (incoming seq. number), 1 (current end sequence number)" in e.value.message
    assert seen(orders) == [b"a", b"b"]


def test_a_restarted_writer_asks_what_landed_and_goes_on(orders: EmbeddedCluster) -> None:
    lines = [f"line {number}" for number in range(10)]
    append(orders, 0, *lines[:4])
    producer = orders.sequenced_producer("loader")
    rest = producer.last_sequences("orders")[0] + 1
    producer.append("orders", 0, values(*lines[rest:]), sequence=rest)
    assert seen(orders) == [line.encode() for line in lines]


def test_numbers_begin_again_after_the_last(orders: EmbeddedCluster) -> None:
    assert append(orders, LAST - 1, "a") == OffsetRange(0, 1)
    assert append(orders, LAST, "b", "c", "d") == OffsetRange(1, 4)
    assert append(orders, 2, "e") == OffsetRange(4, 5)
    assert append(orders, LAST, "b", "c", "d") == OffsetRange(1, 4)
    assert append(orders, 0, "c") == OffsetRange(2, 3)
    with pytest.raises(OutOfOrderSequenceError):
        append(orders, 4, "f")
    assert seen(orders) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("sequence", [-1, SEQUENCES])
def test_what_is_no_sequence_number_is_refused(orders: EmbeddedCluster, sequence: int) -> None:
    with pytest.raises(OutOfOrderSequenceError, match="is not a sequence number"):
        append(orders, sequence, "a")


@pytest.mark.parametrize(("partition", "sequence"), [(0, "0"), ("0", 0), (0, None), (0, 0.0)])
def test_numbers_that_are_none_are_refused(orders: EmbeddedCluster, partition: Any, sequence: Any) -> None:
    with pytest.raises(UserError, match=r"orders: (partition|sequence) takes a whole number"):
        orders.sequenced_producer("loader").append("orders", partition, values("a"), sequence=sequence)


def test_a_later_epoch_begins_at_0_and_fences_the_one_before(orders: EmbeddedCluster) -> None:
    append(orders, 0, "a", "b")
    with pytest.raises(OutOfOrderSequenceError, match="Invalid sequence number for new epoch of producer loader"):
        append(orders, 2, "c", epoch=1)
    assert append(orders, 0, "c", epoch=1) == OffsetRange(2, 3)
    with pytest.raises(ProducerFencedError, match=r"is 0, which is smaller than the last seen epoch 1"):
        append(orders, 2, "d")
    assert seen(orders) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("producer_id", "epoch"), [("", 0), ("x" * 250, 0), ("\ud800", 0), ("loader", -1)])
def test_what_cannot_be_a_producer_is_refused(orders: EmbeddedCluster, producer_id: str, epoch: int) -> None:
    with pytest.raises(UserError):
        orders.sequenced_producer(producer_id, epoch=epoch)


def test_a_batch_without_records_is_there_at_once(orders: EmbeddedCluster) -> None:
    assert append(orders, 7) is None
    assert append(orders, 0, "a") == OffsetRange(0, 1)


# -- what a head remembers


def test_a_producer_is_forgotten_after_a_day_and_any_number_is_taken_then(store: ObjectStore) -> None:
    early = cluster_in(store)
    early.create_topic("orders")
    append(early, 0, "a")
    late = EmbeddedCluster.open(store, now_ms=lambda: NOW + KEPT_MS, new_id=ids())
    with late.producer() as producer:
        producer.send("orders", "b")
    assert append(late, 0, "a") == OffsetRange(0, 1)
    later = EmbeddedCluster.open(store, now_ms=lambda: NOW + KEPT_MS + 1, new_id=ids())
    with later.producer() as producer:
        producer.send("orders", "c")
    assert "loader" not in head(later).producers
    assert append(later, 41, "d") == OffsetRange(3, 4)


@pytest.mark.parametrize("sequence", [0, 41])
def test_a_producer_is_forgotten_after_a_day_in_which_no_other_appended(store: ObjectStore, sequence: int) -> None:
    early = cluster_in(store)
    early.create_topic("orders")
    append(early, 0, "a", "b")
    late = EmbeddedCluster.open(store, now_ms=lambda: NOW + KEPT_MS + 1, new_id=ids())
    assert append(late, sequence, "c") == OffsetRange(2, 3)
    assert append(late, sequence, "c") == OffsetRange(2, 3)
    assert seen(late) == [b"a", b"b", b"c"]


def test_producers_that_come_once_do_not_swell_a_head() -> None:
    grown = Head(PRODUCERS)
    grown = replace(grown, producers=update_producers(grown, ProducerIdentity("loader", is_lasting=True), 3, NOW))
    for number in range(2 * MAX_PASSING_PRODUCERS):
        grown = replace(grown, producers=update_producers(grown, ProducerIdentity(f"p{number}"), 0, NOW))
    assert len(grown.producers) == MAX_PASSING_PRODUCERS + 1
    assert grown.producers["loader"]["last"] == 3
    assert "p0" not in grown.producers
    assert f"p{2 * MAX_PASSING_PRODUCERS - 1}" in grown.producers


# -- the arithmetic


def taken(head: Head, batch: SequencedBatch) -> Head:
    entries = batch.mark_entries([Entry(0, batch.count - 1, 0, 0, 1, 0, "key", Digest(batch.count, 0, 0))])
    return replace(
        head.with_appended([entry.shift(head.end, 0) for entry in entries], end=head.end + batch.count),
        producers=update_producers(head, batch.identity, batch.last, NOW),
    )


@settings(max_examples=200)
@given(
    first=st.integers(0, LAST) | st.integers(LAST - 20, LAST),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    again=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 12)), max_size=12),
)
def test_whatever_part_of_what_is_there_comes_again_is_found_where_it_lies(
    first: int, counts: list[int], again: list[tuple[int, int]]
) -> None:
    who, found, end = ProducerIdentity("p"), Head(PRODUCERS), 0
    for count in counts:
        found = taken(found, SequencedBatch(who, advance_sequence(first, end), count))
        end += count
    for skipped, count in again:
        batch = SequencedBatch(who, advance_sequence(first, skipped), count)
        if skipped + count <= end:
            assert is_batch_stored(found, batch, "here", NOW)
            assert find_batch_offsets(found, batch) == OffsetRange(skipped, skipped + count)
        elif skipped == end:
            assert not is_batch_stored(found, batch, "here", NOW)
        else:
            with pytest.raises(OutOfOrderSequenceError):
                is_batch_stored(found, batch, "here", NOW)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=25))
def test_a_writer_that_comes_back_anywhere_leaves_every_line_once(tries: list[tuple[int, int]]) -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders")
    written = 0
    for start, count in tries:
        lines = [f"{number}" for number in range(start, start + count)]
        try:
            assert append(cluster, start, *lines) == OffsetRange(start, start + count)
        except OutOfOrderSequenceError:
            assert start > written or start < written < start + count
        except AssertionError:
            assert written == 0  # of a producer it does not know, a partition takes any number
            return
        else:
            written = max(written, start + count)
    assert seen(cluster) == [f"{number}".encode() for number in range(written)]
