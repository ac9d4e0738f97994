"""Namespaces and topics (KIP-37)."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.topics import delete_namespace
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


@pytest.mark.fact("F-K-004")
def test_a_tier_is_of_letters_digits_dots_and_hyphens_and_of_nothing_else(cluster: EmbeddedCluster) -> None:
    allowed = {*string.ascii_letters, *string.digits, ".", "-"}
    refused = []
    for character in map(chr, range(128)):
        try:
            cluster.create_namespace(f"a{character}b")
        except UserError:
            refused.append(character)
    assert set(refused) == {*map(chr, range(128))} - allowed - {":"}
    assert {tier for name in cluster.namespaces() for tier in name.split(":")} == {
        *(f"a{character}b" for character in allowed),
        "a",
        "b",
    }


@pytest.mark.fact("F-K-004", "F-K-005")
def test_names_may_be_as_long_as_they_may_be(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    deep = ":".join(["x" * 64, "y" * 64, "z" * 64])
    cluster.create_namespace(deep)
    longest = f"{deep}:{'t' * (249 - len(deep) - 1)}"
    cluster.create_topic(longest)
    produce(cluster, longest, "a")
    assert contents(cluster.log(longest)) == [(0, b"a")]
    assert len(keys(store, "topics/x")) == 1
    with pytest.raises(UserError, match="longer than 249 characters"):
        cluster.create_topic(f"{longest}t")
    cluster.create_topic("t" * 249)
    assert len(cluster.topics()) == 2


@pytest.mark.fact("F-K-009")
def test_listing_under_a_tier_gives_what_is_below_it(cluster: EmbeddedCluster) -> None:
    for name in ("shop:eu", "shop:us", "shopping"):
        cluster.create_namespace(name)
    assert cluster.namespaces("shop") == ["shop:eu", "shop:us"]
    assert cluster.namespaces("shop:eu") == []


@pytest.mark.fact("F-K-004")
@pytest.mark.parametrize(
    "name", ["a::b", ":a", "a:", "ä", "é", "名", "a\u200bb", "..", "x" * 65, "a:.", "a:..:b", "a\n"]
)
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


@pytest.mark.fact("F-K-008")
def test_what_a_topic_wrote_before_it_moved_stays_where_it_was(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    for namespace in ("org:apache", "org:asf"):
        cluster.create_namespace(namespace)
    cluster.create_topic("org:apache:kafka")
    produce(cluster, "org:apache:kafka", "x")
    before = keys(store, "topics/")
    cluster.move_topic("org:apache:kafka", "org:asf:kafka")
    produce(cluster, "org:asf:kafka", "y")
    (after,) = set(keys(store, "topics/")) - set(before)
    assert after.startswith("topics/org/asf/kafka_0/")
    assert contents(cluster.log("org:asf:kafka")) == [(0, b"x"), (1, b"y")]


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


@pytest.mark.fact("F-K-013")
def test_what_is_deleted_is_marked_in_one_commit_and_finished_by_whoever_comes_next(
    cluster: EmbeddedCluster, store: ObjectStore
) -> None:
    cluster.create_namespace("shop:eu")
    for name in ("shop:orders", "shop:eu:refunds"):
        cluster.create_topic(name, partitions=2)
        produce(cluster, name, "old")
    serial = cluster.catalog.read().serial
    cluster.catalog.commit(lambda draft: delete_namespace(draft, "shop", cluster_id="", recursive=True))
    catalog = cluster.catalog.read()
    assert (catalog.serial, dict(catalog.namespaces), dict(catalog.topics)) == (serial + 1, {}, {})
    assert sorted(entry.name for entry in catalog.deletions.values()) == ["shop:eu:refunds", "shop:orders"]
    assert len(keys(store, "topics/")) == 2
    cluster.create_namespace("shop:eu")
    cluster.create_topic("shop:orders", partitions=2)
    produce(cluster, "shop:orders", "new")
    assert cluster.finish_deletions() == 2
    assert cluster.finish_deletions() == 0
    assert len(keys(store, "topics/")) == len(keys(store, "heads/")) == 1
    assert contents(cluster.log("shop:orders")) == [(0, b"new")]
    assert not cluster.delete_namespace("gone")


@pytest.mark.fact("F-K-023")
def test_deletions_and_configs_are_those_of_one_namespace(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    for namespace in ("eu", "us", ""):
        if namespace:
            cluster.create_namespace(namespace, {"segment.ms": "1h" if namespace == "eu" else "2h"})
        name = f"{namespace}:orders".removeprefix(":")
        cluster.create_topic(name)
        produce(cluster, name, "a")
    cluster.alter_namespace("eu", {"segment.ms": "3h"})
    assert {name: cluster.effective_configs(name)["segment.ms"].value for name in cluster.topics()} == {
        "eu:orders": "10800000",
        "us:orders": "7200000",
        "orders": "604800000",
    }
    cluster.delete_topic("eu:orders")
    assert [key.rpartition("/")[0] for key in keys(store, "topics/")] == ["topics/orders_0", "topics/us/orders_0"]
    assert contents(cluster.log("us:orders")) == contents(cluster.log("orders")) == [(0, b"a")]


@pytest.mark.fact("F-K-007", "F-K-022")
def test_without_a_namespace_everything_is_as_if_there_were_none(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_namespace("shop", {"retention.ms": "1d"})
    cluster.create_topic("orders", configs={"segment.ms": "1h"})
    produce(cluster, "orders", "a")
    cluster.alter_topic("orders", {"segment.ms": "2h"}, partitions=2)
    assert cluster.effective_configs("orders")["retention.ms"].origin == "default"
    assert [key.rpartition("/")[0] for key in keys(store, "topics/")] == ["topics/orders_0"]
    cluster.move_topic("orders", "shop:orders")
    cluster.move_topic("shop:orders", "purchases")
    assert contents(cluster.log("purchases")) == [(0, b"a")]
    assert cluster.namespaces() == cluster.namespaces("") == ["shop"]
    assert cluster.delete_topic("purchases")


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


@pytest.mark.fact("F-K-015")
def test_a_tier_that_no_longer_says_something_lets_the_one_above_speak(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("a", {"retention.ms": "1d"})
    cluster.create_namespace("a:b", {"retention.ms": "2d"})
    cluster.create_topic("a:b:t")
    found = []
    for tier in (None, "a:b", "a"):
        if tier:
            cluster.alter_namespace(tier, {"retention.ms": None})
        effective = cluster.effective_configs("a:b:t")["retention.ms"]
        found.append((effective.value, effective.origin))
    assert found == [("172800000", "a:b"), ("86400000", "a"), ("604800000", "default")]


@pytest.mark.fact("F-K-015")
def test_below_all_tiers_a_property_of_the_cluster_is_the_default(cluster: EmbeddedCluster) -> None:
    cluster.alter_cluster({"log_retention_ms": "5000", "retention_local_target_ms_default": "4000"})
    cluster.create_namespace("a")
    cluster.create_topic("a:t", configs={"retention.ms": "9000"})
    found = []
    for change in (
        lambda: cluster.alter_namespace("a", {"retention.ms": "7000"}),
        lambda: cluster.alter_topic("a:t", {"retention.ms": None}),
        lambda: cluster.alter_namespace("a", {"retention.ms": None}),
    ):
        change()
        effective = cluster.effective_configs("a:t")["retention.ms"]
        found.append((effective.value, effective.origin))
    assert found == [("9000", "topic"), ("7000", "a"), ("5000", "cluster")]
    local = cluster.effective_configs("a:t")["retention.local.target.ms"]
    assert (local.value, local.origin) == ("4000", "cluster")


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
    assert log.read_bounds()[0].end == 3
    with pytest.raises(UserError, match="us:orders does not exist"):
        cluster.log("us:orders")
    cluster.create_topic("us:orders")
    assert read(cluster.log("us:orders")) == []


@pytest.mark.fact("F-K-014")
def test_moving_a_topic_keeps_where_its_groups_are(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("eu")
    cluster.create_topic("orders")
    produce(cluster, "orders", *"abc")
    cluster.groups.commit("checkout", {("orders", 0): 2})
    cluster.move_topic("orders", "eu:orders")
    (row,) = cluster.groups.describe("checkout").offsets
    assert (row.topic, row.partition, row.committed, row.lag) == ("eu:orders", 0, 2, 1)


def test_a_second_move_keeps_where_the_topic_was_made(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("first")
    cluster.move_topic("first", "second")
    cluster.move_topic("second", "third")
    cluster.move_topic("third", "third")
    assert cluster.topic("third").origin == ("first", cluster.cluster_id)


def test_partitions_only_grow(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.alter_topic("orders", partitions=4)
    assert sorted(cluster.log("orders").read_bounds()) == [0, 1, 2, 3]
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
    assert read(cluster.log("orders")) == []
    for look in (old.read_bounds, lambda: read(old)):
        with pytest.raises(UserError, match="orders was deleted or unmounted"):
            look()


def test_a_name_close_to_another_is_suggested(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with pytest.raises(UserError, match="ordrs does not exist") as error:
        cluster.topic("ordrs")
    assert error.value.hint == "Did you mean orders?"
