"""A writer goes on until its delivery time-out; what it says then is so. Parts that waited too long are put again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import LostRaceError, RetryableError, UserError
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import NOW, cluster_in, contents, ids
from tests.embedded.transacting import Silent, head, plain, seen
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import Version

HOUR = 3_600_000


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


class Refusing(LossyStore):
    """Refuses some swaps of heads, before they land."""

    def __init__(self, cluster: EmbeddedCluster, refuse: Callable[[str], None]) -> None:
        super().__init__(cluster.store)
        self.refuse = refuse

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key.startswith("heads/"):
            self.refuse(key)
        return self.inner.swap(key, body, expected=expected)


def lose(key: str) -> None:
    raise LostRaceError(key, None, hint="Read it again.")


def fail(_key: str) -> None:
    raise RetryableError("the store is busy", hint="Run it again.")


# -- time-outs


def test_who_always_loses_gives_up_and_says_that_nothing_was_written(orders: EmbeddedCluster) -> None:
    producer = cluster_in(Refusing(orders, lose)).producer(delivery_timeout_ms=0)
    producer.send("orders", "a", partition=0)
    with pytest.raises(
        RetryableError, match=r"the append to orders, partition 0 was given up.*nothing of it was written"
    ):
        producer.flush()
    assert seen(orders) == []


def test_who_gets_no_answer_gives_up_and_says_that_it_may_be_written(orders: EmbeddedCluster) -> None:
    producer = cluster_in(Refusing(orders, fail)).producer(delivery_timeout_ms=1)
    producer.send("orders", "a", partition=0)
    with pytest.raises(RetryableError, match="the store is busy; it may have been written or not"):
        producer.flush()


def test_a_store_that_is_busy_for_a_while_is_tried_again(orders: EmbeddedCluster) -> None:
    refusals = [fail, lose, fail, fail]
    producer = cluster_in(Refusing(orders, lambda key: refusals.pop()(key) if refusals else None)).producer()
    producer.send("orders", "a", partition=0)
    producer.flush()
    assert (refusals, seen(orders)) == ([], [(0, b"a")])


@pytest.mark.parametrize("has_landed", [True, False])
def test_after_a_failed_flush_new_records_are_taken_be_the_old_there_or_not(
    orders: EmbeddedCluster, *, has_landed: bool
) -> None:
    refusals = [fail]
    store = (
        Silent(orders.store) if has_landed else Refusing(orders, lambda key: refusals.pop()(key) if refusals else None)
    )
    producer = cluster_in(store).producer(delivery_timeout_ms=0)
    if isinstance(store, Silent):
        store.of = "heads/"
    producer.send("orders", "a", partition=0)
    with pytest.raises(RetryableError):
        producer.flush()
    for value in "bc":
        producer.send("orders", value, partition=0)
        producer.flush()
    assert [value for _, value in seen(orders)] == ([b"a"] if has_landed else []) + [b"b", b"c"]


def test_a_topic_that_refuses_takes_its_records_alone_with_it(orders: EmbeddedCluster) -> None:
    orders.create_topic("small", configs={"max.message.bytes": "5"})
    producer = orders.producer()
    producer.send("orders", "before", partition=0)
    producer.send("small", "too large")
    producer.send("zebras", "nowhere")
    for said in ("MESSAGE_TOO_LARGE", "zebras does not exist"):
        with pytest.raises(UserError, match=said):
            producer.flush()
        assert list(orders.store.list("topics/")) == []
    producer.flush()
    assert seen(orders) == [(0, b"before")]


# -- parts that wait


class Sleepy(WatchedStore):
    """Its user sleeps, once, after it has put a part."""

    def __init__(self, cluster: EmbeddedCluster, ms: int, meanwhile: Callable[[str], None] = lambda _key: None) -> None:
        super().__init__(cluster.store, after=self._sleep)
        self.now_ms = NOW
        self._ms = ms
        self._meanwhile = meanwhile

    def _sleep(self, what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/") and self.now_ms == NOW:
            self.now_ms += self._ms
            self._meanwhile(key)


def awake(store: Sleepy) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=lambda: store.now_ms, new_id=ids())


@pytest.mark.parametrize(("ms", "is_put_again"), [(HOUR, False), (HOUR + 1, True)])
def test_parts_older_than_an_hour_are_put_again_under_new_names(
    orders: EmbeddedCluster, ms: int, *, is_put_again: bool
) -> None:
    plain(orders, "first")
    store = Sleepy(orders, ms)
    plain(awake(store), "a", "b")
    assert seen(orders) == [(0, b"first"), (1, b"a"), (2, b"b")]
    assert store.count("copy_in", "topics/") == int(is_put_again)
    put = next(key for what, key in store.calls if what == "put")
    assert (put in {entry.key for entry in head(orders).entries}) is not is_put_again


def test_parts_that_were_swept_meanwhile_are_said_and_nothing_is_written(orders: EmbeddedCluster) -> None:
    store = Sleepy(orders, 30 * HOUR, lambda key: orders.store.delete([key]))
    with pytest.raises(UserError, match="waited so long that its parts were swept; nothing of it was written"):
        plain(awake(store), "a")
    assert contents(orders.log("orders")) == []
