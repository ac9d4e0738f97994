"""Transactions: what is committed is readable as one, what is aborted never."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.clients.transactions import TransactionState
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import transaction_key
from reconciler.embedded.segments import head as head_module
from reconciler.errors import InvalidNamespaceError, ProducerFencedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.clients.transactional_producers import (
    CHECKOUT,
    at,
    fill,
    head,
    opened,
    plain,
    seen,
    state,
    uncommitted,
    writer,
)
from tests.embedded.samples import NOW, cluster_in, contents, read, values
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


# -- commit and abort


def test_what_is_committed_becomes_readable_as_one(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.send("orders", "b", partition=1)
    assert producer.flush() == {"orders": {0: OffsetRange(0, 1), 1: OffsetRange(0, 1)}}
    assert (seen(orders), seen(orders, 1)) == ([], [])
    producer.send("orders", "c", partition=0)
    assert producer.commit() == {"orders": {0: OffsetRange(1, 2)}}
    assert (seen(orders), seen(orders, 1)) == ([(0, b"a"), (1, b"c")], [(0, b"b")])
    assert state(orders) is TransactionState.EMPTY


def test_what_is_aborted_is_never_readable_and_its_offsets_stay_a_gap(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    plain(orders, "before")
    producer.begin()
    producer.append("orders", values("a", "b", "c", partition=[0, 0, 0]))
    producer.flush()
    plain(orders, "between")
    parts = [listed.key for listed in orders.store.list("topics/")]
    producer.abort()
    plain(orders, "after")
    assert seen(orders) == uncommitted(orders) == [(0, b"before"), (4, b"between"), (5, b"after")]
    assert len(parts) == 3
    assert len([listed.key for listed in orders.store.list("topics/")]) == 3


def test_readers_of_committed_records_wait_and_others_do_not(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    plain(orders, "a")
    producer.begin()
    producer.send("orders", "b", partition=0)
    producer.flush()
    plain(orders, "c")
    bounds = orders.log("orders").read_bounds()[0]
    assert (bounds.stable, bounds.end) == (1, 3)
    assert seen(orders) == [(0, b"a")]
    assert uncommitted(orders) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [record.value for record in orders.consume("orders", isolation="read_uncommitted")] == [b"a", b"b", b"c"]
    assert sum(map(len, orders.consumer("readers", topics=["orders"]).poll())) == 1
    assert sum(map(len, orders.consumer(topics=["orders"], isolation="read_uncommitted").poll())) == 3
    producer.commit()
    assert seen(orders) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("word", ["foo", "", "committed", None, 1])
def test_an_isolation_that_is_none_is_refused(orders: EmbeddedCluster, word: Any) -> None:
    for attempt in (
        lambda: orders.log("orders", isolation=word),
        lambda: orders.consume("orders", isolation=word),
        lambda: orders.consumer(topics=["orders"], isolation=word),
    ):
        with pytest.raises(UserError, match="there is no isolation") as refused:
            attempt()
        assert "read_committed, read_uncommitted" in refused.value.hint


def test_an_isolation_in_capitals_is_the_same(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    for word, count in (("READ_COMMITTED", 0), ("Read_Uncommitted", 1)):
        given: Any = word
        assert len(list(orders.consume("orders", isolation=given))) == count
        assert sum(map(len, orders.consumer(topics=["orders"], isolation=given).poll())) == count


def test_plain_appends_lie_between_two_transactions_of_one_partition(orders: EmbeddedCluster) -> None:
    first, second = writer(orders, "first"), writer(orders, "second")
    first.begin()
    second.begin()
    for number in range(3):
        for producer, name in ((first, "first"), (second, "second")):
            producer.send("orders", f"{name}-{number}", partition=0)
            producer.flush()
        plain(orders, f"plain-{number}")
    assert seen(orders) == []
    second.commit()
    assert seen(orders) == []
    assert len(uncommitted(orders)) == 9
    first.abort()
    found = [(3 * number + 1, f"second-{number}".encode()) for number in range(3)]
    found += [(3 * number + 2, f"plain-{number}".encode()) for number in range(3)]
    assert seen(orders) == sorted(found)
    assert head(orders).records == 6


def test_one_transaction_spans_topics_and_partitions(orders: EmbeddedCluster) -> None:
    orders.create_namespace("shop:eu")
    orders.create_topic("shop:eu:orders", partitions=5)
    producer = writer(orders, "shop:eu:checkout")
    with producer.transaction():
        for partition in range(5):
            producer.send("shop:eu:orders", f"{partition}", partition=partition)
        producer.send("orders", "a", partition=1)
    assert [seen(orders, partition, "shop:eu:orders") for partition in range(5)] == [
        [(0, f"{partition}".encode())] for partition in range(5)
    ]
    assert seen(orders, 1) == [(0, b"a")]


def test_a_producer_goes_on_with_the_next_transaction(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    for number in range(6):
        producer.begin()
        producer.send("orders", f"{number}", partition=0)
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
    assert seen(orders) == [(0, b"0"), (1, b"2"), (2, b"3"), (3, b"5")]


def test_a_transaction_without_records_writes_nothing(orders: EmbeddedCluster) -> None:
    watched = WatchedStore(orders.store)
    producer = writer(cluster_in(watched))
    watched.calls.clear()
    with producer.transaction():
        pass
    producer.begin()
    producer.abort()
    assert [call for call, _ in watched.calls if call in {"put", "swap", "delete"}] == []


def test_a_block_that_raises_aborts(orders: EmbeddedCluster) -> None:
    producer = writer(orders)

    def fail() -> None:
        with producer.transaction():
            producer.send("orders", "a", partition=0)
            producer.flush()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (seen(orders), uncommitted(orders), state(orders)) == ([], [], TransactionState.EMPTY)
    with orders.producer(CHECKOUT) as other:
        other.init_transactions()
        other.begin()
        other.send("orders", "b", partition=0)
        other.flush()
    assert uncommitted(orders) == []


def test_a_refused_record_leaves_only_the_abort(orders: EmbeddedCluster) -> None:
    producer = writer(orders)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    producer.send("orders", "b", partition=9)
    with pytest.raises(UserError, match="partition 9"):
        producer.flush()
    for call in (producer.commit, producer.flush, lambda: producer.send("orders", "c"), producer.begin):
        with pytest.raises(UserError, match=r"failed to write something of its transaction\. Call abort"):
            call()
    producer.abort()
    with producer.transaction():
        producer.send("orders", "d", partition=0)
    assert seen(orders) == [(1, b"d")]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (["begin"], "has not taken over yet"),
        (["commit"], "has not taken over yet"),
        (["send"], "has not taken over yet"),
        (["init_transactions", "send"], "has no open transaction"),
        (["init_transactions", "commit"], "has no open transaction"),
        (["init_transactions", "abort"], "has no open transaction"),
        (["init_transactions", "send_offsets"], "has no open transaction"),
        (["init_transactions", "begin", "begin"], "has an open transaction"),
    ],
)
def test_calls_out_of_turn_are_refused(orders: EmbeddedCluster, calls: list[str], said: str) -> None:
    producer = orders.producer(CHECKOUT)
    arguments = {"send": ("orders", "a"), "send_offsets": ("readers", {})}
    for name in calls[:-1]:
        getattr(producer, name)()
    with pytest.raises(UserError, match=said):
        getattr(producer, calls[-1])(*arguments.get(calls[-1], ()))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_that_cannot_be_is_refused(orders: EmbeddedCluster, timeout_ms: int) -> None:
    producer = orders.producer(CHECKOUT, transaction_timeout_ms=timeout_ms)
    with pytest.raises(UserError, match="The transaction timeout is larger than the maximum value allowed"):
        producer.init_transactions()


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 250])
def test_a_transactional_id_that_cannot_be_is_refused(orders: EmbeddedCluster, name: str) -> None:
    with pytest.raises(UserError, match="transactional id"):
        orders.producer(name)


@pytest.mark.fact("F-K-003")
def test_no_namespace_is_made_for_a_transactional_id(orders: EmbeddedCluster) -> None:
    producer = orders.producer("nowhere:checkout")
    with pytest.raises(InvalidNamespaceError, match="nowhere"):
        producer.init_transactions()
    assert orders.namespaces() == []


def test_any_text_names_a_transaction(orders: EmbeddedCluster) -> None:
    for name in ("a/b 100%", "..", "é", "x" * 249):
        with writer(orders, name).transaction() as producer:
            producer.send("orders", name, partition=0)
    assert [value for _, value in seen(orders)] == [b"a/b 100%", b"..", "é".encode(), b"x" * 249]
    assert orders.finish_transactions() == 0


def test_a_damaged_register_is_said_and_stops_no_other(orders: EmbeddedCluster) -> None:
    writer(orders, "a-damaged")
    key = transaction_key("a-damaged")
    orders.store.delete([key])
    orders.store.swap(
        key, b'{"format": "reconciler.transaction/1", "epoch": 1, "nonce": "x", "marks": []}', expected=None
    )
    opened(orders, "late", "a")
    with pytest.raises(UserError, match=r"a-damaged\.json cannot be read"):
        at(orders, NOW + 60_001).finish_transactions()
    assert state(orders, "late") is TransactionState.EMPTY
    with pytest.raises(UserError, match=r"a-damaged\.json cannot be read"):
        writer(orders, "a-damaged")


# -- at once


def test_concurrent_transactions_on_the_same_partitions(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders", partitions=3)

    def work(number: int) -> list[tuple[int, str]]:
        mine = cluster_in(store)
        producer = writer(mine, f"writer-{number}")
        kept: list[tuple[int, str]] = []
        for turn in range(6):
            producer.begin()
            values = [(partition, f"{number}-{turn}-{partition}") for partition in range(3)]
            for partition, value in values:
                producer.send("orders", value, partition=partition)
            producer.flush()
            if turn % 3 == 2:
                producer.abort()
            else:
                producer.commit()
                kept += values
        return kept

    with ThreadPoolExecutor(4) as threads:
        said = [row for rows in threads.map(work, range(4)) for row in rows]
    for partition in range(3):
        found = [value.decode() for _, value in seen(cluster, partition) if value is not None]
        assert sorted(found) == sorted(value for at, value in said if at == partition)
        assert len(found) == 16
        for number in range(4):
            mine = [value for value in found if value.startswith(f"{number}-")]
            assert mine == sorted(mine)
    assert head(cluster).transactions == {}


def test_of_those_that_claim_one_id_at_once_one_writes(orders: EmbeddedCluster) -> None:
    def work(number: int) -> bool:
        producer = cluster_in(orders.store).producer(CHECKOUT)
        try:
            producer.init_transactions()
            fill(producer, f"{number}")
        except ProducerFencedError:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(8)))
    assert sorted(value for _, value in seen(orders)) == sorted(
        b"%d" % number for number, is_done in enumerate(done) if is_done
    )
    assert any(done)
    fill(writer(orders), "last")
    assert seen(orders)[-1][1] == b"last"


# -- what it costs


def test_a_transaction_costs_three_swaps_of_its_register_and_one_more_of_each_head(orders: EmbeddedCluster) -> None:
    watched = WatchedStore(orders.store)
    producer = writer(cluster_in(watched))
    producer.begin()
    for partition in (0, 1):
        producer.send("orders", "a", partition=partition)
    producer.commit()
    watched.calls.clear()
    producer.begin()
    for _ in range(3):
        for partition in (0, 1):
            producer.send("orders", "b", partition=partition)
        producer.flush()
    producer.commit()
    assert watched.count("swap", "transactions/") == 3
    assert watched.count("swap", "heads/") == 2 * 3 + 2
    assert watched.count("put", "topics/") == 2 * 3


# Transactions amid what else happens: topics move or go, logs are read, copied and paged, groups commit.


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
    assert state(orders) is TransactionState.EMPTY
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
    monkeypatch.setattr(head_module, "TAIL", 4)
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
    monkeypatch.setattr(head_module, "TAIL", tail)
    for number in range(4):
        plain(orders, f"kept-{number}", f"more-{number}")
        opened(orders, CHECKOUT, "x", "y", "z").abort()
    log = orders.log("orders")
    rows = read(log)
    assert [row["offset"] for row in rows] == [0, 1, 5, 6, 10, 11, 15, 16]
    assert (log.read_bounds()[0].stable, log.read_bounds()[0].end) == (20, 20)
    assert (head(orders).records, len(list(orders.store.list("topics/")))) == (8, 4)
    for start, stop in itertools.combinations((0, 1, 2, 4, 5, 8, 10, 16, 17, 20), 2):
        offsets = OffsetRange(start, stop)
        wanted = [row for row in rows if start <= row["offset"] < stop]
        assert read(log, 0, start, stop) == wanted
        assert sum(extent.records for extent in log.list_extents(0, offsets)) == len(wanted)
        digests = (compute_digest(batch, base=0) for batch in log.read(0, offsets))
        assert sum(log.read_digests(0, offsets), Digest()) == sum(digests, Digest())
    assert log.find_offset_at(0, NOW) == 0
    assert log.find_offset_at(0, NOW + 1) is None


def test_a_copy_stops_at_the_stable_offset_and_carries_the_gaps(orders: EmbeddedCluster) -> None:
    plain(orders, "a")
    opened(orders, "other", "gone", "gone").abort()
    plain(orders, "b")
    producer = opened(orders, CHECKOUT, "c")
    plain(orders, "d")
    copy = cluster_in(MemoryStore())
    copy.create_topic("orders", partitions=2)
    into, log = copy.sink("orders"), orders.log("orders", isolation="read_uncommitted")
    with pytest.raises(UserError, match="ends before offset 5"):
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
        assert orders.groups.read_committed_offsets("readers", ["orders"]) == {}
        getattr(producer, ending)()
        assert orders.groups.read_committed_offsets("readers", ["orders"]) == expected
    assert seen(orders, 1) == [(1, b"commit")]


def test_offsets_keep_the_epoch_that_they_were_read_under(orders: EmbeddedCluster) -> None:
    plain(orders, "a", "b")
    committed = {("orders", 0): CommittedOffset(1, "note", epoch=0), ("orders", 1): CommittedOffset(0)}
    with writer(orders).transaction() as producer:
        producer.send_offsets("readers", committed)
    assert {place: (one.metadata, one.epoch) for place, one in orders.groups.fetch("readers").items()} == {
        ("orders", 0): ("note", 0),
        ("orders", 1): ("", None),
    }


def test_offsets_alone_are_a_transaction(orders: EmbeddedCluster) -> None:
    plain(orders, "a")
    with writer(orders).transaction() as producer:
        producer.send_offsets("readers", {("orders", 0): 1, ("orders", 1): 0})
        producer.send_offsets("others", {("orders", 0): 1})
    assert orders.groups.read_committed_offsets("readers", ["orders"]) == {("orders", 0): 1, ("orders", 1): 0}
    assert orders.groups.read_committed_offsets("others", ["orders"]) == {("orders", 0): 1}


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
    assert orders.groups.read_committed_offsets("readers", ["orders"]) == {("orders", 0): 0}
