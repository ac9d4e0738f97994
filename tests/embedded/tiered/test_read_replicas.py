"""Read replicas: a topic that shows what another cluster uploaded, and never anything else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.keys import build_index_key, build_topic_manifest_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ManifestSwap, manifest_register, remote_partition
from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import HEADS
from reconciler.embedded.segments.head import REPLICA, head_register, parse_head, read_heads
from reconciler.errors import MissingObjectError, NotAuthorizedError, QuotaExceededError, ReconcilerError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import RESTORE, LinkEntry, Operation, Peer
from reconciler.resources.topic import SOURCE_GONE
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, head_of
from tests.embedded.samples import ids, read, values
from tests.embedded.stores import DiedError, WatchedStore, dying
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

COPY = "copies"
WRITES = {"put", "swap", "copy_from", "delete"}


@dataclass
class Pair:
    """A cluster with a tiered topic, and another one that follows it through a store that notes what is asked of it."""

    west: Tiered
    east: EmbeddedCluster
    storage: WatchedStore

    @property
    def location(self) -> str:
        return str(self.west.tiering().location)

    def written(self) -> list[tuple[str, str]]:
        """Return what the follower did to the object storage, beside reading it."""
        return [call for call in self.storage.calls if call[0] in WRITES]

    def produce(self, count: int, partition: int = 0) -> None:
        """Append records whose value is their offset, each a part of its own."""
        topic_id = self.west.cluster.topic(TOPIC).id
        head = read_heads(self.west.store, topic_id).get(partition)
        first = 0 if head is None else head.end
        for offset in range(first, first + count):
            with self.west.cluster.producer() as producer:
                producer.send(TOPIC, str(offset), key=f"k{offset}", partition=partition)

    def upload(self, count: int = 0, partition: int = 0) -> None:
        self.produce(count, partition)
        self.west.upload()

    def follow(self) -> Any:
        """Follow once, and return what came of it."""
        (found,) = self.east.follow_replicas().values()
        return found

    def end(self, partition: int = 0) -> int:
        return self.east.log(COPY).read_bounds()[partition].end

    def offsets(self, partition: int = 0, start: int = 0) -> list[int]:
        """Return the offsets that are read of the replica; each record is the one that the source wrote there."""
        rows = read(self.east.log(COPY), partition, start)
        assert [row["value"] for row in rows] == [str(row["offset"]).encode() for row in rows]
        return [row["offset"] for row in rows]


def pair_in(store: ObjectStore, storage: ObjectStore, **configs: str) -> Pair:
    west = Tiered(store, storage)
    west.switch_on(spillover_manifest_size="1024")
    west.cluster.create_topic(TOPIC, partitions=2, configs={**BOTH, "segment.bytes": "14", **configs})
    watched = WatchedStore(storage)
    east = EmbeddedCluster.create(MemoryStore(), "follower", now_ms=west.clock, new_id=ids(), storage=watched)
    east.alter_cluster({"cloud_storage_enabled": "true"})
    watched.calls.clear()
    return Pair(west, east, watched)


@pytest.fixture(params=["memory", "directory", pytest.param("s3", marks=pytest.mark.thorough)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return pair_in(fresh_store(request, tmp_path / "west"), fresh_store(request, tmp_path / "remote"))


@pytest.fixture
def quick() -> Pair:
    return pair_in(MemoryStore(), MemoryStore())


# -- what it shows


def test_it_shows_what_was_uploaded_and_follows_without_writing_there(pair: Pair) -> None:
    pair.upload(6)
    pair.produce(2)
    pair.east.replicate_topic(COPY, pair.location)
    source = pair.west.cluster.log(TOPIC)
    shown = pair.end()
    assert 0 < shown < source.read_bounds()[0].end
    assert read(pair.east.log(COPY)) == read(source, stop=shown)
    assert [extent.offsets for extent in pair.east.log(COPY).list_extents(0, OffsetRange(0, 99))] == [
        extent.offsets for extent in source.list_extents(0, OffsetRange(0, shown))
    ]
    pair.upload(6)
    assert (pair.end(), pair.follow()) == (shown, 1)
    assert pair.end() == pair.west.manifest().end > shown
    assert pair.offsets() == list(range(pair.end()))
    assert pair.follow() == 0
    assert pair.written() == []
    assert check_cluster(pair.east.store, deep=True, storage=pair.storage).findings == []
    assert check_cluster(pair.west.store, deep=True, storage=pair.west.storage).findings == []


@pytest.mark.fact("F-R-065")
def test_no_job_of_its_cluster_ever_writes_to_the_storage_of_its_source(pair: Pair) -> None:
    pair.upload(8)
    pair.east.create_namespace("shop", {"remote.write": "true", "remote.read": "true", "retention.ms": "1"})
    pair.east.replicate_topic(f"shop:{COPY}", pair.location)
    pair.east.alter_namespace("shop", {"remote.read": "false", "cleanup.policy": "compact"})
    pair.west.clock.now_ms += 30 * DAY
    upkeep = pair.east.upkeep()
    for done in (upkeep.retain(), upkeep.roll(), upkeep.upload(), upkeep.compact(), upkeep.merge()):
        assert (done.partitions, done.errors) == (0, [])
    assert upkeep.store_metadata(ignores_interval=True).written == {}
    pair.east.sweep()
    assert len(read(pair.east.log(f"shop:{COPY}"))) == pair.west.manifest().end
    pair.east.move_topic(f"shop:{COPY}", COPY)
    assert pair.offsets() == list(range(pair.west.manifest().end))
    before = pair.west.objects()
    assert pair.east.delete_topic(COPY)
    pair.east.sweep()
    assert pair.written() == []
    assert pair.west.objects() == before
    assert [listed.key for listed in pair.east.store.list(HEADS)] == []


def test_partitions_that_the_source_gains_come_along(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    quick.west.cluster.alter_topic(TOPIC, partitions=4)
    quick.upload(4, partition=3)
    assert quick.follow() == 1
    assert quick.east.topic(COPY).partitions == 4
    assert quick.offsets(3) == list(range(quick.end(3))) != []


def test_partitions_for_which_a_namespace_has_no_room_keep_no_other_from_its_source(quick: Pair) -> None:
    name = f"shop:{COPY}"
    quick.upload(4)
    quick.east.create_namespace("shop", quotas=QuotaEntry(partitions=2))
    quick.east.replicate_topic(name, quick.location)
    quick.west.cluster.alter_topic(TOPIC, partitions=4)
    quick.upload(4)
    found = quick.follow()
    assert isinstance(found, QuotaExceededError)
    assert "namespace shop may hold 2 partitions" in str(found)
    assert quick.east.log(name).read_bounds()[0].end == quick.west.manifest().end
    assert quick.east.topic(name).partitions == 2


def test_only_what_is_committed_comes(quick: Pair) -> None:
    with quick.west.cluster.producer("tx") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "gone", partition=0)
        producer.send(TOPIC, "gone", partition=0)
        producer.flush()
        producer.abort()
        producer.begin()
        producer.send(TOPIC, "2", partition=0)
        producer.commit()
        quick.produce(4)
        producer.begin()
        producer.send(TOPIC, "7", partition=0)
        producer.flush()
        quick.produce(4)
        quick.upload()
        quick.east.replicate_topic(COPY, quick.location)
        assert quick.offsets() == [2, 3, 4, 5, 6][: quick.end() - 2]
        uncommitted = read(quick.east.log(COPY, isolation="read_uncommitted"))
        assert [row["offset"] for row in uncommitted] == quick.offsets()
        producer.abort()


def test_a_compacted_source_is_shown_as_it_is_compacted() -> None:
    pair = pair_in(
        MemoryStore(), MemoryStore(),
        **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "4500"},
    )  # fmt: skip
    for round_of in range(4):
        for key in "ab":
            with pair.west.cluster.producer() as producer:
                producer.send(TOPIC, f"{key}{round_of}", key=key, partition=0)
    pair.west.upload()
    pair.east.replicate_topic(COPY, pair.location)
    raw = read(pair.east.log(COPY))
    upkeep = pair.west.cluster.upkeep()
    upkeep.compact()
    upkeep.upload()
    pair.follow()
    found, shown = read(pair.east.log(COPY)), pair.end()
    assert found == read(pair.west.cluster.log(TOPIC), stop=shown)
    assert len(found) < len(raw)
    assert pair.written() == []


def test_groups_read_and_commit_on_it_and_their_lag_grows_when_it_follows(quick: Pair) -> None:
    quick.upload(6)
    quick.east.replicate_topic(COPY, quick.location)
    consumer = quick.east.consumer("audit", topics=[COPY])
    first = [record.offset for fetched in consumer.poll() for record in fetched]
    consumer.commit()
    assert first == quick.offsets()
    quick.upload(6)
    assert sum(consumer.lag().values()) == 0
    quick.follow()
    assert sum(consumer.lag().values()) == quick.end() - len(first) > 0
    again = quick.east.consumer("audit", topics=[COPY])
    assert [record.offset for fetched in again.poll() for record in fetched] == list(range(len(first), quick.end()))
    assert quick.written() == []


def test_what_is_fetched_lies_in_the_cache_of_its_own_cluster(quick: Pair, tmp_path: Path) -> None:
    quick.upload(6)
    quick.east.alter_cluster({"cloud_storage_cache_directory": str(tmp_path)})
    quick.east.replicate_topic(COPY, quick.location)
    assert quick.offsets() == list(range(quick.end()))
    quick.storage.calls.clear()
    assert quick.offsets() == list(range(quick.end()))
    assert [key for what, key in quick.storage.calls if what.startswith("get") and key.endswith(".parquet")] == []
    assert [each for each in tmp_path.rglob("*") if each.is_file()]


# -- what is refused


def in_transaction(east: EmbeddedCluster) -> None:
    with east.producer("tx") as producer:
        producer.init_transactions()
        producer.begin()
        producer.append(COPY, values("x"))
        producer.flush()


def at_once(east: EmbeddedCluster) -> None:
    with east.producer() as producer:
        producer.append(COPY, values("x"))


@pytest.mark.parametrize(
    "write",
    [
        at_once,
        in_transaction,
        lambda east: east.appends(COPY),
        lambda east: east.sink(COPY),
        lambda east: east.sequenced_producer("p").append(COPY, 1, values("x"), sequence=0),
    ],
    ids=["producer", "transaction", "appends", "sink", "sequenced"],
)
def test_nobody_writes_to_it(quick: Pair, write: Callable[[EmbeddedCluster], object]) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    heads = {listed.key: listed.hint for listed in quick.east.store.list(HEADS)}
    with pytest.raises(UserError, match=r"is a read replica of .*: to write to it is not possible \(INVALID_TOPIC"):
        write(quick.east)
    assert {listed.key: listed.hint for listed in quick.east.store.list(HEADS)} == heads


def test_it_is_not_changed_unmounted_or_mirrored(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    with pytest.raises(UserError, match=r"read replica of .*: to change it is not possible"):
        quick.east.alter_topic(COPY, {"retention.ms": "1"})
    with pytest.raises(UserError, match=r"read replica of .*: to change it is not possible"):
        quick.east.alter_topic(COPY, partitions=9)
    with pytest.raises(UserError, match=r"read replica of .*: to mirror it is not possible"):
        quick.east.source_topic(COPY)
    quick.east.create_link("dr", LinkEntry("link-1", "west", {"mode": "bidirectional"}))
    with pytest.raises(UserError, match=r"read replica of .*: to become a mirror is not possible"):
        quick.east.linking.mirror_own_mirror(COPY, Peer("dr", COPY, "their-id"), Operation("1", RESTORE))
    with pytest.raises(UserError, match=r"read replica of .*: to unmount it is not possible"):
        quick.east.mounts.unmount(COPY)
    assert quick.east.topic(COPY).hold is None


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("orders/00000000-0000-4000-8000-000000000009/1", "there is no topic at"),
        ("orders", "is not the location of a topic"),
        ("", "is not the location of a topic"),
    ],
)
def test_what_is_not_there_is_followed_by_nobody(quick: Pair, location: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        quick.east.replicate_topic(COPY, location)
    assert quick.east.topics() == {}


def test_another_name_at_the_location_is_refused(quick: Pair) -> None:
    quick.upload(4)
    with pytest.raises(UserError, match="is the topic orders"):
        quick.east.replicate_topic(COPY, quick.location.replace("orders", "payments"))


def test_only_the_super_user_makes_one(quick: Pair) -> None:
    quick.upload(4)
    with pytest.raises(NotAuthorizedError):
        quick.east.acting_as("User:eve").replicate_topic(COPY, quick.location)


def test_with_tiered_storage_off_nothing_of_it_is_read_or_followed(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    quick.east.alter_cluster({"cloud_storage_enabled": "false"})
    quick.upload(4)
    quick.storage.calls.clear()
    assert quick.east.follow_replicas() == {}
    assert quick.offsets() == []
    assert quick.storage.calls == []
    quick.east.alter_cluster({"cloud_storage_enabled": "true"})
    assert quick.follow() == 1
    assert quick.offsets() == list(range(quick.end()))


# -- what its source does meanwhile


def test_what_the_source_lets_go_of_is_skipped_and_then_shown_as_gone(pair: Pair) -> None:
    pair.west.cluster.alter_topic(TOPIC, {"retention.ms": str(DAY)})
    pair.upload(6)
    pair.west.clock.now_ms += 2 * DAY
    pair.upload(6)
    pair.east.replicate_topic(COPY, pair.location)
    pair.upload(2)
    pair.west.cluster.upkeep().retain()
    start = pair.west.manifest().start
    assert 0 < start <= pair.end()
    assert pair.offsets() == list(range(start, pair.end()))
    assert pair.follow() == 1
    bounds = pair.east.log(COPY).read_bounds()[0]
    assert (bounds.start, bounds.end) == (start, pair.west.manifest().end)
    assert pair.offsets() == list(range(start, pair.end()))


def test_a_source_that_was_deleted_is_said_and_its_new_namesake_is_another_topic(pair: Pair) -> None:
    pair.upload(6)
    location = pair.location
    pair.east.replicate_topic(COPY, location)
    end = pair.end()
    assert pair.west.cluster.delete_topic(TOPIC)
    pair.west.cluster.create_topic(TOPIC, partitions=2, configs={**BOTH, "segment.bytes": "14"})
    pair.upload(6)
    for _ in range(2):
        found = pair.follow()
        assert isinstance(found, UserError)
        assert f"its source {location} was deleted" in found.message
        assert SOURCE_GONE in found.message
    replica = pair.east.topic(COPY).replica
    assert replica is not None
    assert replica.trouble is not None
    assert replica.trouble.code == SOURCE_GONE
    assert pair.end() == end
    with pytest.raises(MissingObjectError) as missing:
        pair.offsets()
    assert f"The source {location} of this read replica was deleted" in missing.value.hint
    assert pair.written() == []
    assert pair.east.delete_topic(COPY)
    pair.east.replicate_topic(COPY, pair.location)
    assert pair.offsets() == list(range(pair.end()))


def test_a_source_whose_description_comes_back_is_followed_again(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    where = TopicLocation.parse(quick.location)
    key = build_topic_manifest_key(where.cluster_id, where.revision)
    there = quick.west.storage.get(key)
    assert there is not None
    quick.west.storage.delete([key])
    assert isinstance(quick.follow(), UserError)
    assert quick.offsets() == list(range(quick.end()))
    quick.west.storage.put(key, there.body)
    assert quick.follow() == 0
    assert quick.east.topic(COPY).replica == replace(quick.east.topic(COPY).replica, trouble=None)  # type: ignore[type-var]


def test_a_source_that_comes_back_is_not_called_deleted_though_there_is_no_room_for_its_new_partitions(
    quick: Pair,
) -> None:
    name = f"shop:{COPY}"
    quick.upload(4)
    quick.east.create_namespace("shop", quotas=QuotaEntry(partitions=2))
    quick.east.replicate_topic(name, quick.location)
    quick.west.cluster.alter_topic(TOPIC, partitions=4)
    quick.upload(4)
    where = TopicLocation.parse(quick.location)
    key = build_topic_manifest_key(where.cluster_id, where.revision)
    there = quick.west.storage.get(key)
    assert there is not None
    quick.west.storage.delete([key])
    assert SOURCE_GONE in str(quick.follow())
    quick.west.storage.put(key, there.body)
    assert isinstance(quick.follow(), QuotaExceededError)
    assert quick.east.topic(name).replica.trouble is None  # type: ignore[union-attr]


def test_another_bucket_says_nothing_of_the_source(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    stranger = EmbeddedCluster.open(
        quick.east.store, now_ms=quick.west.clock, new_id=ids(), storage=MemoryStore()
    )  # fmt: skip
    (found,) = stranger.follow_replicas().values()
    assert isinstance(found, UserError)
    assert "object storage" in found.message
    assert quick.east.topic(COPY).replica.trouble is None  # type: ignore[union-attr]
    with pytest.raises(UserError, match="has records there"):
        stranger.alter_cluster({})


def test_an_older_copy_of_a_manifest_takes_nothing_back(quick: Pair) -> None:
    quick.upload(4)
    register = manifest_register(quick.west.storage, quick.west.remote())
    older = quick.west.storage.get(register.key)
    assert older is not None
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    end, newer = quick.end(), quick.west.storage.get(register.key)
    assert newer is not None
    quick.west.storage.put(register.key, older.body)
    found = quick.follow()
    assert isinstance(found, UserError)
    assert "it is an older copy" in found.message
    assert quick.end() == end
    with pytest.raises(MissingObjectError, match=r"manifest\.json in .* ends at offset \d+: it is an older copy"):
        quick.offsets()
    quick.west.storage.put(register.key, newer.body)
    assert quick.follow() == 0
    assert quick.offsets() == list(range(end))


OFF_WITH_DELETE = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}


def test_a_source_that_gave_up_what_was_remote_is_followed_and_its_return_is_too(pair: Pair) -> None:
    pair.upload(6)
    pair.west.cluster.alter_cluster({"retention_local_target_capacity_bytes": "1"})
    pair.west.cluster.upkeep().retain()
    pair.upload(6)
    pair.east.replicate_topic(COPY, pair.location)
    shown, consumer = pair.end(), pair.east.consumer("audit", topics=[COPY])
    assert len([record for fetched in consumer.poll() for record in fetched]) == shown
    consumer.commit()
    pair.west.cluster.alter_topic(TOPIC, OFF_WITH_DELETE)
    emptied = pair.west.manifest()
    assert 0 < emptied.start == emptied.end < shown
    with pytest.raises(UserError, match=r"source .* deleted its records in object storage") as given_up:
        pair.offsets(start=emptied.end)
    assert "run --once --only replicas" in given_up.value.hint
    assert (pair.follow(), pair.follow()) == (1, 0)
    assert (pair.end(), pair.offsets()) == (emptied.end, [])
    findings = check_cluster(pair.east.store, deep=True, storage=pair.storage).findings
    assert [finding.kind for finding in findings] == [Kind.GROUP_BEYOND]
    pair.west.cluster.alter_topic(TOPIC, {"remote.write": "true", "remote.read": "true"})
    for count in (0, 6):
        pair.upload(count)
        assert pair.follow() == 1
        assert pair.offsets() == list(range(emptied.end, pair.end()))
    assert [record.offset for fetched in consumer.poll() for record in fetched] == list(range(shown, pair.end()))
    assert pair.written() == []


def test_a_replica_of_an_earlier_version_follows_a_source_that_gave_up_what_was_remote(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    topic_id = quick.east.topic(COPY).id
    register = head_register(quick.east.store, topic_id, 0)
    held = register.read()
    assert held is not None
    head = parse_head(quick.east.store, register.key, held.value)
    register.swap(held, replace(head, tiered_epoch=0).to_json(), mark="earlier")
    quick.west.cluster.alter_topic(TOPIC, OFF_WITH_DELETE)
    assert quick.follow() == 1
    assert quick.end() == quick.west.manifest().end == 0


def cut(pair: Pair, at: int) -> None:
    """Cut the source in object storage, as a mirror that is restored is: what follows lies under another epoch."""
    epoch = pair.west.manifest().epochs[-1][0] + 1

    def shorter(manifest: Any) -> Any:
        kept = tuple(entry for entry in manifest.entries if entry.last < at)
        return replace(manifest, end=at, epochs=(*manifest.epochs, (epoch, at)), pages=(), entries=kept)

    swap = ManifestSwap(pair.west.storage, pair.west.cluster.cluster_id, pair.west.tiering())
    swap(pair.west.remote(), shorter)


def test_a_source_that_was_cut_is_an_error_until_it_is_followed(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    end = quick.end()
    cut(quick, 2)
    with pytest.raises(UserError, match="was cut at offset 2 and continues with other records"):
        quick.offsets()
    assert quick.end() == end
    assert quick.follow() == 1
    assert quick.end() == 2
    assert quick.offsets() == [0, 1]


def test_a_reader_goes_on_over_a_merge_that_deletes_what_it_was_about_to_read(pair: Pair) -> None:
    pair.upload(24)
    pair.east.replicate_topic(COPY, pair.location)
    end, seen = pair.end(), list[int]()
    for batch in pair.east.log(COPY).read(0, OffsetRange(0, end)):
        seen += batch.column("offset").to_pylist()
        if len(seen) == 1:
            pair.west.switch_on(segment_size_target="20000", segment_size_min="1")
            segments = pair.west.manifest().segments
            pair.west.cluster.upkeep().merge()
            assert pair.west.manifest().segments < segments
    assert seen == list(range(end))


def test_readers_get_the_right_records_or_an_error_whatever_the_source_does(quick: Pair) -> None:
    quick.west.switch_on(segment_size_target="9000", segment_size_min="1")
    quick.west.cluster.alter_topic(TOPIC, {"retention.ms": str(DAY)})
    quick.upload(6)
    quick.east.replicate_topic(COPY, quick.location)
    is_over, wrong, reads, merged = threading.Event(), list[str](), itertools.count(), 0

    def follow() -> None:
        while not is_over.is_set():
            found = quick.follow()
            if isinstance(found, ReconcilerError):
                wrong.append(str(found))

    def look() -> None:
        while not is_over.is_set():
            log = quick.east.log(COPY)
            bounds = log.read_bounds()[0]
            with suppress(MissingObjectError):
                rows = read(log, 0, bounds.start, bounds.end)
                next(reads)
                offsets = [row["offset"] for row in rows]
                if any(row["value"] != str(row["offset"]).encode() for row in rows):
                    wrong.append("a record is not the one of its offset")
                lacking = set(range(bounds.start, bounds.end)).difference(offsets)
                if any(offset >= quick.west.manifest().start for offset in lacking) or sorted(offsets) != offsets:
                    wrong.append(f"{offsets} of {bounds}")  # what retention has taken may be missing, nothing else

    threads = [threading.Thread(target=each) for each in (follow, look, look)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        quick.upload(6)
        upkeep = quick.west.cluster.upkeep()
        merged += upkeep.merge().partitions
        quick.west.clock.now_ms += DAY // 2
        upkeep.retain()
    is_over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (next(reads) > 0, merged > 0) == (True, True)
    quick.follow()
    assert quick.offsets() == list(range(quick.west.manifest().start, quick.west.manifest().end))
    assert quick.written() == []


# -- crashes and races of those who follow


@pytest.mark.parametrize("is_done", [False, True])
def test_whoever_dies_while_following_is_followed_by_the_next(quick: Pair, is_done: bool) -> None:  # noqa: FBT001 - a case
    quick.upload(6)
    quick.upload(6, partition=1)
    for at in itertools.count():
        store = MemoryStore()
        EmbeddedCluster.create(
            store, "follower", now_ms=quick.west.clock, new_id=ids(), storage=quick.storage
        ).alter_cluster({"cloud_storage_enabled": "true"})
        fragile = dying(store, at, done=is_done)
        dead = EmbeddedCluster.open(fragile, now_ms=quick.west.clock, new_id=ids(), storage=quick.storage)
        try:
            dead.replicate_topic(COPY, quick.location)
            is_over = True
        except DiedError:
            is_over = False
        east = EmbeddedCluster.open(store, now_ms=quick.west.clock, new_id=ids(), storage=quick.storage)
        if COPY not in east.topics():
            east.replicate_topic(COPY, quick.location)
        east.follow_replicas()
        found = replace(quick, east=east)
        assert [found.offsets(number) for number in (0, 1)] == [list(range(found.end(number))) for number in (0, 1)]
        assert check_cluster(store, deep=True, storage=quick.storage).findings == []
        if is_over:
            break
    assert at > 1
    assert quick.written() == []


def test_a_replica_that_is_deleted_while_it_is_followed_leaves_nothing(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    quick.upload(4, partition=1)

    def delete(_what: str, key: str) -> None:
        if key.startswith(HEADS):
            late.before = lambda _what, _key: None
            quick.east.delete_topic(COPY)

    late = WatchedStore(quick.east.store, before=delete)
    EmbeddedCluster.open(late, now_ms=quick.west.clock, new_id=ids(), storage=quick.storage).follow_replicas()
    assert [listed.key for listed in quick.east.store.list(HEADS)] == []


def test_its_heads_belong_to_no_client(quick: Pair) -> None:
    quick.upload(4)
    quick.east.replicate_topic(COPY, quick.location)
    heads = read_heads(quick.east.store, quick.east.topic(COPY).id)
    assert {head.writer for head in heads.values()} == {REPLICA}
    assert all((head.entries, head.pages) == ((), ()) for head in heads.values())
    assert head_of(quick.west.cluster).writer != REPLICA


def test_a_missing_index_is_made_up_for(quick: Pair) -> None:
    quick.upload(6)
    quick.east.replicate_topic(COPY, quick.location)
    quick.west.storage.delete([build_index_key(entry.key) for entry in quick.west.segments()])
    assert quick.offsets() == list(range(quick.end()))


def test_the_source_may_be_mounted_elsewhere_and_its_location_is_followed_on(quick: Pair) -> None:
    quick.upload(6)
    location = quick.location
    quick.east.replicate_topic(COPY, location)
    quick.west.cluster.mounts.unmount(TOPIC)
    quick.west.cluster.mounts.finish()
    assert TOPIC not in quick.west.cluster.topics()
    assert not isinstance(quick.follow(), ReconcilerError)
    where = TopicLocation.parse(location)
    assert quick.end() == 6
    assert quick.offsets() == list(range(6))
    assert remote_partition(where, 0).key.startswith("topics/")
