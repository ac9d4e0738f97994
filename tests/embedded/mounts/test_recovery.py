"""Topics made anew from object storage: everything they had, whatever became of the cluster that wrote it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ManifestSwap, RemotePartition
from reconciler.archives.pages import iter_all_entries
from reconciler.archives.recoverable import check_recoverable
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.keys import head_key
from reconciler.embedded.mounts.mounts import Mount
from reconciler.embedded.segments.head import Partition, read_head, read_heads, swap_head
from reconciler.errors import InvalidNamespaceError, MissingObjectError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest, OffsetRange
from tests.contracts.lossy import LossyStore
from tests.embedded.mounts.recovered_topics import (
    OTHER_ID,
    TOPIC,
    Fuse,
    another,
    begun,
    contents_of,
    drop_first,
    fill,
    location_in,
    manifest_of,
    named_objects,
    records_in,
    remote_objects,
    say,
    source_in,
)
from tests.embedded.samples import NOW, cluster_in, values
from tests.embedded.stores import DiedError, KeyedStore, WatchedStore
from tests.embedded.tiered.tiered_cluster import archive, tiered_cluster
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ListedObject, ObjectStore


ALL = OffsetRange(0, 1 << 40)


@pytest.fixture(params=ON_SERVERS_THOROUGHLY)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "storage")


def test_parts_stay_that_a_head_names_which_landed_unanswered_and_was_built_upon(storage: ObjectStore) -> None:
    west = source_in(storage)
    inner = MemoryStore()
    east = begun(storage, location_in(west), inner, **{"initial.retention.local.target.bytes": "1000000"})
    topic_id = east.topic(TOPIC).id
    partition = Partition(TOPIC, topic_id, 0)

    def build_upon() -> None:
        assert swap_head(inner, partition, lambda head: replace(head, is_settled=not head.is_settled))

    lossy = LossyStore(inner, key=head_key(topic_id, 0), meanwhile=build_upon)
    another(storage, lossy).finish_recoveries()
    assert lossy.swaps == 1
    head = read_head(inner, topic_id, 0)
    assert head is not None
    assert head.entries
    assert {entry.key for entry in iter_all_entries(inner, head)} <= {each.key for each in inner.list("")}


def test_partitions_that_the_source_got_since_the_recovery_began_are_not_taken(storage: ObjectStore) -> None:
    west = source_in(storage)
    east = begun(storage, location_in(west))
    west.alter_topic(TOPIC, {}, partitions=2)
    fill(west, 1, partition=1)
    archive(west, TOPIC, 1)
    say(west)
    assert set(east.finish_recoveries().values()) == {None}
    topic = east.topic(TOPIC)
    assert topic.partitions == 1
    assert sorted(read_heads(east.store, topic.id)) == [0]
    assert remote_objects(storage) == named_objects(east)
    east.alter_topic(TOPIC, {}, partitions=2)
    assert records_in(east)[1] == []


def digests_in(cluster: EmbeddedCluster) -> list[Digest]:
    log = cluster.log(TOPIC)
    return [sum(log.read_digests(partition, ALL), Digest()) for partition in sorted(log.read_bounds())]


@pytest.mark.fact("F-R-006")
def test_a_topic_is_recovered_with_all_it_had_and_its_source_is_untouched(storage: ObjectStore) -> None:
    west = source_in(storage, partitions=3)
    before = contents_of(storage)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east) == records_in(west)
    assert digests_in(east) == digests_in(west)
    assert {key: body for key, body in contents_of(storage).items() if key in before} == before
    assert remote_objects(storage) == named_objects(east, 3)
    assert {number: bounds.end for number, bounds in east.log(TOPIC).read_bounds().items()} == {0: 12, 1: 12, 2: 12}


def test_the_cluster_that_wrote_it_may_be_gone() -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, store=store)
    location, records = location_in(west), records_in(west)
    store.delete(list(contents_of(store)))
    east = another(storage)
    east.recover_topic(TOPIC, location)
    assert records_in(east) == records


def test_what_came_after_the_last_upload_is_lost_and_writing_goes_on_where_that_ended() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    fill(west, 1, first=12)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert [row["offset"] for row in records_in(east)[0]] == list(range(12))
    fill(east, 2, first=12)
    assert records_in(east)[0][:12] == records_in(west)[0][:12]
    bounds = east.log(TOPIC).read_bounds()[0]
    assert (bounds.start, bounds.local_start, bounds.end, bounds.epochs) == (0, 12, 20, ((0, 0), (1, 12)))
    archive(east, TOPIC)
    assert [entry.epoch for entry in manifest_of(east).entries] == [0, 0, 0, 1, 1]


def test_a_partition_of_which_nothing_was_uploaded_is_as_one_never_written() -> None:
    storage = MemoryStore()
    west = tiered_cluster(storage=storage)
    west.create_namespace("shop")
    west.create_topic(TOPIC, partitions=2, configs={"remote.write": "true", "remote.read": "true"})
    fill(west, 1, partition=1)
    archive(west, TOPIC, 1)
    say(west)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert [len(rows) for rows in records_in(east).values()] == [0, 4]
    fill(east, 1)
    assert [len(rows) for rows in records_in(east).values()] == [4, 4]


def test_configs_come_along_and_those_that_are_given_win() -> None:
    storage = MemoryStore()
    west = source_in(storage, retention_ms="1000000", segment_bytes="5000")
    west.alter_namespace("shop", {"max.message.bytes": "70000"})
    say(west)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west), configs={"segment.bytes": "6000"})
    assert east.topic(TOPIC).configs == {
        "max.message.bytes": "70000",
        "remote.read": "true",
        "remote.write": "true",
        "retention.ms": "1000000",
        "segment.bytes": "6000",
    }


def test_what_the_new_namespace_says_alike_stays_its_word() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    west.alter_namespace("shop", {"retention.ms": "70000"})
    say(west)
    east = another(storage)
    east.alter_namespace("shop", {"retention.ms": "70000"})
    east.recover_topic(TOPIC, location_in(west))
    assert "retention.ms" not in east.topic(TOPIC).configs


@pytest.mark.fact("F-R-037")
def test_an_archive_gives_no_records_from_there_and_recovery_restores_them() -> None:
    storage = MemoryStore()
    west = source_in(storage, **{"remote.read": "false"})
    assert west.log(TOPIC).read_bounds()[0].start == 0  # what is local is readable
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert east.log(TOPIC).read_bounds()[0].start == 12  # write-only itself: nothing is fetched
    assert records_in(east)[0] == []
    north = another(storage, cluster_id="00000000-0000-4000-a000-000000000000")
    north.recover_topic(TOPIC, location_in(west), configs={"remote.read": "true"})
    assert records_in(north) == records_in(west)


def test_a_topic_that_is_not_to_be_tiered_keeps_what_is_recovered_readable() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west), configs={"remote.write": "false", "remote.read": "false"})
    tiering = east.topic(TOPIC).tiering
    assert tiering is not None
    assert (tiering.state, tiering.policy) == ("DISABLED", "retain")
    assert records_in(east) == records_in(west)


@pytest.mark.fact("F-R-006")
def test_by_its_name_a_topic_is_found_where_only_one_lies() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.recover_topic(TOPIC)
    assert records_in(east) == records_in(west)
    with pytest.raises(UserError, match=r"2 topics called shop:orders lie in .*/1, shop:orders/.*/1") as refused:
        another(storage, cluster_id="00000000-0000-4000-a000-000000000000").recover_topic(TOPIC)
    assert refused.value.hint == "Name one of them as recoverFrom."
    with pytest.raises(UserError, match="there is no topic shop:other"):
        east.recover_topic("shop:other")


def test_spilled_manifests_are_recovered_whole() -> None:
    storage = MemoryStore()
    west = tiered_cluster(storage=storage, properties={"cloud_storage_spillover_manifest_size": "1024"})
    west.create_namespace("shop")
    west.create_topic(TOPIC, configs={"remote.write": "true", "remote.read": "true"})
    fill(west, 40)
    archive(west, TOPIC)
    say(west)
    assert manifest_of(west, made_by=west.cluster_id).pages
    east = another(storage)
    east.alter_cluster({"cloud_storage_spillover_manifest_size": "2048"})
    east.recover_topic(TOPIC, location_in(west))
    assert manifest_of(east).pages
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east)


@pytest.mark.parametrize(
    ("configs", "local_start"),
    [
        ({}, 20),
        ({"initial.retention.local.target.bytes": "1"}, 20),
        ({"initial.retention.local.target.bytes": "1000000"}, 0),
        ({"initial.retention.local.target.bytes": "-1"}, 20),
        ({"initial.retention.local.target.ms": "90"}, 12),
        ({"initial.retention.local.target.ms": "90", "initial.retention.local.target.bytes": "1"}, 20),
    ],
)
def test_the_newest_segments_are_brought_down_as_initial_local_retention_says(
    configs: dict[str, str], local_start: int
) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, parts=5)
    east = another(storage, store, at_ms=NOW + 105)
    east.recover_topic(TOPIC, location_in(west), configs=configs)
    assert east.log(TOPIC).read_bounds()[0].local_start == local_start
    assert len(contents_of(store, "topics/")) == (20 - local_start) // 4
    assert records_in(east) == records_in(west)


def test_a_compacted_topic_stays_as_far_compacted_as_it_was() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    tiering = find_tiering(west.catalog.read(), TOPIC, west.cluster_id)
    assert tiering is not None
    place = RemotePartition(west.cluster_id, 1, 0)
    ManifestSwap(storage, west.cluster_id, tiering)(place, lambda held: replace(held, compacted_to=8))
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert (manifest_of(east).compacted_to, east.log(TOPIC).read_bounds()[0].compacted_to) == (8, 8)


def test_objects_lie_under_the_key_of_the_new_namespace() -> None:
    storage, store = KeyedStore(), KeyedStore()
    west = source_in(storage)
    east = another(storage, store)
    east.encrypt_namespace("shop", "key-east")
    east.recover_topic(TOPIC, location_in(west), configs={"initial.retention.local.target.bytes": "1000000"})
    keys = {key: kms for key, kms in storage.parts().items() if key.startswith(f"topics/{OTHER_ID}")}
    assert set(keys.values()) == set(store.parts().values()) == {"key-east"}
    assert records_in(east) == records_in(west)


# Recovery while something goes wrong: a process that dies, another that recovers too, a source that changes.


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_topic_that_is_deleted_while_it_recovers_leaves_nothing(when: str) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=2)
    before = contents_of(storage)
    east = begun(storage, location_in(west), store)
    copies = 0

    def delete_soon(what: str, _key: str) -> None:
        nonlocal copies
        copies += what == "copy_from"
        if (what, copies) == ("copy_from", 3):
            east.delete_topic(TOPIC)

    if when == "before":
        east.delete_topic(TOPIC)
    watched = WatchedStore(storage, after=delete_soon)
    another(watched, store).finish_recoveries()
    assert contents_of(storage) == before
    assert not contents_of(store, "heads/") | contents_of(store, "topics/")
    assert not east.catalog.read().deletions


@pytest.mark.parametrize("configs", [{}, {"remote.write": "false"}, {"remote.delete": "false"}])
def test_deleting_a_topic_half_way_takes_its_copies_whatever_it_was_to_keep(configs: dict[str, str]) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=2)
    before = contents_of(storage)
    begun(storage, location_in(west), store, **configs)
    east = another(Fuse(12, done=True).on(storage), store)
    with pytest.raises(DiedError):
        east.finish_recoveries()
    assert contents_of(storage) != before
    east = another(storage, store)
    east.delete_topic(TOPIC)
    left = contents_of(storage).keys() - before.keys()
    assert not {key for key in left if key.endswith(".json")}  # the sweep takes what no manifest ever named
    assert not east.catalog.read().deletions


def test_an_object_that_the_source_deletes_meanwhile_is_left_out_as_its_manifest_then_says() -> None:
    storage = MemoryStore()
    west = source_in(storage, parts=5)
    records = records_in(west)[0]
    expired = False

    def expire(what: str, _key: str) -> None:
        nonlocal expired
        if what == "copy_from" and not expired:
            expired = True
            drop_first(west, 2)

    east = another(WatchedStore(storage, before=expire))
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east)[0] == records[8:]
    assert east.log(TOPIC).read_bounds()[0].start == 8
    assert remote_objects(storage) == named_objects(east)


def test_an_object_that_is_gone_for_good_is_named_and_what_is_there_is_done_when_it_is_back() -> None:
    storage = MemoryStore()
    west = source_in(storage, partitions=2)
    lost = next(key for key in contents_of(storage, f"topics/{west.cluster_id}/1/00001/4-") if key.endswith("quet"))
    body = contents_of(storage)[lost]
    east = begun(storage, location_in(west))
    storage.delete([lost])
    (refused,) = east.finish_recoveries().values()
    assert isinstance(refused, MissingObjectError)
    assert refused.offsets == (4, 7)
    assert refused.message.startswith(f"{TOPIC}, partition 1: offsets 4 to 7 are lost: ")
    assert lost in refused.message
    assert refused.hint == (
        f"{location_in(west)} names it. Restore it from a version or copy of the bucket, then: "
        "reconciler run --once --only recoveries. Or delete the topic that recovers."
    )
    with pytest.raises(UserError, match="is being recovered"):
        east.log(TOPIC)
    storage.put(lost, body)
    assert list(east.finish_recoveries().values()) == [None]
    assert records_in(east) == records_in(west)


def test_an_index_that_is_gone_is_found_again_in_its_segment() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    storage.delete([key for key in contents_of(storage) if key.endswith(".index")])
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east)


@pytest.mark.parametrize("again", range(5))
def test_two_recoveries_of_one_topic_at_once_make_it_once(again: int) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=4, parts=3 + again)
    begun(storage, location_in(west), store)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: another(storage, store).finish_recoveries(), range(3)))
    assert {error for ended in found for error in ended.values()} == {None}
    east = another(storage, store)
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east, 4)


@pytest.mark.thorough
def test_a_recovery_goes_on_after_dying_before_and_after_each_of_its_writes() -> None:
    """Both stores are counted: nothing is copied twice, and in the end nothing is there that is not named."""
    configs = {"initial.retention.local.target.bytes": "1000000"}
    points = 0
    for done in (False, True):
        for at in itertools.count():
            storage, store = MemoryStore(), MemoryStore()
            west = source_in(storage, partitions=2, parts=2)
            begun(storage, location_in(west), store, **configs)
            fuse = Fuse(at, done=done)
            try:
                another(fuse.on(storage), fuse.on(store)).finish_recoveries()
            except DiedError:
                points += 1
            else:
                assert at > 10
                break
            present = remote_objects(storage)
            watched = WatchedStore(storage)
            east = another(watched, store)
            assert set(east.finish_recoveries().values()) <= {None}
            assert not present & {key for what, key in watched.calls if what == "copy_from"}
            assert records_in(east) == records_in(west)
            assert remote_objects(storage) == named_objects(east, 2)
            fill(east, 1, first=8)
            assert records_in(east)[0][:8] == records_in(west)[0]
    assert points >= 24


# What recovery refuses, and what a topic refuses while it recovers.


def test_a_location_that_is_none_is_refused_before_anything_is_made() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    place = f"{west.cluster_id}/1"
    for location, message in (
        (f"{TOPIC}/{west.cluster_id}/2", "there is no topic at"),
        (f"{TOPIC}/{OTHER_ID}/1", "there is no topic at"),
        (f"shop:clicks/{place}", f"at shop:clicks/{place} in .* is the topic {TOPIC}"),
        ("orders", "'orders' is not the location of a topic"),
    ):
        with pytest.raises(UserError, match=message):
            east.recover_topic("shop:new", location)
    with pytest.raises(InvalidNamespaceError):
        east.recover_topic("none:new", location_in(west))
    assert east.namespaces() == ["shop"]
    assert east.catalog.read().topics == {}
    east.recover_topic("shop:new", f"orders/{place}")
    assert records_in(east, "shop:new") == records_in(west)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"format": "reconciler.topic/7"}', "was written by a newer version of reconciler"),
        (b'{"format": "reconciler.topic/1", "epo', "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_location_of_a_newer_format_or_damaged_is_refused(body: bytes, message: str) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    storage.put(f"topics/{west.cluster_id}/1/topic.json", body)
    with pytest.raises(UserError, match=message):
        another(storage).recover_topic(TOPIC, location_in(west))


def test_a_topic_that_is_mounted_elsewhere_is_refused_and_a_detached_one_is_not() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    location = location_in(west)
    west.mounts.drive(west.mounts.unmount(TOPIC))
    north = another(storage)
    north.mounts.drive(north.mounts.mount(Mount(location, TOPIC)))
    with pytest.raises(UserError, match=f"{location} is mounted on cluster {north.cluster_id}"):
        another(storage, cluster_id=OTHER_ID.replace("9000", "a000")).recover_topic(TOPIC, location)
    north.mounts.drive(north.mounts.unmount(TOPIC))
    south = another(storage, cluster_id=OTHER_ID.replace("9000", "b000"))
    south.recover_topic(TOPIC, location)
    assert records_in(south)


def test_a_cluster_without_object_storage_recovers_nothing() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    bare = cluster_in(MemoryStore())
    with pytest.raises(UserError, match="its cluster has no object storage"):
        bare.recover_topic(TOPIC, location_in(west))


def test_until_it_is_whole_it_takes_and_gives_no_records() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = begun(storage, location_in(west))
    for use in (
        lambda: east.log(TOPIC),
        lambda: east.sink(TOPIC),
        lambda: east.consumer(topics=[TOPIC]).poll(),
        lambda: send(east),
    ):
        with pytest.raises(UserError, match=f"topic {TOPIC} is being recovered from {location_in(west)}"):
            use()
    assert east.consumer(pattern="shop:.*").poll() == []
    assert list(east.finish_recoveries().values()) == [None]
    assert records_in(east) == records_in(west)


def send(cluster: EmbeddedCluster) -> None:
    with cluster.producer() as producer:
        producer.append(TOPIC, values("x"))


@pytest.mark.fact("F-R-006")
def test_on_a_topic_that_is_there_recovery_has_no_effect() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.create_topic(TOPIC)
    before = contents_of(storage)
    east.alter_topic(TOPIC, {"remote.recovery": "true"})
    assert set(east.finish_recoveries()) == set()
    assert (records_in(east)[0], contents_of(storage)) == ([], before)
    with pytest.raises(UserError, match="topic shop:orders exists"):
        east.recover_topic(TOPIC, location_in(west))


def segment_in(storage: MemoryStore, west: EmbeddedCluster, partition: int, first: int) -> str:
    prefix = f"topics/{west.cluster_id}/1/{partition:05}/{first}-"
    return next(key for key in contents_of(storage, prefix) if key.endswith(".parquet"))


def test_segments_without_a_manifest_are_not_passed_over() -> None:
    storage = MemoryStore()
    west = source_in(storage, partitions=2)
    east = begun(storage, location_in(west))
    key = f"topics/{west.cluster_id}/1/00001/manifest.json"
    storage.delete([key])
    message = rf"has no {key}, but 3 segments of that partition, offsets 0 to 11: "
    with pytest.raises(UserError, match=message):
        another(storage).recover_topic(TOPIC, location_in(west))
    (refused,) = east.finish_recoveries().values()
    assert refused is not None
    assert "offsets 0 to 11" in refused.message
    assert east.catalog.read().topics[TOPIC].recovering == location_in(west)


def test_lost_and_torn_segments_are_found_before_anything_is_made_and_their_offsets_told() -> None:
    storage = MemoryStore()
    west, east = source_in(storage, partitions=2), another(storage)
    lost, torn = segment_in(storage, west, 1, 4), segment_in(storage, west, 0, 8)
    body = contents_of(storage)[torn]
    storage.delete([lost, torn])
    storage.put(torn, body[:-9])
    with pytest.raises(UserError, match="is incomplete: objects that it needs are lost") as refused:
        east.recover_topic(TOPIC, location_in(west))
    assert refused.value.message.endswith(
        f": partition 0, offsets 8 to 11 ({torn} has {len(body) - 9:,} bytes, not {len(body):,}); "
        f"partition 1, offsets 4 to 7 ({lost} is not there)"
    )
    assert east.catalog.read().topics == {}


def test_what_retention_of_the_source_takes_meanwhile_is_not_lost() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    gone: list[str] = []

    class Expiring(WatchedStore):
        def list(self, prefix: str) -> Iterator[ListedObject]:
            if not gone and prefix.startswith("topics/"):
                gone.append(prefix)
                drop_first(west, 1)
            return super().list(prefix)

    found = check_recoverable(Expiring(storage), TopicLocation.parse(location_in(west)), OTHER_ID)
    assert gone
    assert found.ends == {0: (4, 12)}
