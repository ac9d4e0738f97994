"""What topics take in each tier: the same over every store, in few requests, and never counted twice."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.keys import STORAGE
from reconciler.archives.manifest import ManifestSwap
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.catalog.topics import TopicShape, create_topic
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.embedded.tiered.usage import SHOWN, STRETCHES, get_manifest_reader, measure_topic
from reconciler.errors import NotAuthorizedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.providers.embedded.measures import build_storage_report, list_topic_storages
from reconciler.resources.address import Address
from reconciler.resources.measures import TierUsage, TopicStorage
from tests.embedded.maintenance.tiny_segments import TOPIC, TWO_PARTS, append_parts, head_of, held, with_topic
from tests.embedded.samples import NOW, cluster_in
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, tiered
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

ADDRESS = Address(f"topic/west/{TOPIC}")
CLUSTER_OFF = {"cloud_storage_enabled": "false"}


@pytest.fixture(params=["memory", "directory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "remote")


def reported(cluster: EmbeddedCluster) -> TopicStorage:
    (found,) = list_topic_storages(cluster, [ADDRESS])
    return found


def evicted(tier: Tiered, to: int, *, partition: int = 0) -> None:
    """Let the local tier begin at `to`: what lies below it is uploaded."""
    place = Partition(TOPIC, tier.cluster.topic(TOPIC).id, partition)

    def change(head: Head) -> Head:
        kept = tuple(entry for entry in head.entries if entry.base >= to)
        return replace(head, entries=kept, local_start=to)

    assert swap_head(tier.store, place, change)


# -- what is told


@pytest.mark.fact("F-R-069")
@pytest.mark.fact("F-R-035")
def test_each_tier_of_each_partition_is_told_with_what_waits_to_be_uploaded(storage: ObjectStore) -> None:
    tier = tiered(partitions=2, storage=storage)
    tier.fill(5)
    tier.fill(1, partition=1)
    tier.upload()
    evicted(tier, 4)
    found = reported(tier.cluster)
    head, manifest = head_of(tier.cluster), tier.manifest()

    assert found.tiering is not None
    assert (found.tiering.mode, found.tiering.state, found.tiering.epoch) == ("full", "ENABLED", 1)
    assert found.tiering.location == f"{TOPIC}/{tier.cluster.cluster_id}/1"
    assert found.tiering.url == f"remote://{storage.url.partition('://')[2]}"
    first, second = found.partitions
    assert (first.start, first.local_start, first.end) == (0, 4, 10)
    assert first.local == TierUsage(head.stored_bytes, 2)
    assert first.remote is not None
    assert (first.remote.start, first.remote.end, first.remote.uploaded_ms) == (0, 8, NOW)
    assert first.remote.held == TierUsage(manifest.stored_bytes, 2)
    assert not first.remote.is_ahead
    assert first.pending_bytes == head.entries[-1].bytes
    assert (second.local.segments, second.pending_bytes) == (1, second.local.bytes)


@pytest.mark.fact("F-R-070")
def test_what_lies_in_both_tiers_counts_once_in_sums(storage: ObjectStore) -> None:
    tier = tiered(storage=storage)
    tier.fill(5)
    whole = reported(tier.cluster).log_bytes
    tier.upload()
    both = reported(tier.cluster)
    assert both.local.bytes + both.remote.bytes > both.log_bytes
    assert (both.log_bytes, both.log_records) == (both.local.bytes, 10)
    evicted(tier, 8)
    moved = reported(tier.cluster)
    assert moved.local.bytes < both.local.bytes
    assert (moved.remote, moved.log_bytes, moved.log_records) == (both.remote, both.log_bytes, 10)
    assert abs(moved.log_bytes - whole) < whole / 2, "only rolled meanwhile"
    manifest_of = get_manifest_reader(tier.storage, tier.cluster.catalog.read(), TOPIC, tier.cluster.cluster_id)
    size = measure_topic(tier.store, tier.cluster.topic(TOPIC).id, manifest_of)
    assert (size.bytes, size.records) == (moved.log_bytes, 10)
    assert sum(stored for _, stored in size.ages) == size.bytes


def test_what_is_older_than_a_time_is_told_of_each_part_and_of_a_page_that_crosses_it_as_a_whole() -> None:
    tier = tiered()
    for _ in range(STRETCHES + STRETCHES // 2):
        tier.fill(1)
        tier.clock.now_ms += 1_000
    head = head_of(tier.cluster)
    page, parts = head.pages[0], head.entries
    size = measure_topic(tier.store, tier.cluster.topic(TOPIC).id, cuts=[page.min_ts, page.max_ts, parts[9].max_ts])
    assert list(size.older_bytes.values()) == [0, page.bytes, size.bytes - sum(part.bytes for part in parts[9:])]
    assert sum(stored for newest, stored in size.ages if newest < page.max_ts) == 0, "of stretches the newest counts"


@pytest.mark.fact("F-R-070")
def test_remote_bytes_are_those_of_the_objects_that_are_there_whatever_the_replication() -> None:
    tier = Tiered()
    tier.switch_on()
    shape = TopicShape(partitions=2, replication_factor=3, configs={"segment.bytes": TWO_PARTS, **BOTH})
    tier.cluster.catalog.commit(lambda draft: create_topic(draft, TOPIC, shape, topic_id=str(uuid.UUID(int=7))))
    tier.fill(5)
    tier.fill(9, partition=1)
    tier.upload()
    there = sum(listed.size for listed in tier.storage.list("topics/") if listed.key.endswith(".parquet"))
    assert there > 0
    for cluster in (tier.cluster, tier.opened()):
        found = reported(cluster)
        assert found.remote.bytes == sum(each.remote.held.bytes for each in found.partitions if each.remote) == there


def test_what_expired_is_no_part_of_the_log_though_it_is_not_deleted_yet() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    evicted(tier, 8)
    before = reported(tier.cluster)
    place = Partition(TOPIC, tier.cluster.topic(TOPIC).id, 0)
    assert swap_head(tier.store, place, lambda head: replace(head, start=4))
    raised = reported(tier.cluster)
    assert (raised.remote, raised.log_records) == (before.remote, 6)
    swap = ManifestSwap(tier.storage, tier.cluster.cluster_id, tier.tiering())
    swap(
        tier.remote(),
        lambda found: replace(
            found, start=4, entries=found.entries[1:], garbage=replace(found.garbage, entries=found.entries[:1])
        ),
    )
    marked = reported(tier.cluster)
    assert (marked.remote.segments, marked.garbage.segments) == (1, 1)
    assert marked.remote.bytes + marked.garbage.bytes == before.remote.bytes
    assert marked.log_bytes == raised.log_bytes


def test_a_segment_across_the_local_start_counts_by_its_share_of_offsets() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    place = Partition(TOPIC, tier.cluster.topic(TOPIC).id, 0)
    assert swap_head(tier.store, place, lambda head: replace(head, entries=head.entries[-1:], start=2, local_start=6))
    found, (first, second) = reported(tier.cluster), tier.segments()
    assert found.log_records == 2 + 4
    assert found.log_bytes == head_of(tier.cluster).stored_bytes + first.bytes // 2 + second.bytes // 2


def test_an_upload_that_was_cut_off_before_the_head_knew_is_told() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    place = Partition(TOPIC, tier.cluster.topic(TOPIC).id, 0)
    assert swap_head(tier.store, place, lambda head: replace(head, uploaded_to=4))
    found = reported(tier.cluster).partitions[0]
    assert found.remote is not None
    assert found.remote.is_ahead
    assert found.pending_bytes == head_of(tier.cluster).entries[-1].bytes, "what the manifest names need not wait"


@pytest.mark.parametrize(
    ("write", "read", "mode", "waits"),
    [
        ("true", "true", "full", True),
        ("true", "false", "write_only", True),
        ("false", "true", "read_only", False),
    ],
)
def test_the_mode_is_what_tiering_does_now(write: str, read: str, mode: str, *, waits: bool) -> None:
    tier = tiered(remote_write=write, remote_read=read)
    tier.fill(1)
    found = reported(tier.cluster)
    assert found.tiering is not None
    assert found.tiering.mode == mode
    assert (found.pending_bytes is not None) == waits
    tier.cluster.alter_cluster(CLUSTER_OFF)
    switched_off = reported(tier.cluster)
    assert switched_off.tiering is not None
    assert (switched_off.tiering.mode, switched_off.pending_bytes) == ("disabled", None)


def test_uploads_that_pause_are_no_other_mode_and_the_backlog_stays_in_sight() -> None:
    tier = tiered()
    tier.fill(3)
    tier.switch_on(enable_segment_uploads="false")
    found = reported(tier.cluster)
    assert found.tiering is not None
    assert (found.tiering.mode, found.tiering.is_paused) == ("full", True)
    assert found.pending_bytes == found.local.bytes


def test_what_was_switched_off_and_retained_is_still_told_and_nothing_waits() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    tier.cluster.alter_topic(TOPIC, {"remote.write": "false", "remote.read": "false"})
    found = reported(tier.cluster)
    assert found.tiering is not None
    assert (found.tiering.mode, found.tiering.state, found.tiering.epoch) == ("read_only", "DISABLED", 3)
    assert (found.remote.segments, found.pending_bytes) == (2, None)


def test_a_topic_that_was_never_tiered_and_one_never_written_are_told_too() -> None:
    cluster = cluster_in(MemoryStore())
    with_topic(cluster, partitions=2)
    found = reported(cluster)
    assert (found.tiering, found.local, found.remote, found.pending_bytes) == (None, TierUsage(), TierUsage(), None)
    append_parts(cluster, 3)
    written = reported(cluster)
    assert written.local == TierUsage(head_of(cluster).stored_bytes, 1), "three parts of the open segment"
    assert written.log_records == 6


@pytest.mark.fact("F-R-069")
def test_remote_rows_are_hidden_where_the_cluster_says_so() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    tier.cluster.alter_cluster({SHOWN: "false"})
    watched = WatchedStore(tier.storage)
    found = reported(tier.opened(storage=watched))
    assert found.tiering is not None
    assert found.tiering.hidden == f"{SHOWN} is false"
    assert [partition.remote for partition in found.partitions] == [None]
    assert watched.calls == [], "what is hidden is not asked for"
    tier.cluster.alter_cluster({SHOWN: None})
    assert reported(tier.cluster).remote.segments == 2


# -- what it costs, and who may


def test_it_takes_one_listing_and_a_request_for_each_head_and_manifest() -> None:
    tier = tiered(partitions=5)
    for partition in range(3):
        tier.fill(3, partition=partition)
    tier.upload()
    tier.cluster.create_topic("plain", partitions=2)
    watched, far = WatchedStore(tier.store), WatchedStore(tier.storage)
    cluster = tier.opened(watched, far)
    assert reported(cluster).remote.segments == 3
    assert watched.count("list") == 1
    assert watched.count("get", "heads/") == 3
    manifests = [("get", tier.remote(number).key) for number in range(3)]  # read by threads, in any order
    assert (far.calls[0], sorted(far.calls[1:])) == (("get", STORAGE), manifests)
    assert len(watched.calls) == 1 + 3 + watched.count("get", "cluster.json") + watched.count("get", "catalog/")

    for calls in (watched.calls, far.calls):
        calls.clear()
    both = list(list_topic_storages(cluster, [Address("topic/west/plain"), ADDRESS]))
    assert [each.address for each in both] == ["topic/west/plain", ADDRESS]
    assert (watched.count("list"), watched.count("get", "heads/"), len(far.calls)) == (1, 3, 4)
    assert not [call for call, _ in (*watched.calls, *far.calls) if call in {"get_range", "put", "swap"}]


def test_hundreds_of_topics_take_one_listing_too() -> None:
    tier = tiered()
    for number in range(300):
        tier.cluster.create_topic(f"t{number:03}")
    with tier.cluster.producer() as producer:
        for number in range(0, 300, 10):
            producer.send(f"t{number:03}", "x")
    watched = WatchedStore(tier.store)
    cluster = tier.opened(watched)
    found = list(list_topic_storages(cluster, [Address(f"topic/west/{name}") for name in cluster.topics()]))
    assert len(found) == 301
    assert sum(each.log_records for each in found) == 30
    assert (watched.count("list"), watched.count("get", "heads/")) == (1, 30)


def test_who_may_not_describe_a_topic_is_not_told_what_it_takes() -> None:
    tier = tiered()
    tier.fill(1)
    rule = AclEntry("User:somebody", "allow", ("DESCRIBE",))
    tier.cluster.set_topic_acls(TOPIC, [rule])
    assert reported(tier.cluster.acting_as("User:somebody")).local.segments == 1
    with pytest.raises(NotAuthorizedError):
        reported(tier.cluster.acting_as("User:else"))


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="order"):
        list(list_topic_storages(tiered().cluster, [Address("topic/west/order")]))


def test_a_damaged_manifest_is_named_and_readers_of_what_is_local_go_on() -> None:
    tier = tiered()
    tier.fill(5)
    tier.upload()
    tier.storage.put(tier.remote().key, b"{")
    found = reported(tier.cluster)
    assert (found.local.segments > 0, found.remote) == (True, TierUsage())
    assert found.problem is not None
    assert tier.remote().key in found.problem.message
    assert len(held(tier.cluster)) == 10


def test_a_report_reads_no_newer_catalog_than_it_was_given() -> None:
    tier = tiered()
    report = build_storage_report(tier.cluster)
    tier.cluster.create_topic("later")
    assert [each.address for each in report.report_topics({TOPIC: ADDRESS})] == [ADDRESS]
