"""Quotas of namespaces: topics and partitions are held to within the commit that adds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import cluster_in
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """A cluster whose namespace `shop` may hold three topics and eight partitions, nested tiers included."""
    cluster = cluster_in(MemoryStore())
    cluster.create_namespace("shop", quotas=QuotaEntry(topics=3, partitions=8))
    cluster.create_namespace("shop:eu")
    return cluster


def test_a_namespace_holds_as_many_topics_as_it_may(cluster: EmbeddedCluster) -> None:
    for name in ("shop:a", "shop:eu:b", "shop:eu:c", "elsewhere"):
        cluster.create_topic(name)
    with pytest.raises(UserError, match="namespace shop may hold 3 topics: with shop:eu:d it would be 4") as error:
        cluster.create_topic("shop:eu:d")
    assert error.value.hint == "Raise quotas.topics of the namespace, or delete some; it holds 3 now."
    cluster.delete_topic("shop:a")
    cluster.create_topic("shop:eu:d")


def test_partitions_count_when_a_topic_is_made_and_when_it_grows(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("shop:a", partitions=5)
    with pytest.raises(UserError, match="may hold 8 partitions: with shop:b it would be 9"):
        cluster.create_topic("shop:b", partitions=4)
    cluster.create_topic("shop:b", partitions=2)
    with pytest.raises(UserError, match="may hold 8 partitions: with shop:a it would be 9"):
        cluster.alter_topic("shop:a", partitions=7)
    cluster.alter_topic("shop:a", {"segment.ms": "1h"}, partitions=6)
    cluster.alter_topic("shop:a", {"segment.ms": None})


def test_a_topic_that_moves_in_counts_and_one_that_moves_within_does_not(cluster: EmbeddedCluster) -> None:
    for name in ("shop:a", "shop:b", "shop:c", "d"):
        cluster.create_topic(name)
    cluster.move_topic("shop:a", "shop:eu:a")
    with pytest.raises(UserError, match="may hold 3 topics: with shop:eu:d it would be 4"):
        cluster.move_topic("d", "shop:eu:d")
    cluster.move_topic("shop:b", "b")
    cluster.move_topic("d", "shop:eu:d")


def test_every_tier_has_its_say(cluster: EmbeddedCluster) -> None:
    cluster.limit_namespace("shop:eu", QuotaEntry(topics=1))
    cluster.create_topic("shop:eu:a")
    with pytest.raises(UserError, match="namespace shop:eu may hold 1 topics"):
        cluster.create_topic("shop:eu:b")
    cluster.create_topic("shop:b")
    cluster.limit_namespace("shop:eu", None)
    cluster.create_topic("shop:eu:b")
    with pytest.raises(UserError, match="namespace shop may hold 3 topics"):
        cluster.create_topic("shop:eu:c")


def test_a_quota_below_what_is_there_deletes_nothing_and_lets_nothing_grow(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("shop:a", partitions=4)
    cluster.limit_namespace("shop", QuotaEntry(topics=0, partitions=1))
    cluster.alter_topic("shop:a", {"segment.ms": "1h"})
    cluster.move_topic("shop:a", "shop:eu:a")
    with pytest.raises(UserError, match="may hold 1 partitions"):
        cluster.alter_topic("shop:eu:a", partitions=5)
    cluster.limit_namespace("shop", QuotaEntry())
    assert cluster.catalog.read().namespaces["shop"].quotas is None
    cluster.alter_topic("shop:eu:a", partitions=5)
    with pytest.raises(InvalidNamespaceError):
        cluster.limit_namespace("nowhere", QuotaEntry(topics=1))


def test_holding_to_a_quota_asks_the_store_for_nothing(cluster: EmbeddedCluster) -> None:
    asked = []
    for name in ("shop:a", "free"):
        store = WatchedStore(cluster.store)
        watched = type(cluster).open(store, now_ms=cluster.now_ms, new_id=cluster._new_id)
        store.calls.clear()
        watched.create_topic(name)
        asked.append([what for what, _ in store.calls])
    assert asked[0] == asked[1]
