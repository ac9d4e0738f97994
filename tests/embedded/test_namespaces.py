"""Namespaces and topics (KIP-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import BlockedError, InvalidNamespaceError, UserError
from tests.embedded.samples import contents, read

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [listed.key for listed in store.list(prefix)]


def produce(cluster: EmbeddedCluster, topic: str, *values: str) -> None:
    with cluster.producer() as producer:
        for value in values:
            producer.send(topic, value, partition=0)


@pytest.mark.fact("F-K-001")
def test_creating_a_namespace_creates_every_tier(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("org:apache:kafka")
    assert cluster.namespaces() == ["org", "org:apache", "org:apache:kafka"]


def test_creating_a_namespace_again_is_harmless_and_with_other_configs_refused(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop", {"retention.ms": "7d"})
    cluster.create_namespace("shop", {"retention.ms": "604800000"})
    with pytest.raises(UserError, match="exists with other configs"):
        cluster.create_namespace("shop")


@pytest.mark.fact("F-K-009")
def test_listing_under_a_tier_gives_what_is_below_it(cluster: EmbeddedCluster) -> None:
    for name in ("shop:eu", "shop:us", "shopping"):
        cluster.create_namespace(name)
    assert cluster.namespaces("shop") == ["shop:eu", "shop:us"]
    assert cluster.namespaces("shop:eu") == []


@pytest.mark.fact("F-K-004")
@pytest.mark.parametrize("name", ["under_score", "a::b", ":a", "a:", "a b", "ä", "..", "x" * 65, "a:."])
def test_names_that_no_tier_can_have_are_refused(cluster: EmbeddedCluster, name: str) -> None:
    with pytest.raises(UserError, match="not a namespace"):
        cluster.create_namespace(name)
    assert cluster.namespaces() == []


def test_the_default_namespace_is_not_created(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="always exists"):
        cluster.create_namespace("")


@pytest.mark.fact("F-K-005")
@pytest.mark.parametrize("name", ["", "a/b", "a b", ".", "..", "x" * 250, "shop:a:", "shop:" + "x" * 245])
def test_names_that_no_topic_can_have_are_refused(cluster: EmbeddedCluster, name: str) -> None:
    cluster.create_namespace("shop:a")
    with pytest.raises(UserError):
        cluster.create_topic(name)
    assert dict(cluster.topics()) == {}


@pytest.mark.fact("F-K-002", "F-K-003")
def test_no_namespace_is_made_implicitly(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with pytest.raises(InvalidNamespaceError, match="namespace shop does not exist"):
        cluster.create_topic("shop:orders")
    with pytest.raises(InvalidNamespaceError):
        produce(cluster, "shop:orders", "x")
    with pytest.raises(InvalidNamespaceError):
        cluster.move_topic("orders", "shop:orders")
    with pytest.raises(InvalidNamespaceError):
        cluster.alter_namespace("shop", {"retention.ms": "1d"})
    assert cluster.namespaces() == []


@pytest.mark.fact("F-K-006")
def test_the_same_name_in_two_namespaces_is_two_topics(cluster: EmbeddedCluster) -> None:
    for namespace in ("eu", "us"):
        cluster.create_namespace(namespace)
        cluster.create_topic(f"{namespace}:orders", configs={"retention.ms": "1d" if namespace == "eu" else "2d"})
        produce(cluster, f"{namespace}:orders", namespace)
    assert contents(cluster.log("eu:orders")) == [(0, b"eu")]
    assert contents(cluster.log("us:orders")) == [(0, b"us")]
    assert cluster.effective_configs("eu:orders")["retention.ms"].value == "86400000"


@pytest.mark.fact("F-K-007", "F-K-008")
def test_files_lie_below_their_tiers(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_namespace("org:apache")
    for topic in ("org:apache:kafka", "plain"):
        cluster.create_topic(topic)
        produce(cluster, topic, "x")
    assert [key.rpartition("/")[0] for key in keys(store, "topics/")] == ["topics/org/apache/kafka_0", "topics/plain_0"]


@pytest.mark.fact("F-K-010")
def test_deleting_a_namespace_that_holds_namespaces_deletes_nothing(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop:eu")
    cluster.create_topic("shop:orders")
    with pytest.raises(BlockedError, match="holds namespaces: shop:eu"):
        cluster.delete_namespace("shop")
    assert cluster.namespaces() == ["shop", "shop:eu"]
    assert list(cluster.topics()) == ["shop:orders"]


@pytest.mark.fact("F-K-011")
def test_deleting_a_namespace_takes_its_topics_along(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_namespace("shop")
    for topic in ("shop:orders", "other"):
        cluster.create_topic(topic, partitions=2)
        produce(cluster, topic, "x")
    assert cluster.delete_namespace("shop")
    assert not cluster.delete_namespace("shop")
    assert list(cluster.topics()) == ["other"]
    assert [key.rpartition("/")[0] for key in keys(store, "topics/")] == ["topics/other_0"]
    assert len(keys(store, "heads/")) == 1


@pytest.mark.fact("F-K-012")
def test_a_recursive_delete_takes_everything_below(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_namespace("shop:eu:north")
    cluster.create_topic("shop:eu:north:orders")
    produce(cluster, "shop:eu:north:orders", "x")
    assert cluster.delete_namespace("shop", recursive=True)
    assert cluster.namespaces() == []
    assert keys(store, "topics/") == keys(store, "heads/") == []


@pytest.mark.fact("F-K-015")
def test_the_nearest_tier_wins_and_the_topic_over_all(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("a", {"retention.ms": "1d", "segment.ms": "1h", "cleanup.policy": "compact"})
    cluster.create_namespace("a:b", {"retention.ms": "2d"})
    cluster.create_topic("a:b:t", configs={"segment.ms": "2h"})
    effective = cluster.effective_configs("a:b:t")
    assert {key: (one.value, one.origin) for key, one in effective.items() if one.origin != "default"} == {
        "cleanup.policy": ("compact", "a"),
        "retention.ms": ("172800000", "a:b"),
        "segment.ms": ("7200000", "topic"),
    }
    assert (effective["max.message.bytes"].value, effective["max.message.bytes"].origin) == ("1048588", "default")


@pytest.mark.fact("F-K-016")
def test_a_namespace_change_reaches_every_topic_that_does_not_override_it(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop", {"retention.ms": "1d"})
    cluster.create_topic("shop:own", configs={"retention.ms": "9d"})
    cluster.create_topic("shop:heir")
    cluster.alter_namespace("shop", {"retention.ms": "2d"})
    values = {name: cluster.effective_configs(name)["retention.ms"].value for name in cluster.topics()}
    assert values == {"shop:heir": "172800000", "shop:own": "777600000"}


@pytest.mark.fact("F-K-017")
def test_an_override_that_is_removed_inherits_again(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop", {"retention.ms": "1d"})
    cluster.create_topic("shop:orders", configs={"retention.ms": "9d"})
    for reset in (None, "default"):
        cluster.alter_topic("shop:orders", {"retention.ms": "5d"})
        cluster.alter_topic("shop:orders", {"retention.ms": reset})
        assert cluster.effective_configs("shop:orders")["retention.ms"].origin == "shop"


def test_configs_are_kept_in_canonical_form_and_checked(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", configs={"retention.ms": "infinite", "cleanup.policy": "delete,compact"})
    assert cluster.topic("orders").configs == {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    with pytest.raises(UserError, match=r"there is no config 'retention\.mss'") as error:
        cluster.alter_topic("orders", {"retention.mss": "1"})
    assert "retention.ms" in error.value.hint
    with pytest.raises(UserError, match=r"retention\.ms: not a duration"):
        cluster.alter_topic("orders", {"retention.ms": "soon"})


@pytest.mark.fact("F-K-014")
def test_moving_a_topic_keeps_records_offsets_and_id(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_namespace("us")
    cluster.create_namespace("eu")
    cluster.create_topic("us:orders")
    produce(cluster, "us:orders", "a", "b")
    before, log = cluster.topic("us:orders"), cluster.log("us:orders")
    parts = keys(store, "topics/")
    cluster.move_topic("us:orders", "eu:orders")
    assert cluster.topic("eu:orders").id == before.id
    assert cluster.topic("eu:orders").origin == ("us:orders", cluster.cluster_id)
    assert keys(store, "topics/") == parts
    produce(cluster, "eu:orders", "c")
    assert contents(cluster.log("eu:orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.bounds()[0].end == 3
    with pytest.raises(UserError, match="us:orders does not exist"):
        cluster.log("us:orders")
    cluster.create_topic("us:orders")
    assert read(cluster.log("us:orders")) == []


def test_a_second_move_keeps_where_the_topic_was_made(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("first")
    cluster.move_topic("first", "second")
    cluster.move_topic("second", "third")
    cluster.move_topic("third", "third")
    assert cluster.topic("third").origin == ("first", cluster.cluster_id)


def test_partitions_only_grow(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.alter_topic("orders", partitions=4)
    assert sorted(cluster.log("orders").bounds()) == [0, 1, 2, 3]
    for fewer in (3, 0, -1):
        with pytest.raises(UserError):
            cluster.alter_topic("orders", partitions=fewer)
    with pytest.raises(UserError, match="100001 partitions"):
        cluster.create_topic("wide", partitions=100_001)


def test_a_deleted_topic_made_anew_is_empty_and_its_old_log_is_gone(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    produce(cluster, "orders", "old")
    old = cluster.log("orders")
    cluster.delete_topic("orders")
    assert not cluster.delete_topic("orders")
    cluster.create_topic("orders")
    assert read(cluster.log("orders")) == read(old) == []
    with pytest.raises(UserError, match="orders was deleted"):
        old.bounds()


def test_a_name_close_to_another_is_suggested(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with pytest.raises(UserError, match="ordrs does not exist") as error:
        cluster.topic("ordrs")
    assert error.value.hint == "Did you mean orders?"
