"""Old producers are fenced, dead ones taken over, late ones aborted; lost answers change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.clients.transactions import TransactionState
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import ProducerFencedError, RetryableError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.contracts.lossy import LossyStore
from tests.embedded.clients.transactional_producers import (
    CHECKOUT,
    Silent,
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
from tests.embedded.samples import NOW, cluster_in, ids
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


# -- takeover, time-outs, zombies


def test_who_takes_over_aborts_what_was_open_and_fences_the_old_producer(orders: EmbeddedCluster) -> None:
    old = opened(orders, CHECKOUT, "old")
    new = writer(orders)
    assert uncommitted(orders) == []
    new.begin()
    new.send("orders", "new", partition=0)
    new.flush()
    for call in (old.commit, old.abort, old.begin, old.flush, lambda: old.send("orders", "late")):
        with pytest.raises(ProducerFencedError):
            call()
    new.commit()
    assert seen(orders) == [(1, b"new")]
    old.init_transactions()
    with old.transaction():
        old.send("orders", "again", partition=0)
    with pytest.raises(ProducerFencedError, match="There is a newer producer with the same transactionalId"):
        fill(new, "late")


@pytest.mark.parametrize("partition", [0, 1])
def test_a_zombie_writes_nothing_any_more(orders: EmbeddedCluster, partition: int) -> None:
    old = opened(orders, CHECKOUT, "old")
    at(orders, NOW + 60_001).finish_transactions()
    old.send("orders", "late", partition=partition)
    with pytest.raises(ProducerFencedError):
        old.flush()
    assert uncommitted(orders, partition) == []
    assert orders.log("orders").read_bounds()[partition].stable == orders.log("orders").read_bounds()[partition].end


@pytest.mark.parametrize("was_written", [True, False])
@pytest.mark.parametrize("by", ["takeover", "time-out"])
def test_a_zombie_asleep_before_its_swap_is_fenced_by_the_head(
    orders: EmbeddedCluster, *, was_written: bool, by: str
) -> None:
    """It has named the partition and put its part; what is left is the one swap of the head, new or not."""
    if was_written:
        plain(orders, "a")
    finishers: list[Callable[[], object]] = [
        (lambda: writer(orders)) if by == "takeover" else at(orders, NOW + 60_001).finish_transactions
    ]

    def sleep(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and finishers:
            finishers.pop()()

    old = writer(cluster_in(WatchedStore(orders.store, before=sleep)))
    old.begin()
    old.send("orders", "late", partition=0)
    with pytest.raises(ProducerFencedError, match="is smaller than the last seen epoch"):
        old.flush()
    assert uncommitted(orders) == ([(0, b"a")] if was_written else [])
    assert head(orders).transactions == {}
    fill(writer(orders), "next")
    assert seen(orders)[-1][1] == b"next"


def test_a_zombie_asleep_for_days_is_fenced_by_the_register(orders: EmbeddedCluster) -> None:
    clock = [NOW]
    finishers = [lambda: at(orders, NOW + 60_001).finish_transactions()]

    def sleep(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and finishers:
            finishers.pop()()
            clock[0] = NOW + 3 * 86_400_000
            plain(at(orders, clock[0]), "later")

    old = EmbeddedCluster.open(
        WatchedStore(orders.store, before=sleep), now_ms=lambda: clock[0], new_id=ids()
    ).producer(CHECKOUT)
    old.init_transactions()
    old.begin()
    old.send("orders", "late", partition=0)
    with pytest.raises(ProducerFencedError, match="There is a newer producer"):
        old.flush()
    assert len(head(orders).producers) == 1
    assert seen(orders) == [(0, b"later")]


def test_a_zombie_that_writes_again_after_days_is_fenced_by_the_register(orders: EmbeddedCluster) -> None:
    clock = [NOW]
    cluster = EmbeddedCluster.open(orders.store, now_ms=lambda: clock[0], new_id=ids())
    old = opened(cluster, CHECKOUT, "old")
    at(orders, NOW + 60_001).finish_transactions()
    clock[0] = NOW + 3 * 86_400_000
    plain(at(orders, clock[0]), "later")
    old.send("orders", "late", partition=0)
    with pytest.raises(ProducerFencedError, match="There is a newer producer"):
        old.flush()
    assert (seen(orders), head(orders).transactions) == ([(1, b"later")], {})


def test_what_is_open_for_too_long_is_aborted_and_what_is_not_stays(orders: EmbeddedCluster) -> None:
    late = opened(orders, "late", "a")
    young = opened(at(orders, NOW + 30_000), "young", "b")
    assert at(orders, NOW + 60_000).finish_transactions() == 0
    assert at(orders, NOW + 60_001).finish_transactions() == 1
    assert at(orders, NOW + 60_001).finish_transactions() == 0
    assert uncommitted(orders) == [(1, b"b")]
    with pytest.raises(ProducerFencedError, match="its time-out"):
        late.commit()
    young.commit()
    assert seen(orders) == [(1, b"b")]


def test_a_long_time_out_holds(orders: EmbeddedCluster) -> None:
    producer = orders.producer(CHECKOUT, transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    assert at(orders, NOW + 900_000).finish_transactions() == 0
    producer.commit()
    assert seen(orders) == [(0, b"a")]


# -- lost answers


@pytest.mark.parametrize("retries", [True, False])
def test_lost_answers_change_nothing(*, retries: bool) -> None:
    inner = MemoryStore()
    cluster = cluster_in(inner)
    cluster.create_topic("orders", partitions=2)
    producer = writer(cluster_in(LossyStore(inner, retries=retries)))
    for number in range(4):
        producer.begin()
        producer.send("orders", f"{number}", partition=0)
        producer.send("orders", f"{number}", partition=1)
        producer.send_offsets("readers", {("orders", 0): number})
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    assert [value for _, value in seen(cluster)] == [value for _, value in seen(cluster, 1)] == [b"0", b"2"]
    assert cluster.groups.read_committed_offsets("readers", ["orders"]) == {("orders", 0): 2}
    assert state(cluster) is TransactionState.EMPTY


def impatient(store: ObjectStore) -> TransactionalProducer:
    return cluster_in(store).producer(CHECKOUT, delivery_timeout_ms=0)


def test_a_commit_without_an_answer_is_called_again_and_done_once(orders: EmbeddedCluster) -> None:
    store = Silent(orders.store)
    producer = impatient(store)
    producer.init_transactions()
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    for of in ("transactions/", "heads/"):
        store.of = of
        with pytest.raises(RetryableError, match="no answer from the store"):
            producer.commit()
        with pytest.raises(UserError, match="is committing"):
            producer.abort()
    assert producer.commit() == {}
    assert seen(orders) == [(0, b"a")]
    fill(producer, "b")
    assert seen(orders) == [(0, b"a"), (1, b"b")]


def test_a_commit_without_an_answer_that_somebody_else_finished_is_one(orders: EmbeddedCluster) -> None:
    store = Silent(orders.store)
    producer = impatient(store)
    producer.init_transactions()
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.flush()
    store.of = "transactions/"
    with pytest.raises(RetryableError):
        producer.commit()
    newer = writer(orders)
    producer.commit()
    assert seen(orders) == [(0, b"a")]
    with pytest.raises(ProducerFencedError):
        fill(producer, "late")
    fill(newer, "b")
    assert [value for _, value in seen(orders)] == [b"a", b"b"]


def test_a_begin_without_an_answer_can_be_aborted(orders: EmbeddedCluster) -> None:
    store = Silent(orders.store)
    producer = impatient(store)
    producer.init_transactions()
    for of in ("transactions/", "heads/"):
        producer.begin()
        producer.send("orders", "a", partition=0)
        store.of = of
        with pytest.raises(RetryableError, match="no answer from the store"):
            producer.flush()
        producer.abort()
    assert (uncommitted(orders), state(orders)) == ([], TransactionState.EMPTY)
    fill(producer, "b")
    assert [value for _, value in seen(orders)] == [b"b"]
