"""Reading a log of which the older part lies in object storage: the same bytes, wherever a record lies."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import read_manifest
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.tiering_state import finish_disabling
from reconciler.embedded.catalog.topics import alter_topic
from reconciler.embedded.keys import head_key
from reconciler.errors import DamagedObjectError, MissingObjectError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest, LostOffsets, OffsetRange
from reconciler.resources.groups import ToTime
from reconciler.runtime.effects import read_host_name
from tests.embedded.samples import NOW, numbered, read, rows_of
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import (
    TIERED,
    archive,
    cached_in,
    evict,
    expire,
    in_segments,
    place_of,
    storage_of,
    tiered_cluster,
)
from tests.embedded.tiered.tiered_cluster import archived_head as head_of

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

TOPIC = "orders"
PART = 10
ALL = OffsetRange(0, 1 << 40)


def filled(parts: int = 6, **made: Any) -> EmbeddedCluster:
    """Return a cluster with a tiered topic of a few parts, all of it local."""
    cluster = tiered_cluster(**made)
    cluster.create_topic(TOPIC, partitions=1, configs=TIERED)
    publish(cluster, range(0, parts * PART, PART))
    return cluster


def publish(cluster: EmbeddedCluster, bases: range, topic: str = TOPIC) -> None:
    sink = cluster.sink(topic)
    for base in bases:
        at = OffsetRange(base, base + PART)
        sink.publish([sink.stage(0, [numbered(base, PART)], at=at)])


def half_remote(parts: int = 6, **made: Any) -> EmbeddedCluster:
    """Return the same, the first half of it remote only, the second in both tiers."""
    cluster = filled(parts, **made)
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=parts * PART // 2)
    return cluster


def segments(cluster: EmbeddedCluster, topic: str = TOPIC) -> list[str]:
    manifest = read_manifest(storage_of(cluster), place_of(cluster, topic))
    assert manifest is not None
    return [entry.key for entry in manifest.entries]


# -- the same bytes


@pytest.mark.fact("F-R-039")
@pytest.mark.fact("F-K-041")
@pytest.mark.parametrize("local_start", [0, 10, 30, 60])
def test_every_offset_is_readable_after_local_eviction_the_same_bytes(local_start: int) -> None:
    cluster = filled()
    before = read(cluster.log(TOPIC))
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=local_start)
    log = cluster.log(TOPIC)
    bounds = log.read_bounds()[0]
    assert (bounds.start, bounds.local_start, bounds.end) == (0, local_start, 60)
    assert read(log) == before == rows_of([numbered(0, 60)])
    for start, stop in [(0, 1), (5, 25), (29, 31), (25, 60), (59, 60)]:
        assert read(log, start=start, stop=stop) == before[start:stop]


def test_what_lies_in_both_tiers_is_read_locally() -> None:
    storage = WatchedStore(MemoryStore())
    cluster = filled(storage=storage)
    archive(cluster, TOPIC)
    storage.calls.clear()
    assert len(read(cluster.log(TOPIC))) == 60
    assert storage.calls == []


@pytest.mark.fact("F-K-043")
def test_an_object_that_no_manifest_names_is_never_read() -> None:
    cluster = half_remote()
    storage = storage_of(cluster)
    body = storage.get(segments(cluster)[0])
    assert body is not None
    storage.put(f"{place_of(cluster, TOPIC).key_prefix}/0-9-{len(body.body)}-0-v1-00000000.parquet", b"half a segment")
    assert read(cluster.log(TOPIC)) == rows_of([numbered(0, 60)])


def test_extents_and_digests_are_those_of_a_local_log() -> None:
    cluster = filled()
    log = cluster.log(TOPIC)
    before = list(log.list_extents(0, ALL)), sum(log.read_digests(0, ALL), Digest())
    cut = sum(log.read_digests(0, OffsetRange(7, 44)), Digest())
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=30)
    assert (list(log.list_extents(0, ALL)), sum(log.read_digests(0, ALL), Digest())) == before
    assert sum(log.read_digests(0, OffsetRange(7, 44)), Digest()) == cut


def test_a_search_by_time_looks_in_both_tiers() -> None:
    cluster = half_remote()
    log = cluster.log(TOPIC)
    for offset in (0, 9, 10, 29, 30, 59):
        assert log.find_offset_at(0, NOW + offset) == offset
    assert log.find_offset_at(0, NOW + 60) is None


def test_a_log_travels_and_is_read_elsewhere() -> None:
    cluster = half_remote()
    travelled = pickle.loads(pickle.dumps(cluster.log(TOPIC)))  # noqa: S301 - our own
    travelled.check_shared()
    assert read(travelled) == rows_of([numbered(0, 60)])


def test_a_reader_under_way_reads_on_when_what_it_reads_leaves_the_local_tier() -> None:
    cluster = filled()
    batches = cluster.log(TOPIC).read(0, ALL)
    found = [next(batches)]
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=40)
    assert rows_of([*found, *batches]) == rows_of([numbered(0, 60)])


def test_a_reader_under_way_follows_the_log_start_when_what_it_reads_expires() -> None:
    cluster = half_remote()
    batches = cluster.log(TOPIC).read(0, ALL)
    found = [next(batches)]
    expire(cluster, TOPIC, to=30)
    rows = rows_of([*found, *batches])
    assert [row["offset"] for row in rows][-30:] == list(range(30, 60))
    assert rows[:10] == rows_of([numbered(0, 10)])


# -- what may not be fetched


@pytest.mark.fact("F-R-037")
@pytest.mark.fact("F-R-040")
def test_with_reads_off_the_log_begins_at_its_local_start_for_everybody() -> None:
    cluster = half_remote()
    cluster.groups.commit("g", {(TOPIC, 0): 5})
    cluster.alter_topic(TOPIC, {"remote.read": "false"})
    log = cluster.log(TOPIC)
    assert log.read_bounds()[0].start == 30
    assert read(log) == rows_of([numbered(30, 30)])
    assert read(log, stop=30) == []
    assert list(log.list_extents(0, OffsetRange(0, 30))) == []
    assert log.find_offset_at(0, NOW) == 30
    assert cluster.groups.fetch("g") == {(TOPIC, 0): CommittedOffset(30, "", NOW)}
    (row,) = cluster.groups.describe("g").offsets
    assert (row.committed, row.start) == (30, 30)
    consumer = cluster.consumer(topics=[TOPIC])
    assert consumer.lag() == {(TOPIC, 0): 30}
    assert [record.offset for fetched in consumer.poll() for record in fetched] == list(range(30, 60))
    cluster.alter_topic(TOPIC, {"remote.read": "true"})
    assert read(cluster.log(TOPIC)) == rows_of([numbered(0, 60)])


def test_with_tiered_storage_off_in_the_cluster_nothing_remote_is_read() -> None:
    storage = WatchedStore(MemoryStore())
    cluster = half_remote(storage=storage)
    cluster.alter_cluster({"cloud_storage_enabled": "false"})
    storage.calls.clear()
    assert read(cluster.log(TOPIC)) == rows_of([numbered(30, 30)])
    assert storage.calls == []


@pytest.mark.fact("F-K-057")
def test_retain_keeps_what_is_archived_readable_before_during_and_after() -> None:
    cluster = half_remote()
    before = read(cluster.log(TOPIC))
    off = {"remote.write": "false", "remote.read": "false"}
    cluster.catalog.commit(lambda draft: alter_topic(draft, TOPIC, off))
    entry = cluster.topic(TOPIC)
    assert entry.tiering is not None
    assert (entry.tiering.state, entry.tiering.policy) == ("DISABLING", "retain")
    assert read(cluster.log(TOPIC)) == before
    epoch = entry.tiering.epoch
    cluster.catalog.commit(lambda draft: finish_disabling(draft, entry.id, epoch))
    assert cluster.catalog.get_cached().topics[TOPIC].tiering != entry.tiering
    assert read(cluster.log(TOPIC)) == before


@pytest.mark.fact("F-K-060")
@pytest.mark.fact("F-K-061")
@pytest.mark.parametrize("is_finished", [False, True], ids=["while it is in progress", "when it is done"])
def test_delete_refuses_what_is_remote_at_once_and_lets_reads_under_way_end(*, is_finished: bool) -> None:
    cluster = half_remote()
    under_way = cluster.log(TOPIC).read(0, ALL)
    found = [next(under_way)]
    off = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}
    if is_finished:
        cluster.alter_topic(TOPIC, off)
    else:
        cluster.catalog.commit(lambda draft: alter_topic(draft, TOPIC, off))
    log = cluster.log(TOPIC)
    assert log.read_bounds()[0].start == 30
    assert read(log) == rows_of([numbered(30, 30)])
    rows = rows_of([*found, *under_way])
    assert [row["offset"] for row in rows] in ([*range(60)], [*range(10), *range(30, 60)])


def test_a_cluster_opened_without_its_object_storage_says_so() -> None:
    cluster = half_remote()
    cluster.storage = None
    log = cluster.log(TOPIC)
    assert read(log, start=30) == rows_of([numbered(30, 30)])
    with pytest.raises(UserError, match="orders, partition 0: offsets 0 to 29 are in object storage") as raised:
        read(log)
    assert "spec.objectStorage" in raised.value.hint


def test_another_object_storage_than_the_cluster_was_bound_to_is_told_apart_from_lost_records() -> None:
    cluster = half_remote()
    cluster.storage = MemoryStore()
    with pytest.raises(UserError, match="holds nothing of it: this cluster's topics are stored in object storage"):
        read(cluster.log(TOPIC))


def test_an_executor_that_does_not_see_the_object_storage_is_named_before_the_files_are_blamed() -> None:
    cluster = half_remote()
    cluster.storage = elsewhere = MemoryStore()
    with pytest.raises(UserError, match="holds nothing of it") as raised:
        cluster.log(TOPIC).check_shared()
    seen = f"If {elsewhere.url} is as it was, the executor on {read_host_name()} does not see it"
    assert raised.value.hint.startswith(f"{seen}: put it on storage that every executor sees. Otherwise: Set ")


# -- what is gone


def test_a_missing_segment_is_told_with_topic_partition_offsets_and_object() -> None:
    cluster = half_remote()
    key = segments(cluster)[1]
    storage_of(cluster).delete([key])
    with pytest.raises(MissingObjectError) as raised:
        read(cluster.log(TOPIC))
    message = raised.value.message
    assert message.startswith("orders, partition 0: the records at offsets 10 to 19 cannot be read: memory://")
    assert f"has no object {key}" in message


def test_what_lies_before_a_missing_segment_is_read() -> None:
    cluster = half_remote()
    storage_of(cluster).delete([segments(cluster)[1]])
    batches = cluster.log(TOPIC).read(0, ALL)
    assert rows_of([next(batches)]) == rows_of([numbered(0, 10)])
    with pytest.raises(MissingObjectError):
        next(batches)


@pytest.mark.parametrize(
    ("which", "first", "last"), [("segment", 10, 19), ("manifest", 0, 29)], ids=["a segment", "the manifest"]
)
def test_a_read_goes_on_after_what_is_gone_only_when_asked(which: str, first: int, last: int) -> None:
    cluster = half_remote()
    key = segments(cluster)[1] if which == "segment" else place_of(cluster, TOPIC).key
    storage_of(cluster).delete([key])
    lost: list[LostOffsets] = []
    log = cluster.log(TOPIC, on_missing=lost.append)
    offsets = [row["offset"] for row in read(log)]
    assert offsets == [*range(first), *range(last + 1, 60)]
    assert lost == [LostOffsets(TOPIC, 0, first, last, key, storage_of(cluster).url)]
    assert log.find_offset_at(0, NOW + first) == last + 1
    consumer = cluster.consumer(topics=[TOPIC], on_missing=lost.append)
    polled = [record.offset for _ in range(9) for fetched in consumer.poll() for record in fetched]
    assert polled == offsets


@pytest.mark.parametrize("chunk", ["16777216", "16384"], ids=["in one chunk", "in chunks"])
@pytest.mark.parametrize(
    ("harm", "is_indexed", "first"),
    [(60, False, 1000), (0, False, 1000), (60, True, 1000), (70_000, True, 1500)],
    ids=["cut", "overwritten", "cut, with its index", "cut in the middle, with its index"],
)
def test_a_read_goes_on_after_what_is_damaged_only_when_asked(
    harm: int,
    is_indexed: bool,  # noqa: FBT001 - a parameter
    first: int,
    chunk: str,
    tmp_path: Path,
) -> None:
    cluster = tiered_cluster(properties=cached_in(tmp_path, chunk=chunk))
    in_segments(cluster, TOPIC, 3)
    storage, key = storage_of(cluster), segments(cluster)[1]
    stored = storage.get(key)
    assert stored is not None
    storage.delete([key] if is_indexed else [key, build_index_key(key)])
    storage.put(key, stored.body[:harm] if harm else bytes(len(stored.body)))
    with pytest.raises(DamagedObjectError, match="offsets 1000 to 1999 cannot be read") as raised:
        read(cluster.log(TOPIC))
    assert "topic consume --skip-missing, or --from 2000." in raised.value.hint
    lost: list[LostOffsets] = []
    log = cluster.log(TOPIC, on_missing=lost.append)
    offsets = [row["offset"] for row in read(log)]
    first = first if chunk == "16384" else 1000
    assert offsets == [*range(first), *range(2000, 3000)]
    (one,) = lost
    assert (one.first, one.last, one.key) == (first, 1999, key)
    said = f"{TOPIC}, partition 0: offsets {first} to 1999 cannot be read: {storage.url}: object {key} is damaged: "
    assert str(one).startswith(said)
    assert log.find_offset_at(0, NOW + 999) == 999


def test_a_missing_or_damaged_index_is_made_up_for_by_the_segment() -> None:
    cluster = half_remote()
    one, two, three = segments(cluster)[:3]
    storage = storage_of(cluster)
    storage.delete([build_index_key(each) for each in (one, two, three)])
    storage.put(build_index_key(two), b"no index")
    other = storage.get(build_index_key(segments(cluster)[3]))
    assert other is not None
    storage.put(build_index_key(three), other.body)
    assert read(cluster.log(TOPIC)) == rows_of([numbered(0, 60)])


# -- whoever reads a log


def test_a_mirror_copies_what_is_remote_as_it_is() -> None:
    source = half_remote()
    sink_cluster = tiered_cluster()
    sink_cluster.create_topic(TOPIC, partitions=1)
    sink, log = sink_cluster.sink(TOPIC), source.log(TOPIC)
    sink.publish([sink.stage_copy(0, log, OffsetRange(0, 60))])
    assert read(sink_cluster.log(TOPIC)) == rows_of([numbered(0, 60)])
    copied = head_of(sink_cluster, TOPIC)
    bodies = [sink_cluster.store.get(entry.key) for entry in copied.entries]
    theirs = [storage_of(source).get(key) for key in segments(source)]
    assert [body.body for body in bodies if body] == [body.body for body in theirs if body]


def test_a_copy_that_begins_within_a_remote_segment_reads_it() -> None:
    source = half_remote()
    cluster = tiered_cluster()
    cluster.create_topic(TOPIC, partitions=1)
    sink = cluster.sink(TOPIC)
    sink.publish([sink.stage(0, [numbered(0, 5)], at=OffsetRange(0, 5))])
    sink.publish([sink.stage_copy(0, source.log(TOPIC), OffsetRange(5, 60))])
    assert read(cluster.log(TOPIC)) == rows_of([numbered(0, 60)])


def test_a_group_is_reset_to_a_time_that_lies_in_the_remote_tier() -> None:
    cluster = half_remote()
    cluster.groups.commit("g", {(TOPIC, 0): 60})
    (move,) = cluster.groups.plan_reset("g", ToTime(NOW + 12))
    assert move.after == 12


def test_a_consumer_goes_through_both_tiers() -> None:
    cluster = half_remote()
    consumer = cluster.consumer("g", topics=[TOPIC])
    seen: list[int] = []
    while fetched := consumer.poll(7):
        seen += [record.offset for each in fetched for record in each]
    consumer.commit()
    assert seen == list(range(60))
    assert consumer.lag() == {(TOPIC, 0): 0}


# -- how many requests


@pytest.mark.fact("F-R-067")
@pytest.mark.parametrize("count", [1, 5_300])
def test_a_point_read_takes_head_manifest_page_index_and_chunk_however_long_the_history(
    count: int, tmp_path: Path
) -> None:
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    cluster = tiered_cluster(store, storage, cached_in(tmp_path, chunk="16384"))
    rows = in_segments(cluster, TOPIC, count)
    log = cluster.log(TOPIC)
    head = head_key(log.topic_id, 0)
    for number in dict.fromkeys([0, count // 2, count - 1]):
        offset = number * len(rows) + 333
        store.calls.clear()
        storage.calls.clear()
        (row,) = read(log, start=offset, stop=offset + 1)
        assert (row["offset"], row["value"]) == (offset, rows[333]["value"])
        assert store.calls == [("get", head)]
        pages = [] if number == count - 1 else ["page"]
        assert [_kind(what, key) for what, key in storage.calls] == ["manifest", *pages, "index", "chunk"]
        storage.calls.clear()
        read(log, start=offset, stop=offset + 1)
        assert {_kind(what, key) for what, key in storage.calls} <= {"manifest", "page"}


def _kind(what: str, key: str) -> str:
    if key.endswith(".parquet"):
        assert what == "get_range"
        return "chunk"
    return "index" if key.endswith(".index") else "page" if "/pages/" in key else "manifest"
