"""Links and mirrors: made, copied verbatim, following their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.catalog.model import MigrantEntry, MigrationEntry
from reconciler.embedded.catalog.topics import alter_topic
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirror_link import ALWAYS_SYNCED, NEVER_SYNCED
from reconciler.resources.mirrors import LinkEntry, SourceTopic
from tests.embedded.links.linked import LINK, ORDERS, Linked, mirrored
from tests.embedded.maintenance.tiny_segments import TWO_PARTS
from tests.embedded.mounts.shared_bucket import Bucket
from tests.embedded.samples import NOW, cluster_in, numbered, read
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    from reconciler.embedded.clients.topic_log import EmbeddedSink
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


PLAIN_LINK = LinkEntry("link-1", "west")


@pytest.fixture
def west() -> EmbeddedCluster:
    west = cluster_in(MemoryStore(), now_ms=NOW - 1)
    west.create_topic("orders", partitions=2, configs={"retention.ms": "-1", "segment.bytes": "1MiB"})
    return west


@pytest.fixture
def sink(cluster: EmbeddedCluster, west: EmbeddedCluster) -> EmbeddedSink:
    cluster.create_link("from-west", PLAIN_LINK)
    cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), west.source_topic("orders"))
    return cluster.sink("orders")


def publish(sink: EmbeddedSink, start: int, count: int) -> None:
    at = OffsetRange(start, start + count)
    assert sink.publish([sink.stage(0, [numbered(start, count)], at=at)]) == {0: at}


def bodies(cluster: EmbeddedCluster, partition: int = 0) -> list[bytes]:
    log = cluster.log("orders")
    head = log.read_head(partition)
    assert head is not None
    found = [cluster.store.get(entry.key) for entry in log.iter_local_entries(head, OffsetRange(0, 1 << 40))]
    return [stored.body for stored in found if stored is not None]


def test_a_name_that_a_planned_mount_needs_is_no_mirrors(cluster: EmbeddedCluster, west: EmbeddedCluster) -> None:
    cluster.create_link("from-west", PLAIN_LINK)
    coming = MigrationEntry("inbound", "planned", (MigrantEntry("orders", "its-id", "orders/theirs/1"),), "claim", NOW)
    cluster.catalog.commit(lambda draft: draft.put_migration(7, coming))
    with pytest.raises(UserError, match="topic orders is being mounted by migration 7"):
        cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), west.source_topic("orders"))
    assert "orders" not in cluster.catalog.read().topics


def test_whole_parts_are_copied_verbatim_and_only_ragged_ends_are_decoded(
    west: EmbeddedCluster, cluster: EmbeddedCluster, sink: EmbeddedSink
) -> None:
    for start in (0, 4, 8):
        publish(west.sink("orders"), start, 4)
    for at in (OffsetRange(0, 8), OffsetRange(8, 10), OffsetRange(10, 12)):
        sink.publish([sink.stage_copy(0, west.log("orders"), at)])
    assert read(cluster.log("orders")) == read(west.log("orders")) == numbered(0, 12).to_pylist()
    copied = bodies(cluster)
    assert copied[:2] == bodies(west)[:2]
    assert len(copied) == 4


def test_a_copy_is_the_destinations_own(west: EmbeddedCluster, cluster: EmbeddedCluster, sink: EmbeddedSink) -> None:
    publish(west.sink("orders"), 0, 4)
    sink.publish([sink.stage_copy(0, west.log("orders"), OffsetRange(0, 4))])
    west.delete_topic("orders")
    assert read(cluster.log("orders")) == numbered(0, 4).to_pylist()


def test_following_grows_and_syncs_and_leaves_own_configs_alone(
    west: EmbeddedCluster, cluster: EmbeddedCluster, sink: EmbeddedSink
) -> None:
    assert sink.read_ends() == {0: 0, 1: 0}
    cluster.alter_topic("orders", {"segment.ms": "1h"})
    west.alter_topic("orders", {"retention.ms": None, "cleanup.policy": "compact"}, partitions=5)
    before = cluster.catalog.read().serial
    for _ in range(2):
        cluster.update_mirror("orders", west.source_topic("orders"))
    assert cluster.catalog.read().serial == before + 1
    assert cluster.topic("orders").partitions == 5
    assert cluster.topic("orders").configs == {"cleanup.policy": "compact", "segment.ms": "3600000"}


def test_what_follows_the_source_is_not_set_on_the_mirror(cluster: EmbeddedCluster, sink: EmbeddedSink) -> None:
    assert sink.read_ends() != {}
    with pytest.raises(UserError, match=r"mirror orders follows its source in retention\.ms"):
        cluster.alter_topic("orders", {"retention.ms": "1d", "segment.ms": "1h"})
    with pytest.raises(UserError, match="follows its source in partitions"):
        cluster.alter_topic("orders", partitions=9)


def test_only_mirrors_follow(west: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="is not a mirror"):
        west.update_mirror("orders", SourceTopic(partitions=3))


def test_a_link_made_anew_does_not_write_what_the_old_one_did(
    store: ObjectStore, cluster: EmbeddedCluster, west: EmbeddedCluster, sink: EmbeddedSink
) -> None:
    publish(west.sink("orders"), 0, 2)
    publish(sink, 0, 2)
    cluster.delete_topic("orders")
    cluster.delete_link("from-west")
    cluster.create_link("from-west", LinkEntry("link-2", "west"))
    cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), west.source_topic("orders"))
    with pytest.raises(UserError, match="orders was deleted"):
        sink.publish([sink.stage(0, [numbered(2, 1)], at=OffsetRange(2, 3))])
    assert list(store.list("heads/")) == []


def test_mirrors_and_moves_are_read_back_by_others(store: ObjectStore, sink: EmbeddedSink) -> None:
    assert sink.read_ends() != {}
    cluster = cluster_in(store)
    cluster.create_topic("first", configs={"retention.ms": "1d"})
    cluster.move_topic("first", "second")
    assert dict(cluster_in(store).topics()) == dict(cluster.topics())


# Making mirrors: what they are called, which configs they have, and what is refused.


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": TWO_PARTS}
FAN = {"mode": "destination"}
ALWAYS = {
    "cleanup.policy": "compact",
    "max.message.bytes": "12345",
    "message.timestamp.difference.max.ms": "9000",
    "message.timestamp.type": "CreateTime",
}


def configs(linked: Linked, cluster: str, name: str = ORDERS) -> dict[str, str]:
    """Return what holds for a topic, defaults left out."""
    return dict(linked.cluster(cluster).source_topic(name).configs)


@pytest.mark.fact("F-C-005")
def test_no_mirror_is_made_without_a_link_or_a_source_topic() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1)
    with pytest.raises(UserError, match=f"link {LINK} does not exist"):
        linked.mirror("east", "west")
    linked.link("east", "west")
    with pytest.raises(UserError, match="topic shop:nowhere does not exist"):
        linked.mirror("east", "west", "shop:nowhere")
    assert dict(linked.east.topics()) == {}


@pytest.mark.fact("F-C-006")
def test_without_a_prefix_a_mirror_is_called_as_its_source() -> None:
    linked = mirrored()
    linked.west.create_topic("shop:clicks", partitions=1)
    with pytest.raises(UserError, match="a mirror of shop:clicks over link dr is called shop:clicks, and not shop:c"):
        linked.mirror("east", "west", "shop:clicks", name="shop:c")
    assert list(linked.east.topics()) == [ORDERS]


@pytest.mark.fact("F-C-007")
@pytest.mark.parametrize("name", ["shop:orders", "west.shop:orders", "shop:orderswest.", "west.orders"])
def test_with_a_prefix_it_goes_before_the_topic_s_own_name_and_nothing_else_is_taken(name: str) -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1)
    linked.link("east", "west", prefix="west.", **FAN)
    with pytest.raises(UserError, match=r"is called shop:west\.orders, and not"):
        linked.mirror("east", "west", name=name)
    linked.mirror("east", "west", name="shop:west.orders")
    assert list(linked.east.topics()) == ["shop:west.orders"]


@pytest.mark.fact("F-C-034")
def test_links_with_prefixes_mirror_topics_of_one_name_side_by_side() -> None:
    linked = Linked()
    for source in ("us", "eu"):
        linked.cluster(source).create_topic("shop:clicks", partitions=1)
        linked.produce(source, f"of {source}", full_name="shop:clicks")
        linked.link("east", source, name=f"from-{source}", prefix=f"{source}_", **FAN)
        linked.mirror("east", source, "shop:clicks", f"from-{source}", name=f"shop:{source}_clicks")
        linked.catch_up("east", f"shop:{source}_clicks")
    found = {name: linked.read("east", name) for name in sorted(linked.east.topics())}
    assert found == {"shop:eu_clicks": [(0, "of eu")], "shop:us_clicks": [(0, "of us")]}


@pytest.mark.fact("F-C-052")
@pytest.mark.parametrize("left_out", ALWAYS_SYNCED)
def test_a_list_without_what_is_always_synced_is_refused(left_out: str) -> None:
    include = [key for key in (*ALWAYS_SYNCED, "retention.ms") if key != left_out]
    with pytest.raises(ValueError, match=left_out.replace(".", r"\.")):
        mirrored(topicConfigSync={"include": include})


@pytest.mark.fact("F-C-053")
def test_what_is_never_synced_is_refused_in_the_list_and_stays_the_destination_s() -> None:
    for key in NEVER_SYNCED:
        with pytest.raises(ValueError, match="never synced"):
            mirrored(topicConfigSync={"include": [*ALWAYS_SYNCED, key]})
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1, configs={"min.insync.replicas": "2"})
    linked.west.catalog.commit(lambda draft: alter_topic(draft, ORDERS, {}, replication_factor=3))
    linked.link("east", "west")
    linked.mirror("east", "west")
    linked.catch_up("east")
    assert linked.west.topic(ORDERS).replication_factor == 3
    assert linked.east.topic(ORDERS).replication_factor == 1
    assert configs(linked, "east") == {}


@pytest.mark.fact("F-C-026")
def test_a_mirror_made_by_hand_has_configs_of_its_own() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=1, configs={"segment.ms": "2h"})
    linked.link("east", "west", autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    shape = MirrorShape(link=LINK, source=ORDERS, configs={"segment.ms": "1h"})
    linked.east.create_mirror(ORDERS, shape, linked.west.source_topic(ORDERS))
    linked.catch_up("east")
    assert configs(linked, "east")["segment.ms"] == "3600000"


@pytest.mark.fact("F-C-012")
def test_a_bidirectional_link_has_two_halves_and_a_topic_goes_one_way() -> None:
    linked = mirrored()
    halves = [linked.provider(name).links.list_links()[0] for name in ("west", "east")]
    assert [(half.name, half.declared.spec.source) for half in halves] == [(LINK, "east"), (LINK, "west")]
    assert halves[0].id != halves[1].id
    with pytest.raises(UserError, match="exists"):
        linked.mirror("west", "east")
    linked.east.create_topic("shop:refunds", partitions=1)
    linked.mirror("west", "east", "shop:refunds")
    linked.produce("east", "back", full_name="shop:refunds")
    linked.catch_up("west", "shop:refunds")
    assert linked.read("west", "shop:refunds") == [(0, "back")]


@pytest.mark.fact("F-C-095")
def test_failing_one_over_leaves_the_links_of_chains_and_fans_as_they_are() -> None:
    linked = mirrored(mode="destination")
    linked.link("south", "west", name="fan", **FAN)
    linked.link("north", "east", name="chain", **FAN)
    for cluster, source, link in (("south", "west", "fan"), ("north", "east", "chain")):
        linked.mirror(cluster, source, link=link)
        linked.catch_up(cluster)
        assert linked.read(cluster) == linked.read("west")
    before = {name: linked.provider(name).links.list_links() for name in ("south", "north")}

    linked.provider("east").links.request_verb(ORDERS, "failover")
    linked.produce("west", "of west")
    linked.produce("east", "of east")
    for cluster in ("south", "north"):
        linked.catch_up(cluster)
        assert linked.status(cluster) == "ACTIVE"
    assert linked.read("south") == linked.read("west")
    assert linked.read("north") == linked.read("east")
    assert {name: linked.provider(name).links.list_links() for name in before} == before


# Mirrors on a cluster with object storage: tiered where their own cluster says so, whatever their source is.


def test_a_mirror_in_a_tiered_namespace_is_tiered_like_any_topic_there() -> None:
    bucket = Bucket()
    bucket.west.create_topic("shop:eu:clicks")
    east = bucket.east
    east.alter_namespace("shop:eu", BOTH)
    east.create_link("from-west", LinkEntry("link-1", "west"))
    of = bucket.west.source_topic("shop:eu:clicks")
    east.create_mirror("shop:eu:clicks", MirrorShape(link="from-west", source="shop:eu:clicks"), of)
    tiering = east.topic("shop:eu:clicks").tiering
    assert tiering is not None
    assert tiering.state == "ENABLED"
