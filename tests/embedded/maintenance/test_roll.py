"""A closed segment becomes one file, and nobody can tell by reading."""

from __future__ import annotations

import resource
import tempfile
from dataclasses import replace
from os import urandom as random_bytes
from tempfile import gettempdir

import pytest

from reconciler.archives.entries import STALE_REWRITE_MS
from reconciler.embedded.keys import head_key
from reconciler.embedded.maintenance.chores import Chore, ChoreTask
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments import parts
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite, publish_local
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    TOPIC,
    TWO_PARTS,
    Clock,
    append,
    append_parts,
    clocked,
    digest_in,
    head_of,
    held,
    named_in,
    parts_in,
    with_topic,
)
from tests.embedded.samples import NOW, numbered
from tests.embedded.stores import LateStore, WatchedStore


def test_records_offsets_times_and_digest_stay() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes="20000")
    for number in range(40):
        append(cluster, (f"k{number}", f"v{number}"), (None, ""), ("", None), at_ms=NOW - number % 7)
    before, digest = held(cluster), digest_in(cluster)
    done = cluster.upkeep().roll()
    assert done.partitions == 1
    assert done.records >= 90
    head = head_of(cluster)
    files = [entry for entry in head.entries if entry.is_segment]
    assert len(files) == 3
    assert all(entry.digest.records > 20 for entry in files)
    assert held(cluster) == before
    assert digest_in(cluster) == digest
    assert parts_in(cluster.store) == named_in(cluster)
    assert cluster.upkeep().roll() == MaintenanceResult()


def test_of_every_range_the_digest_is_as_before() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 9)
    log = cluster.log(TOPIC)

    def digests() -> list[object]:
        return [
            sum((digest.total + digest.weighted for digest in log.read_digests(0, OffsetRange(start, stop))), 0)
            % (1 << 128)
            for start in range(18)
            for stop in range(start, 19)
        ]

    before = digests()
    cluster.upkeep().roll()
    assert digests() == before


def test_a_segment_that_is_one_part_is_only_marked() -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes="2000")
    append_parts(cluster, 3)
    parts = parts_in(store)
    store.calls.clear()
    assert cluster.upkeep().roll() == MaintenanceResult(partitions=1)
    assert parts_in(store) == parts
    assert [entry.is_segment for entry in head_of(cluster).entries] == [True, True, False]
    assert [what for what, key in store.calls if key.startswith("heads/") and what == "swap"] == ["swap"]


@pytest.mark.parametrize("parts", [100, pytest.param(700, marks=pytest.mark.soak)])
def test_segments_that_lie_in_pages_are_replaced_there(parts: int) -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes="40000")
    for number in range(parts):
        append(cluster, (None, str(number)))
    before, digest = held(cluster), digest_in(cluster)
    assert len(head_of(cluster).pages) > 1
    cluster.upkeep().roll()
    head = head_of(cluster)
    assert held(cluster) == before
    assert digest_in(cluster) == digest
    assert sum(page.entries for page in head.pages) + len(head.entries) < 60
    assert {listed.key for listed in cluster.store.list("pages/")} == {page.key for page in head.pages}
    assert parts_in(cluster.store) == named_in(cluster)
    append(cluster, (None, "next"))
    assert held(cluster)[-1]["offset"] == parts


def test_pages_stay_where_the_first_try_of_a_roll_lands_late() -> None:
    store = LateStore()
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes="4000")
    for number in range(200):
        append(cluster, (None, str(number)))
    before = held(cluster)
    assert len(head_of(cluster).pages) > 1
    store.late_key = head_key(cluster.topic(TOPIC).id, 0)
    cluster.upkeep().roll()
    assert store.is_over
    assert head_of(cluster).pages
    assert held(cluster) == before
    assert {listed.key for listed in store.list("pages/")} == {page.key for page in head_of(cluster).pages}


def test_gaps_survive() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 1)
    with cluster.producer("t") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "never", partition=0)
        producer.flush()
        append_parts(cluster, 1)
        producer.abort()
    append_parts(cluster, 3)
    before = held(cluster)
    assert [row["offset"] for row in before] == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert cluster.upkeep().roll().partitions == 1
    assert held(cluster) == before
    assert not head_of(cluster).entries[0].is_dense


def test_nothing_of_an_open_transaction_is_rolled() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 2)
    with cluster.producer("t") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(TOPIC, "open", partition=0)
        producer.flush()
        append_parts(cluster, 5)
        cluster.upkeep().roll()
        assert [entry.is_segment for entry in head_of(cluster).entries] == [True, *[False] * 6]
        producer.commit()
    cluster.upkeep().roll()
    assert [entry.is_segment for entry in head_of(cluster).entries] == [True, True, True, False, False]


def test_parts_that_say_something_else_than_the_head_are_not_taken_over() -> None:
    cluster, _ = clocked()
    with_topic(cluster, partitions=2, segment_bytes=TWO_PARTS)
    append_parts(cluster, 3, partition=0)
    append_parts(cluster, 3, partition=1)
    ours, theirs = head_of(cluster, 0).entries, head_of(cluster, 1).entries
    body = cluster.store.get(theirs[1].key)
    assert body is not None
    cluster.store.put(ours[0].key, body.body)
    before = parts_in(cluster.store)
    done = cluster.upkeep().roll()
    assert (done.partitions, done.failed) == (1, 1)
    assert "its records do not match the digest in the head" in done.errors[0].message
    assert head_of(cluster, 0).entries == ours
    assert before - parts_in(cluster.store) == {entry.key for entry in theirs[:2]}
    assert len(parts_in(cluster.store) - before) == 1


def test_a_reader_under_way_reads_every_record_once() -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes="9000")
    append_parts(cluster, 12)
    log = cluster.log(TOPIC)
    batches, extents = log.read(0, ALL), log.iter_part_ranges(0, ALL)
    seen = next(batches).column("offset").to_pylist()
    covered = [next(extents).offsets]
    cluster.upkeep().roll()
    seen += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    covered += [piece.offsets for piece in extents]
    assert seen == list(range(24))
    assert [offset for cut in covered for offset in range(cut.start, cut.stop)] == list(range(24))


@pytest.mark.thorough
def test_a_large_segment_is_read_row_group_by_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store)
    with_topic(cluster, segment_bytes="100MB")
    sink = cluster.sink(TOPIC)
    for start in range(0, 400_000, 50_000):
        at = OffsetRange(start, start + 50_000)
        sink.publish([sink.stage(0, [numbered(start, 50_000)], at=at)])
    cluster.alter_topic(TOPIC, {"segment.ms": "350s"})
    append(cluster, (None, "later"), at_ms=NOW + 700_000)
    digest = digest_in(cluster)
    cluster.upkeep().roll()
    assert digest_in(cluster) == digest
    file = head_of(cluster).entries[0]
    assert file.is_segment
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    monkeypatch.setattr(parts, "_WHOLE_BYTES", 1)
    store.calls.clear()
    first = next(cluster.log(TOPIC).read(0, OffsetRange(0, file.last + 1)))
    assert first.column("offset")[0].as_py() == 0
    assert 1 < store.count("get_range") < 10
    assert sum(batch.num_rows for batch in cluster.log(TOPIC).read(0, ALL)) == 400_001


def test_a_mirror_takes_rolled_segments_over_as_they_are() -> None:
    west, _ = clocked()
    with_topic(west, segment_bytes=TWO_PARTS)
    append_parts(west, 6)
    west.upkeep().roll()
    east, _ = clocked()
    with_topic(east, segment_bytes=TWO_PARTS)
    source, sink = west.log(TOPIC), east.sink(TOPIC)
    sink.publish([sink.stage_copy(0, source, OffsetRange(0, 12))])
    assert held(east) == held(west)
    ours, theirs = head_of(east).entries, head_of(west).entries
    assert [replace(entry, key="") for entry in ours] == [replace(entry, key="", producer=None) for entry in theirs]


def test_a_copy_under_way_reads_what_was_rolled_meanwhile() -> None:
    west, _ = clocked()
    with_topic(west, segment_bytes=TWO_PARTS)
    append_parts(west, 7)
    east, _ = clocked()
    with_topic(east)
    sink = east.sink(TOPIC)
    copied = []

    class Rolling(MemoryStore):
        """A destination during whose first copy the source is rolled."""

        def copy_from(self, key: str, source: object, source_key: str, *, kms_key_id: str | None = None) -> None:
            super().copy_from(key, source, source_key, kms_key_id=kms_key_id)  # type: ignore[arg-type]  # a store
            if not copied:
                west.upkeep().roll()
            copied.append(key)

    rolling = Rolling(east.store.url.removeprefix("memory://"))
    moved = replace(sink, gate=replace(sink.gate, store=rolling))
    sink.publish([moved.stage_copy(0, west.log(TOPIC), OffsetRange(0, 14))])
    assert held(east) == held(west)
    assert digest_in(east) == digest_in(west)
    assert len(copied) < 7


def test_what_an_executor_wrote_into_a_copy_of_the_folder_replaces_nothing() -> None:
    cluster, clock = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    before, partition = parts_in(cluster.store), Partition(TOPIC, cluster.topic(TOPIC).id, 0)
    (written,) = ChoreTask(cluster.store, cluster.catalog, cluster.cluster_id, "roll", clock.now_ms)(
        [Chore(partition, 0)]
    )
    assert isinstance(written, PartitionRewrite)
    cluster.store.delete([key for one in written.replacements for key in one.written])
    with pytest.raises(UserError, match="is not visible to the executor on worker-7"):
        publish_local(cluster.store, replace(written, written_by="worker-7:4711"), put_ms=clock.now_ms, now_ms=clock)
    assert parts_in(cluster.store) == before


@pytest.mark.parametrize("job", ["roll", "compact"])
def test_a_partition_that_takes_hours_to_write_anew_is_done_in_the_end(job: str) -> None:
    clock = Clock()

    def sleep(what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/"):
            clock.now_ms += 60 * 60 * 1000

    store = WatchedStore(MemoryStore())
    cluster, _ = clocked(store, clock)
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"} if job == "compact" else {}
    with_topic(cluster, segment_bytes=TWO_PARTS, **policy)
    append_parts(cluster, 9)
    rows, store.before = held(cluster), sleep
    assert getattr(cluster.upkeep(), job)().partitions == 1
    assert clock.now_ms >= NOW + 4 * 60 * 60 * 1000
    assert sum(entry.is_segment for entry in head_of(cluster).entries) == 4
    assert held(cluster) == rows
    assert parts_in(store) == named_in(cluster)


def test_a_segment_too_large_for_the_disk_of_temporary_files_keeps_no_other_waiting() -> None:
    cluster, _ = clocked()
    with_topic(cluster, partitions=2, segment_ms="1000")
    for at_ms in (NOW - 5_000, NOW - 5_000, NOW):
        append(cluster, *[(None, random_bytes(2_000).hex()) for _ in range(50)], partition=0, at_ms=at_ms)
        append(cluster, (None, "x"), partition=1, at_ms=at_ms)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        done = cluster.upkeep().roll()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.partitions == 1
    (error,) = done.errors
    assert f"{TOPIC}, partition 0: cannot write a temporary file in {gettempdir()} (TMPDIR names another" in str(error)
    assert parts_in(cluster.store) == named_in(cluster, 2)


def test_where_there_is_no_folder_for_temporary_files_it_is_said_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, _ = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    (error,) = cluster.upkeep().roll().errors
    assert "no folder for temporary files" in error.message
    assert "TMPDIR" in error.hint


def test_what_lay_unpublished_for_half_a_day_is_dropped() -> None:
    cluster, clock = clocked()
    with_topic(cluster, segment_bytes=TWO_PARTS)
    append_parts(cluster, 5)
    before, partition = parts_in(cluster.store), Partition(TOPIC, cluster.topic(TOPIC).id, 0)
    task = ChoreTask(cluster.store, cluster.catalog, cluster.cluster_id, "roll", clock.now_ms)
    (written,) = task([Chore(partition, 0)])
    assert isinstance(written, PartitionRewrite)
    assert len(parts_in(cluster.store)) == len(before) + 2
    late = clock.now_ms + STALE_REWRITE_MS + 1
    assert publish_local(cluster.store, written, put_ms=clock.now_ms, now_ms=lambda: late) is None
    assert parts_in(cluster.store) == before
    assert not any(entry.is_segment for entry in head_of(cluster).entries)
