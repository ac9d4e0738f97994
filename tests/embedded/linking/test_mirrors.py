"""Links and mirrors: made, copied verbatim, following their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.errors import BlockedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import LinkEntry, SourceTopic
from tests.embedded.samples import NOW, cluster_in, numbered, read

if TYPE_CHECKING:
    from reconciler.embedded.clients.topic_sink import EmbeddedSink
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

LINK = LinkEntry("link-1", "west")


@pytest.fixture
def west() -> EmbeddedCluster:
    west = cluster_in(MemoryStore(), now_ms=NOW - 1)
    west.create_topic("orders", partitions=2, configs={"retention.ms": "-1", "segment.bytes": "1MiB"})
    return west


@pytest.fixture
def sink(cluster: EmbeddedCluster, west: EmbeddedCluster) -> EmbeddedSink:
    cluster.create_link("from-west", LINK)
    cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), west.source_topic("orders"))
    return cluster.sink("orders")


def publish(sink: EmbeddedSink, start: int, count: int) -> None:
    at = OffsetRange(start, start + count)
    assert sink.publish([sink.stage(0, [numbered(start, count)], at=at)]) == {0: at}


def bodies(cluster: EmbeddedCluster, partition: int = 0) -> list[bytes]:
    log = cluster.log("orders")
    head = log.head(partition)
    assert head is not None
    found = [cluster.store.get(entry.key) for entry in log.entries(head, OffsetRange(0, 1 << 40))]
    return [stored.body for stored in found if stored is not None]


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


def test_a_mirror_has_the_configs_and_partitions_of_its_source(cluster: EmbeddedCluster, sink: EmbeddedSink) -> None:
    entry = cluster.topic("orders")
    assert sink.ends() == {0: 0, 1: 0}
    assert entry.partitions == 2
    assert entry.mirror is not None
    assert entry.mirror.source_topic_id is not None
    assert entry.configs == {"retention.ms": "-1"}


def test_following_grows_and_syncs_and_leaves_own_configs_alone(
    west: EmbeddedCluster, cluster: EmbeddedCluster, sink: EmbeddedSink
) -> None:
    assert sink.ends() == {0: 0, 1: 0}
    cluster.alter_topic("orders", {"segment.ms": "1h"})
    west.alter_topic("orders", {"retention.ms": None, "cleanup.policy": "compact"}, partitions=5)
    before = cluster.catalog.read().serial
    for _ in range(2):
        cluster.follow_source("orders", west.source_topic("orders"))
    assert cluster.catalog.read().serial == before + 1
    assert cluster.topic("orders").partitions == 5
    assert cluster.topic("orders").configs == {"cleanup.policy": "compact", "segment.ms": "3600000"}


def test_what_follows_the_source_is_not_set_on_the_mirror(cluster: EmbeddedCluster, sink: EmbeddedSink) -> None:
    assert sink.ends() != {}
    with pytest.raises(UserError, match=r"mirror orders follows its source in retention\.ms"):
        cluster.alter_topic("orders", {"retention.ms": "1d", "segment.ms": "1h"})
    with pytest.raises(UserError, match="follows its source in partitions"):
        cluster.alter_topic("orders", partitions=9)


def test_only_mirrors_follow(west: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="is not a mirror"):
        west.follow_source("orders", SourceTopic(partitions=3))


def test_the_complete_list_of_a_link_decides_what_follows(cluster: EmbeddedCluster) -> None:
    always = ["cleanup.policy", "max.message.bytes", "message.timestamp.difference.max.ms", "message.timestamp.type"]
    for include in ([*always[:3]], ["retention.ms"]):
        with pytest.raises(UserError, match=r"topicConfigSync\.include lacks"):
            cluster.create_link("short", LinkEntry("link-2", "west", {"topicConfigSync": {"include": include}}))
    cluster.create_link("lean", LinkEntry("link-2", "west", {"topicConfigSync": {"include": always}}))
    of = SourceTopic(partitions=1, configs={"cleanup.policy": "compact", "retention.ms": "1d"})
    cluster.create_mirror("orders", MirrorShape(link="lean", source="orders"), of)
    cluster.alter_topic("orders", {"retention.ms": "9d"})
    assert cluster.topic("orders").configs == {"cleanup.policy": "compact", "retention.ms": "777600000"}


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


def test_a_link_cannot_be_made_over_another_or_go_while_mirrors_live(
    cluster: EmbeddedCluster, sink: EmbeddedSink
) -> None:
    cluster.create_link("from-west", LinkEntry("link-9", "west"))
    assert cluster.catalog.read().links["from-west"].id == "link-1"
    with pytest.raises(UserError, match="exists and differs"):
        cluster.create_link("from-west", LinkEntry("link-9", "north"))
    with pytest.raises(BlockedError, match="mirrors that are not stopped: orders"):
        cluster.delete_link("from-west")
    assert sink.ends() != {}
    assert not cluster.delete_link("nowhere")


def test_a_mirror_needs_its_link_and_a_namespace(cluster: EmbeddedCluster) -> None:
    of = SourceTopic(partitions=1)
    with pytest.raises(UserError, match="link from-west does not exist"):
        cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), of)
    cluster.create_link("from-west", LINK)
    with pytest.raises(UserError, match="namespace shop does not exist"):
        cluster.create_mirror("shop:orders", MirrorShape(link="from-west", source="shop:orders"), of)


def test_a_new_mirror_may_have_configs_of_its_own_but_none_that_is_synced(cluster: EmbeddedCluster) -> None:
    cluster.create_link("from-west", LINK)
    of = SourceTopic(partitions=1, configs={"retention.ms": "1d", "segment.ms": "2h"})
    shape = MirrorShape(link="from-west", source="orders", configs={"segment.ms": "1h"})
    cluster.create_mirror("orders", shape, of)
    assert cluster.topic("orders").configs == {"retention.ms": "86400000", "segment.ms": "3600000"}
    with pytest.raises(UserError, match=r"follows its source in retention\.ms"):
        cluster.create_mirror(
            "clicks", MirrorShape(link="from-west", source="clicks", configs={"retention.ms": "2d"}), of
        )


def test_mirrors_and_moves_are_read_back_by_others(store: ObjectStore, sink: EmbeddedSink) -> None:
    assert sink.ends() != {}
    cluster = cluster_in(store)
    cluster.create_topic("first", configs={"retention.ms": "1d"})
    cluster.move_topic("first", "second")
    assert dict(cluster_in(store).topics()) == dict(cluster.topics())
