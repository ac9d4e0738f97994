"""Transactions decided while a migration has a topic: what was never written to is fenced, whoever holds the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.clients.transactions import TransactionState
from reconciler.embedded.cluster import EmbeddedCluster
from tests.embedded.clients.transactional_producers import CHECKOUT, state, writer
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.samples import ids
from tests.embedded.stores import DiedError, WatchedStore
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer


def is_second(what: str, key: str) -> bool:
    """Tell whether a write would make the head of the second partition."""
    return what == "swap" and key.startswith("heads/") and key.endswith("00001.json")


def deaf(what: str, key: str) -> None:
    """Let nothing through of the second partition: the transaction has it, and no head was ever made."""
    if is_second(what, key):
        raise DiedError


@pytest.fixture
def bucket() -> Bucket:
    bucket = Bucket()
    bucket.west.create_topic(CLICKS, partitions=2, configs=BOTH)
    return bucket


def begun(bucket: Bucket) -> TransactionalProducer:
    """Return a producer whose transaction has both partitions, and a head of the first only."""
    producer = writer(through(bucket, deaf))
    producer.begin()
    producer.send(CLICKS, b"open", partition=0)
    producer.flush()
    producer.send(CLICKS, b"never acknowledged", partition=1)
    with pytest.raises(DiedError):
        producer.flush()
    assert bucket.west.log(CLICKS).read_head(1) is None
    return producer


def through(bucket: Bucket, before: Callable[[str, str], None]) -> EmbeddedCluster:
    store = WatchedStore(bucket.stores["west"], before=before)
    return EmbeddedCluster.open(store, now_ms=bucket.clock, new_id=ids(), storage=bucket.storage)


class Meanwhile:
    """Does something right before the head of the second partition is made."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.do: Callable[[], object] | None = do

    def __call__(self, what: str, key: str) -> None:
        if is_second(what, key) and self.do is not None:
            do, self.do = self.do, None
            do()


def closed(bucket: Bucket) -> int:
    """Bring an unmount to `executing`, and do nothing of its work."""
    mounts = bucket.west.mounts
    number = mounts.unmount(CLICKS, is_automatic=False)
    mounts.ask(number, "prepare")
    mounts.drive(number)
    mounts.ask(number, "execute")
    return number


@pytest.mark.fact("F-R-108")
def test_an_unmount_aborts_a_transaction_that_never_wrote_to_one_of_its_partitions(bucket: Bucket) -> None:
    begun(bucket)
    location = bucket.unmounted()
    assert state(bucket.west, CHECKOUT) is TransactionState.EMPTY
    bucket.mounted(location)
    assert bucket.values(cluster="east") == []


def test_run_finishes_a_transaction_on_a_closed_topic(bucket: Bucket) -> None:
    begun(bucket)
    number = closed(bucket)
    bucket.clock.now_ms += 24 * 3_600_000
    assert bucket.west.finish_transactions() == 1
    assert state(bucket.west, CHECKOUT) is TransactionState.EMPTY
    bucket.west.mounts.cancel(number)
    with bucket.west.producer() as producer:
        producer.send(CLICKS, b"again", partition=1)
    assert [value for _, _, value in bucket.values()] == [b"again"]


def test_a_topic_that_is_closed_while_it_is_fenced_fails_nothing(bucket: Bucket) -> None:
    begun(bucket)
    bucket.clock.now_ms += 24 * 3_600_000
    meanwhile = Meanwhile(lambda: closed(bucket))
    assert through(bucket, meanwhile).finish_transactions() == 1
    assert meanwhile.do is None
    assert state(bucket.west, CHECKOUT) is TransactionState.EMPTY


def test_a_topic_that_is_open_again_while_it_is_fenced_fails_nothing(bucket: Bucket) -> None:
    begun(bucket)
    number = closed(bucket)
    bucket.clock.now_ms += 24 * 3_600_000
    meanwhile = Meanwhile(lambda: bucket.west.mounts.cancel(number))
    assert through(bucket, meanwhile).finish_transactions() == 1
    assert meanwhile.do is None
    assert state(bucket.west, CHECKOUT) is TransactionState.EMPTY
    with bucket.west.producer() as producer:
        producer.send(CLICKS, b"again", partition=1)
    assert [value for _, _, value in bucket.values()] == [b"again"]
