"""Transactions: what is committed is readable as one, what is aborted never, and an old producer is fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.finishing import read_transaction
from reconciler.embedded.head import Head
from reconciler.embedded.transactionstate import State
from reconciler.records.log import OffsetRange
from tests.embedded.samples import contents, ids, values

if TYPE_CHECKING:

    from reconciler.embedded.transactional import TransactionalProducer

CHECKOUT = "checkout"


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


def writer(cluster: EmbeddedCluster, transactional_id: str = CHECKOUT) -> TransactionalProducer:
    producer = cluster.producer(transactional_id)
    producer.init_transactions()
    return producer


def at(cluster: EmbeddedCluster, now_ms: int) -> EmbeddedCluster:
    """Return the same cluster at another time."""
    return EmbeddedCluster.open(cluster.store, now_ms=lambda: now_ms, new_id=ids())


def plain(cluster: EmbeddedCluster, *contents: str, partition: int = 0, topic: str = "orders") -> None:
    with cluster.producer() as producer:
        for content in contents:
            producer.send(topic, content, partition=partition)


def seen(cluster: EmbeddedCluster, partition: int = 0, topic: str = "orders") -> list[tuple[int, bytes | None]]:
    return contents(cluster.log(topic), partition)


def uncommitted(cluster: EmbeddedCluster, partition: int = 0) -> list[tuple[int, bytes | None]]:
    return contents(cluster.log("orders", isolation="read_uncommitted"), partition)


def head(cluster: EmbeddedCluster, partition: int = 0) -> Head:
    found = cluster.log("orders").head(partition)
    assert found is not None
    return found


def state(cluster: EmbeddedCluster, transactional_id: str = CHECKOUT) -> State:
    found = read_transaction(cluster.store, transactional_id)
    assert found is not None
    return found[0].state


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
    assert state(orders) is State.EMPTY


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
    bounds = orders.log("orders").bounds()[0]
    assert (bounds.stable, bounds.end) == (1, 3)
    assert seen(orders) == [(0, b"a")]
    assert uncommitted(orders) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [record.value for record in orders.consume("orders", isolation="read_uncommitted")] == [b"a", b"b", b"c"]
    assert sum(map(len, orders.consumer("readers", topics=["orders"]).poll())) == 1
    assert sum(map(len, orders.consumer(topics=["orders"], isolation="read_uncommitted").poll())) == 3
    producer.commit()
    assert seen(orders) == [(0, b"a"), (1, b"b"), (2, b"c")]
