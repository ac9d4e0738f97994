"""Transactions amid what else happens: topics move or go, logs are read, copied and paged, groups commit."""

from __future__ import annotations

import itertools

import pytest

from reconciler.embedded.clients.transactions import State
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments import pages
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.hashes import digest_of
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.samples import NOW, cluster_in, contents, read
from tests.embedded.transacting import (
    CHECKOUT,
    head,
    opened,
    plain,
    seen,
    state,
    writer,
)


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


# -- topics that move or go


def test_a_topic_that_moves_in_the_middle_keeps_its_transaction(orders: EmbeddedCluster) -> None:
    orders.create_namespace("shop")
    producer = writer(orders)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    orders.move_topic("orders", "shop:orders")
    orders.create_topic("orders", partitions=2)
    producer.send("shop:orders", "b", partition=0)
    producer.send("orders", "c", partition=0)
    producer.commit()
    assert seen(orders, topic="shop:orders") == [(0, b"a"), (1, b"b")]
    assert seen(orders) == [(0, b"c")]


@pytest.mark.parametrize("ending", ["commit", "abort"])
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_topic_that_goes_in_the_middle_holds_nothing_up(
    orders: EmbeddedCluster, ending: str, *, is_made_anew: bool
) -> None:
    orders.create_topic("other")
    producer = writer(orders)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.send("other", "b")
    producer.flush()
    orders.delete_topic("orders")
    orders.finish_deletions()
    if is_made_anew:
        orders.create_topic("orders", partitions=2)
    getattr(producer, ending)()
    assert seen(orders, topic="other") == ([(0, b"b")] if ending == "commit" else [])
    assert state(orders) is State.EMPTY
    assert len(list(orders.store.list("heads/"))) == 1


def test_a_topic_marked_and_not_yet_deleted_holds_nothing_up(orders: EmbeddedCluster) -> None:
    producer = opened(orders, CHECKOUT, "a")
    orders.delete_topic("orders")
    producer.commit()
    orders.finish_deletions()
    assert list(orders.store.list("heads/")) == []
    assert list(orders.store.list("topics/")) == []


# -- what else a partition does meanwhile


def test_nothing_that_may_be_aborted_goes_to_a_page(orders: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TAIL", 4)
    plain(orders, "first")
    producer = opened(orders, CHECKOUT, "a")
    for number in range(20):
        plain(orders, f"{number}")
    assert (head(orders).pages, len(head(orders).entries)) == ((), 22)
    producer.abort()
    plain(orders, "last")
    assert len(head(orders).pages) > 0
    assert [value for _, value in seen(orders)] == [b"first", *[b"%d" % number for number in range(20)], b"last"]
    assert 1 not in [offset for offset, _ in seen(orders)]


@pytest.mark.parametrize("tail", [2, 64])
def test_everything_said_of_a_log_holds_around_what_was_aborted(
    orders: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    monkeypatch.setattr(pages, "TAIL", tail)
    for number in range(4):
        plain(orders, f"kept-{number}", f"more-{number}")
        opened(orders, CHECKOUT, "x", "y", "z").abort()
    log = orders.log("orders")
    rows = read(log)
    assert [row["offset"] for row in rows] == [0, 1, 5, 6, 10, 11, 15, 16]
    assert (log.bounds()[0].stable, log.bounds()[0].end) == (20, 20)
    assert (head(orders).records, len(list(orders.store.list("topics/")))) == (8, 4)
    for start, stop in itertools.combinations((0, 1, 2, 4, 5, 8, 10, 16, 17, 20), 2):
        offsets = OffsetRange(start, stop)
        wanted = [row for row in rows if start <= row["offset"] < stop]
        assert read(log, 0, start, stop) == wanted
        assert sum(extent.records for extent in log.extents(0, offsets)) == len(wanted)
        digests = (digest_of(batch, base=0) for batch in log.read(0, offsets))
        assert sum(log.digests(0, offsets), Digest()) == sum(digests, Digest())
    assert log.offset_for_time(0, NOW) == 0
    assert log.offset_for_time(0, NOW + 1) is None


def test_a_copy_stops_at_the_stable_offset_and_carries_the_gaps(orders: EmbeddedCluster) -> None:
    plain(orders, "a")
    opened(orders, "other", "gone", "gone").abort()
    plain(orders, "b")
    producer = opened(orders, CHECKOUT, "c")
    plain(orders, "d")
    copy = cluster_in(MemoryStore())
    copy.create_topic("orders", partitions=2)
    into, log = copy.sink("orders"), orders.log("orders", isolation="read_uncommitted")
    with pytest.raises(UserError, match="does not reach offset 5"):
        into.stage_copy(0, log, OffsetRange(0, 5))
    into.publish([into.stage_copy(0, log, OffsetRange(0, 4))])
    assert contents(copy.log("orders")) == [(0, b"a"), (3, b"b")]
    producer.commit()
    into.publish([into.stage_copy(0, log, OffsetRange(4, 6))])
    assert read(copy.log("orders")) == read(orders.log("orders"))
    assert all(entry.txn is None and entry.producer is None for entry in head(copy).entries)


# -- group offsets


def test_offsets_are_committed_with_the_records_or_not_at_all(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    plain(orders, "a", "b")
    for ending, expected in (("abort", {}), ("commit", {("orders", 0): 2})):
        producer.begin()
        producer.send("orders", ending, partition=1)
        producer.flush()
        producer.send_offsets("readers", {("orders", 0): 2})
        assert orders.groups.committed("readers", ["orders"]) == {}
        getattr(producer, ending)()
        assert orders.groups.committed("readers", ["orders"]) == expected
    assert seen(orders, 1) == [(1, b"commit")]


def test_offsets_alone_are_a_transaction(orders: EmbeddedCluster) -> None:
    plain(orders, "a")
    with writer(orders).transaction() as producer:
        producer.send_offsets("readers", {("orders", 0): 1, ("orders", 1): 0})
        producer.send_offsets("others", {("orders", 0): 1})
    assert orders.groups.committed("readers", ["orders"]) == {("orders", 0): 1, ("orders", 1): 0}
    assert orders.groups.committed("others", ["orders"]) == {("orders", 0): 1}


@pytest.mark.parametrize(
    ("group", "offsets"),
    [
        ("readers", {("orders", 9): 1}),
        ("readers", {("nothing", 0): 1}),
        ("readers", {("orders", 0): -1}),
        ("nowhere:readers", {("orders", 0): 1}),
    ],
)
def test_offsets_that_cannot_be_are_refused_before_the_commit(
    orders: EmbeddedCluster, group: str, offsets: dict[tuple[str, int], int]
) -> None:
    producer = writer(orders)
    producer.begin()
    with pytest.raises(UserError):
        producer.send_offsets(group, offsets)
    producer.send("orders", "a", partition=0)
    producer.commit()
    assert seen(orders) == [(0, b"a")]


def test_offsets_of_a_topic_that_goes_are_dropped(orders: EmbeddedCluster) -> None:
    orders.create_topic("other")
    producer = writer(orders)
    producer.begin()
    producer.send_offsets("readers", {("other", 0): 0, ("orders", 0): 0})
    orders.delete_topic("other")
    producer.commit()
    assert orders.groups.committed("readers", ["orders"]) == {("orders", 0): 0}
