"""Transactional producers and what is to be seen of them, for the tests of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.clients.transactions import TransactionState, read_transaction
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import contents, ids

if TYPE_CHECKING:
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import Version

CHECKOUT = "checkout"


def writer(cluster: EmbeddedCluster, transactional_id: str = CHECKOUT) -> TransactionalProducer:
    producer = cluster.producer(transactional_id)
    producer.init_transactions()
    return producer


def opened(
    cluster: EmbeddedCluster, transactional_id: str, *contents: str, partition: int = 0
) -> TransactionalProducer:
    """Return a producer that has written something and is then heard of no more."""
    producer = writer(cluster, transactional_id)
    producer.begin()
    for content in contents:
        producer.send("orders", content, partition=partition)
    producer.flush()
    return producer


def fill(producer: TransactionalProducer, value: str, partition: int = 0) -> None:
    with producer.transaction():
        producer.send("orders", value, partition=partition)


def at(cluster: EmbeddedCluster, now_ms: int) -> EmbeddedCluster:
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
    found = cluster.log("orders").read_head(partition)
    assert found is not None
    return found


def state(cluster: EmbeddedCluster, transactional_id: str = CHECKOUT) -> TransactionState:
    found = read_transaction(cluster.store, transactional_id)
    assert found is not None
    return found[0].state


class Silent(LossyStore):
    """Gives no answer to the next swap of keys that begin with `of`, which lands."""

    of: str | None = None

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        version = self.inner.swap(key, body, expected=expected)
        if self.of is not None and key.startswith(self.of):
            self.of = None
            raise RetryableError("no answer from the store", hint="Run it again.")
        return version
