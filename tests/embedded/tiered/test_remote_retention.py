"""Retention on two tiers: what is remote expires, what is uploaded leaves the local tier, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.archives.entries import Entry
from reconciler.archives.manifest import Manifest, ManifestSpill, RemotePartition
from reconciler.archives.pages import iter_all_entries, read_page
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments.retention import CleanupPolicy, SegmentLimits, iter_live_entries
from reconciler.embedded.tiered.remote_retention import Expiry, expire_below, plan_expiry
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    append,
    append_parts,
    clocked,
    head_of,
    held,
    named_in,
    parts_in,
    with_topic,
)
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

KEEP: Mapping[str, str] = {"retention_ms": "-1", "retention_local_target_ms": "-1"}
"""Configs under which nothing goes by itself."""


def offsets(it: Tiered, partition: int = 0) -> list[int]:
    """Return the offsets a reader finds, on both tiers."""
    return [row["offset"] for row in held(it.opened(), partition)]


def agrees(it: Tiered, partition: int = 0) -> None:
    """See that head, manifest and objects agree: nothing is named that is not there, and nothing is left over."""
    head, manifest = head_of(it.cluster, partition), it.manifest(partition)
    assert head.start <= head.local_start <= head.end
    assert manifest.start <= max(head.start, manifest.start)
    assert not manifest.garbage
    named = {key for entry in it.segments(partition) for key in (entry.key, entry.key.replace(".parquet", ".index"))}
    assert it.objects() == named
    pages = {listed.key for listed in it.storage.list("topics/") if "/pages/" in listed.key}
    assert pages == {page.key for page in manifest.pages}
    assert parts_in(it.store) == {entry.key for entry in _local(it, partition)}
    assert {listed.key for listed in it.store.list("pages/")} == {page.key for page in head.pages if not page.level}


def _local(it: Tiered, partition: int) -> list[Any]:
    return list(iter_live_entries(it.store, head_of(it.cluster, partition)))


def remote_bytes(it: Tiered, partition: int = 0) -> int:
    return it.manifest(partition).stored_bytes


# -- the total retention, on what is remote


@pytest.mark.fact("F-R-015")
@pytest.mark.fact("F-R-017")
def test_remote_bytes_of_each_partition_are_at_most_retention_bytes() -> None:
    it = tiered(partitions=2, **KEEP)
    it.fill(13)
    it.fill(3, partition=1)
    it.upload()
    size = remote_bytes(it) // 6
    it.cluster.alter_topic(TOPIC, {"retention.bytes": str(3 * size + size // 2)})
    done = it.cluster.upkeep().retain()
    assert (done.partitions, done.failed) == (1, 0)
    assert done.records == 3 * 4
    assert 2 * size < remote_bytes(it) <= 3 * size + size // 2
    assert head_of(it.cluster).start == it.manifest().start == 12
    assert offsets(it) == list(range(12, 26))
    assert offsets(it, 1) == list(range(6))
    assert it.cluster.upkeep().retain() == MaintenanceResult()


def test_what_expired_is_gone_from_both_tiers_and_what_is_not_uploaded_stays() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.fill(4)
    it.clock.now_ms += DAY + 1
    it.cluster.upkeep().retain()
    head = head_of(it.cluster)
    assert (head.start, head.local_start, head.uploaded_to, head.end) == (8, 8, 8, 18)
    assert offsets(it) == list(range(8, 18))
    assert it.segments() == []
    agrees(it)


@pytest.mark.fact("F-R-021")
@pytest.mark.parametrize("pause", ["enable_segment_uploads", "enabled"])
def test_what_is_not_uploaded_stays_past_its_retention_also_while_uploads_pause(pause: str) -> None:
    it = tiered(retention_ms="1", retention_bytes="0", retention_local_strict="true")
    it.switch_on(**{pause: "false"})
    it.fill(7)
    it.clock.now_ms += 9 * DAY
    it.cluster.upkeep().roll()
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    assert offsets(it) == list(range(14))
    it.switch_on(**{pause: "true"})
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.upload()
    it.cluster.upkeep().retain()
    assert offsets(it) == [12, 13]


@pytest.mark.fact("F-R-018")
@pytest.mark.fact("F-R-019")
def test_compact_alone_keeps_all_that_is_remote_and_both_let_it_expire() -> None:
    it = tiered(cleanup_policy="compact", retention_ms="1", retention_bytes="1")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.cluster.alter_topic(TOPIC, {"cleanup.policy": "compact,delete"})
    assert it.cluster.upkeep().retain().records == 8
    assert offsets(it) == [8, 9]
    agrees(it)


def test_limits_are_those_the_rules_made_of_the_configs() -> None:
    # The total time is raised to the local one (F-R-027).
    it = tiered(retention_ms="1000", retention_local_target_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.clock.now_ms += 1
    assert it.cluster.upkeep().retain().records == 8


@pytest.mark.fact("F-R-038")
@pytest.mark.fact("F-K-058")
@pytest.mark.parametrize("off", [{"remote.write": "false"}, {"remote.write": "false", "remote.read": "false"}])
def test_where_nothing_is_uploaded_any_more_both_tiers_expire_remote_first(off: Mapping[str, str | None]) -> None:
    it = tiered(**KEEP, retention_local_strict="true")
    it.fill(9)
    it.upload()
    size = remote_bytes(it) // 4
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": str(2 * size)})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 12
    it.cluster.alter_topic(TOPIC, off)
    it.cluster.finish_disablings()
    it.fill(4)
    # Nothing is evicted any more, however small the local target is.
    it.cluster.upkeep().roll()
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    assert head_of(it.cluster).local_start == 12
    newest = head_of(it.cluster).entries[-1].bytes
    for left, start in ((5, 4), (4, 8), (3, 12), (2, 16), (1, 20), (0, 24)):
        it.cluster.alter_topic(TOPIC, {"retention.bytes": str(left * size + newest + size // 2)})
        it.cluster.upkeep().retain()
        head = head_of(it.cluster)
        assert (head.start, head.local_start) == (start, max(start, 12))
        assert it.manifest().start == min(start, 16)
        assert offsets(it) == list(range(start, 26))
        agrees(it)


@pytest.mark.parametrize("left", [7, 5, 3, 1])
def test_what_goes_from_both_tiers_does_not_count_as_bytes_that_are_kept(left: int) -> None:
    it = tiered(**KEEP)
    it.fill(17)
    it.upload()
    it.cluster.alter_topic(TOPIC, {"remote.write": "false", "remote.read": "false"})
    it.cluster.finish_disablings()
    head = head_of(it.cluster)
    assert (head.local_start, head.uploaded_to) == (0, 32)
    kept = head.entries[-1 - left :]
    limit = sum(entry.bytes for entry in kept) + kept[0].bytes // 2
    it.cluster.alter_topic(TOPIC, {"retention.bytes": str(limit)})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).start == kept[0].base
    assert offsets(it) == list(range(kept[0].base, 34))
    agrees(it)


def test_a_pass_whose_own_cut_took_pages_of_the_head_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    it = tiered(**KEEP)
    it.fill(9)
    it.cluster.alter_topic(TOPIC, {"remote.write": "false"})
    assert head_of(it.cluster).pages
    it.cluster.alter_topic(TOPIC, {"retention.bytes": "0"})
    done = it.cluster.upkeep().retain()
    assert (done.errors, done.partitions) == ([], 1)
    assert not head_of(it.cluster).pages
    assert offsets(it) == [16, 17]


def test_where_nothing_is_uploaded_any_more_both_tiers_expire_by_time() -> None:
    it = tiered(**KEEP)
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY
    it.fill(4)
    it.cluster.alter_topic(TOPIC, {"remote.write": "false", "retention.ms": "2d", "retention.local.target.ms": "1d"})
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.clock.now_ms += DAY + 1
    assert it.cluster.upkeep().retain().records == 8
    assert offsets(it) == list(range(8, 18))
    it.clock.now_ms += DAY
    assert it.cluster.upkeep().retain().records == 8
    assert offsets(it) == [16, 17]
    agrees(it)


def test_a_topic_that_was_never_uploaded_and_is_not_to_be_is_kept_as_any_other() -> None:
    it = tiered(remote_write="false", retention_ms="1d", retention_local_target_ms="1h")
    it.fill(5)
    it.clock.now_ms += DAY + 1
    assert it.cluster.upkeep().retain().records == 8
    assert offsets(it) == [8, 9]


def test_a_cluster_without_object_storage_expires_a_topic_that_would_be_tiered() -> None:
    cluster, clock = clocked()
    with_topic(cluster, remote_write="true", retention_ms="1d", segment_bytes="4500")
    append_parts(cluster, 5)
    clock.now_ms += DAY + 1
    assert cluster.upkeep().retain().records == 8


def test_without_its_object_storage_nothing_of_a_tiered_topic_goes_and_it_is_said() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    without = it.opened()
    without.storage = None
    done = without.upkeep().retain()
    assert (done.partitions, done.failed) == (0, 1)
    assert "opened without one" in done.errors[0].message
    assert offsets(it) == list(range(10))


@pytest.mark.fact("F-R-068")
def test_a_long_history_goes_page_by_page_and_no_page_is_left_behind() -> None:
    it = tiered(**KEEP, segment_bytes="14")
    it.switch_on(spillover_manifest_size="1024")
    for number in range(120):
        append(it.cluster, (None, str(number)), at_ms=it.clock.now_ms + number)
    it.upload()
    pages = it.manifest().pages
    assert len(pages) > 5
    cut = pages[3].base + 1
    it.cluster.alter_topic(TOPIC, {"retention.ms": "1d", "retention.local.target.ms": "1d"})
    it.clock.now_ms += DAY + cut
    it.cluster.upkeep().retain()
    assert offsets(it) == list(range(cut, 120))
    agrees(it)
    it.clock.now_ms += 120
    it.cluster.upkeep().retain()
    assert offsets(it) == [119]
    assert it.manifest().segments == 0
    agrees(it)


def test_a_second_pass_reads_neither_heads_nor_manifests_until_something_is_due() -> None:
    store, storage = WatchedStore(MemoryStore()), WatchedStore(MemoryStore())
    it = tiered(partitions=12, storage=storage, retention_ms="1d", retention_local_strict="true")
    for partition in range(12):
        append_parts(it.cluster, 5, partition=partition, at_ms=it.clock.now_ms + partition)
    it.upload()
    watching = it.opened(WatchedStore(it.store))
    watched = watching.store
    assert isinstance(watched, WatchedStore)
    assert watching.upkeep().retain() == MaintenanceResult()
    storage.calls.clear()
    watched.calls.clear()
    assert watching.upkeep().retain() == MaintenanceResult()
    assert storage.calls == []
    assert watched.count("get", "heads/") == 0
    # When the oldest segment of one partition expires, that one is looked at.
    it.clock.now_ms += DAY + 1
    assert watching.upkeep().retain().partitions == 1
    assert {key.split("/")[3] for what, key in storage.calls if what == "get"} == {"00000"}
    assert store.calls == []


def test_the_start_of_the_log_is_raised_before_the_manifest_and_that_before_objects_go() -> None:
    calls: list[tuple[str, str]] = []
    it = tiered(retention_ms="1d")
    it.fill(3)
    it.upload()
    it.clock.now_ms += DAY + 1

    def note(what: str, key: str) -> None:
        calls.append((what, key.rpartition(".")[2] if key.startswith("topics/") else key.partition("/")[0]))

    it.opened(WatchedStore(it.store, before=note), WatchedStore(it.storage, before=note)).upkeep().retain()
    assert calls == [
        ("swap", "heads"),
        ("delete", "parquet"),
        ("swap", "json"),
        ("delete", "parquet"),
        ("delete", "index"),
        ("swap", "json"),
    ]


# -- the local retention


@pytest.mark.fact("F-R-022")
@pytest.mark.fact("F-R-023")
@pytest.mark.fact("F-K-041")
def test_strict_what_is_beyond_the_local_target_goes_once_it_is_uploaded_and_stays_readable() -> None:
    it = tiered(retention_ms="-1", retention_local_target_ms="1d", retention_local_strict="true")
    it.fill(7)
    it.clock.now_ms += DAY + 1
    before = held(it.opened())
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.upload()
    done = it.cluster.upkeep().retain()
    assert (done.partitions, done.records) == (1, 0)
    assert done.bytes > 0
    head = head_of(it.cluster)
    assert (head.start, head.local_start, head.end) == (0, 12, 14)
    assert held(it.opened()) == before
    agrees(it)
    assert it.cluster.upkeep().retain() == MaintenanceResult()


@pytest.mark.fact("F-R-023")
def test_not_strict_what_is_beyond_the_local_target_stays_while_there_is_space() -> None:
    it = tiered(retention_ms="-1", retention_local_target_ms="1", retention_local_target_bytes="1")
    it.fill(7)
    it.upload()
    it.clock.now_ms += DAY
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    assert head_of(it.cluster).local_start == 0


def test_strict_local_bytes_are_at_most_the_local_target_but_for_what_must_stay() -> None:
    it = tiered(**KEEP, retention_local_strict="true")
    it.fill(13)
    it.upload()
    size = head_of(it.cluster).stored_bytes // 13 * 2
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": str(3 * size)})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 16
    assert head_of(it.cluster).stored_bytes <= 3 * size
    it.fill(8)
    it.clock.now_ms += 1
    it.cluster.upkeep().retain()
    # Nothing of what is not uploaded, and nothing of the open segment.
    assert head_of(it.cluster).local_start == 24
    assert offsets(it) == list(range(42))
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": "0"})
    it.upload()
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 40
    agrees(it)


@pytest.mark.thorough
def test_eviction_writes_pages_anew_and_names_nothing_below_the_local_start() -> None:
    it = tiered(**KEEP, segment_bytes="14", retention_local_strict="true")
    for number in range(150):
        append(it.cluster, (None, str(number)), at_ms=it.clock.now_ms + number)
    it.upload()
    assert head_of(it.cluster).pages
    for cut in (3, 40, 64, 65, 130, 149):
        it.cluster.alter_topic(TOPIC, {"retention.local.target.ms": "1d"})
        it.clock.now_ms = it.clock.now_ms // DAY * DAY
        it.clock.now_ms = _when(it, cut) + DAY
        it.cluster.upkeep().retain()
        head = head_of(it.cluster)
        assert head.local_start == cut
        assert min(each.base for each in (*head.pages, *head.entries)) == cut
        assert offsets(it) == list(range(150))
        agrees(it)


def _when(it: Tiered, offset: int) -> int:
    times = [row["timestamp_ms"] for row in held(it.opened()) if row["offset"] == offset]
    return int(times[0])


def test_compacted_segments_leave_only_where_the_copy_is_the_same() -> None:
    it = tiered(
        cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_target_bytes="0",
        retention_local_strict="true",
    )  # fmt: skip
    for number in range(9):
        append(it.cluster, ("same", str(number)), (f"k{number}", "x"))
    it.upload()
    it.cluster.upkeep().compact()
    before = held(it.opened())
    # What is remote has records that were compacted away here: a reader must not see them again.
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    assert head_of(it.cluster).local_start == 0
    assert held(it.opened()) == before


def test_a_compacted_topic_leaves_where_both_copies_are_the_same() -> None:
    it = tiered(
        cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_target_bytes="0",
        retention_local_strict="true",
    )  # fmt: skip
    it.fill(5)
    it.cluster.upkeep().roll()
    it.upload()
    before = held(it.opened())
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 8
    assert held(it.opened()) == before


def test_what_was_never_compacted_leaves_whatever_became_of_its_copies() -> None:
    it = tiered(**KEEP, cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_strict="true")
    it.fill(5)
    it.upload()
    it.cluster.upkeep().compact()
    it.upload()
    it.cluster.alter_topic(TOPIC, {"cleanup.policy": "delete", "retention.local.target.bytes": "1"})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == head_of(it.cluster).compacted_to == 8
    it.switch_on(segment_size_target=str(1 << 20), segment_size_min="1")
    it.fill(8)
    it.upload()
    it.cluster.upkeep().merge()
    assert len(it.segments()) < 6
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 24
    assert offsets(it) == list(range(26))
    agrees(it)


def test_copies_of_what_was_compacted_are_merged_with_nothing_before_it_leaves() -> None:
    it = tiered(**KEEP, cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_strict="true")
    it.fill(5)
    it.upload()
    it.cluster.upkeep().compact()
    it.upload()
    it.cluster.alter_topic(TOPIC, {"cleanup.policy": "delete"})
    it.switch_on(segment_size_target=str(1 << 20), segment_size_min="1")
    it.fill(8)
    it.upload()
    assert it.cluster.upkeep().merge().partitions == 1
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": "1"})
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 24
    assert offsets(it) == list(range(26))
    agrees(it)


def test_what_was_compacted_leaves_where_the_topic_stopped_compacting_before_it_was_uploaded_once_more() -> None:
    it = tiered(**KEEP, cleanup_policy="compact", min_cleanable_dirty_ratio="0", retention_local_strict="true")
    for number in range(9):
        append(it.cluster, ("same", str(number)), (f"k{number}", "x"))
    it.upload()
    it.cluster.upkeep().compact()
    before = held(it.opened())
    it.cluster.alter_topic(TOPIC, {"cleanup.policy": "delete", "retention.local.target.bytes": "1"})
    it.upload()
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 16
    assert held(it.opened()) == before
    agrees(it)


def test_with_reading_off_what_is_uploaded_leaves_too_and_the_log_begins_locally() -> None:
    it = tiered(remote_read="false", retention_ms="-1", retention_local_target_ms="1d", retention_local_strict="true")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).start == 0
    assert offsets(it) == [8, 9]


def test_a_topic_that_is_not_tiered_is_retained_as_before() -> None:
    it = Tiered()
    it.switch_on()
    with_topic(it.cluster, retention_ms="1d", segment_bytes="4500")
    it.fill(5)
    it.clock.now_ms += DAY + 1
    assert it.cluster.upkeep().retain().records == 8
    assert parts_in(it.store) == named_in(it.cluster)
    assert list(it.storage.list("topics/")) == []


# Which remote segments expire: whole ones from the front, by time and size together, spilled ones first.


NOW = 1_000
PLACE = RemotePartition("west", 1, 0)


def policy(*, retention_ms: int = -1, retention_bytes: int = -1, kinds: str = "delete") -> CleanupPolicy:
    return CleanupPolicy(
        SegmentLimits(1, 1), "delete" in kinds, "compact" in kinds, retention_ms, retention_bytes, 0.5, 0, 1, 1
    )


def segment(number: int, size: int = 10, age_ms: int = 0) -> Entry:
    """Return the segment of offsets `10 * number` to `10 * number + 9`."""
    first, when = 10 * number, NOW - age_ms
    return Entry(first, first + 9, when, when, size, 0, f"s{number}", Digest(10, 1, 1))


def manifest_of(segments: Sequence[Entry], storage: WatchedStore | None = None, *, paged: int = 0) -> Manifest:
    """Return a manifest of segments, the first `paged` in pages of three."""
    spill = ManifestSpill(storage or MemoryStore(), PLACE, 1024)
    pages = [spill.write_page(segments[at : min(at + 3, paged)]) for at in range(0, paged, 3)]
    return Manifest(
        "west", 0, 1, segments[0].base, segments[-1].last + 1, pages=tuple(pages), entries=tuple(segments[paged:])
    )


def walked(manifest: Manifest, policy: CleanupPolicy, storage: WatchedStore | None = None, *, start: int = 0) -> Expiry:
    store = storage or MemoryStore()
    return plan_expiry(manifest, policy, start=start, now_ms=NOW, read=lambda page: read_page(store, page))


TABLE = [
    # ages, retention.ms, retention.bytes → segments that go of five of ten bytes
    ([0, 0, 0, 0, 0], -1, -1, 0),
    ([0, 0, 0, 0, 0], -1, 50, 0),
    ([0, 0, 0, 0, 0], -1, 49, 1),  # the one that crosses the limit goes too
    ([0, 0, 0, 0, 0], -1, 40, 1),
    ([0, 0, 0, 0, 0], -1, 39, 2),
    ([0, 0, 0, 0, 0], -1, 9, 5),
    ([0, 0, 0, 0, 0], -1, 0, 5),
    ([9, 9, 9, 0, 0], 8, -1, 3),
    ([9, 9, 9, 0, 0], 9, -1, 0),
    ([9, 9, 9, 0, 0], 8, 40, 3),  # size wants one, time wants three
    ([9, 0, 0, 0, 0], 8, 20, 3),  # time wants one, size wants three
    ([9, 0, 9, 9, 9], 8, -1, 1),  # from the front only
    ([9, 9, 9, 9, 9], 8, -1, 5),  # all of it may go
    ([9, 9, 9, 9, 9], 0, 0, 5),
]


@pytest.mark.fact("F-R-016")
@pytest.mark.fact("F-R-017")
@pytest.mark.parametrize("paged", [0, 3, 5])
@pytest.mark.parametrize(("ages", "retention_ms", "retention_bytes", "gone"), TABLE)
def test_whichever_removes_more_decides(
    ages: list[int], retention_ms: int, retention_bytes: int, gone: int, paged: int
) -> None:
    storage = WatchedStore(MemoryStore())
    manifest = manifest_of([segment(number, age_ms=age) for number, age in enumerate(ages)], storage, paged=paged)
    limits = policy(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert walked(manifest, limits, storage).start == 10 * gone


@pytest.mark.fact("F-R-018")
@pytest.mark.fact("F-R-019")
def test_compact_alone_removes_nothing_and_both_remove() -> None:
    manifest = manifest_of([segment(number, age_ms=99) for number in range(4)])
    assert walked(manifest, policy(retention_ms=1, retention_bytes=1, kinds="compact")).start == 0
    assert walked(manifest, policy(retention_ms=1, kinds="compact,delete")).start == 40
    assert walked(manifest, policy(retention_bytes=15, kinds="compact,delete")).start == 30


def test_what_lies_below_the_start_of_the_log_goes_whatever_the_policy_says() -> None:
    manifest = manifest_of([segment(number) for number in range(4)])
    assert walked(manifest, policy(kinds="compact"), start=20) == Expiry(20)
    # It does not count against the limit any more.
    assert walked(manifest, policy(retention_bytes=20), start=20).start == 20
    assert walked(manifest, policy(retention_bytes=19), start=20).start == 30


@pytest.mark.fact("F-R-068")
@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start", "reads"),
    [
        (-1, -1, 0, 0),
        (1_000, -1, 0, 0),  # nothing in the first page can be old
        (90, -1, 110, 1),  # only some of the last page are
        (5, -1, 130, 0),  # a page goes by its newest record
        (-1, 60, 90, 0),  # and by its bytes
        (-1, 50, 100, 1),
        (-1, 0, 150, 0),
    ],
)
def test_pages_that_go_or_stay_as_a_whole_are_not_read(
    retention_ms: int, retention_bytes: int, start: int, reads: int
) -> None:
    storage = WatchedStore(MemoryStore())
    ages = [100] * 11 + [10, 6] + [0] * 2
    segments = [segment(number, age_ms=age) for number, age in enumerate(ages)]
    manifest = manifest_of(segments, storage, paged=12)
    storage.calls.clear()
    found = walked(manifest, policy(retention_ms=retention_ms, retention_bytes=retention_bytes), storage)
    assert found.start == start
    assert storage.count("get") == reads


def test_when_the_next_one_expires_is_known_without_reading_pages_of_the_future() -> None:
    storage = WatchedStore(MemoryStore())
    manifest = manifest_of([segment(number, age_ms=40 - number) for number in range(9)], storage, paged=6)
    storage.calls.clear()
    assert walked(manifest, policy(retention_ms=100), storage).due_ms == NOW - 40 + 100 + 1
    assert walked(manifest, policy(retention_bytes=1_000), storage).due_ms is None
    assert storage.calls == []
    found = walked(manifest, policy(retention_ms=38), storage)
    assert found == Expiry(20, NOW - 38 + 38 + 1)
    assert walked(manifest, policy(retention_ms=1), storage) == Expiry(90)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=14),
    ages=st.lists(st.integers(0, 20), min_size=14, max_size=14),
    paged=st.integers(0, 14),
    limits=st.tuples(st.integers(-1, 20), st.integers(-1, 200)),
    start=st.integers(0, 90),
)
def test_a_manifest_in_pages_expires_as_one_that_is_not(
    sizes: list[int], ages: list[int], paged: int, limits: tuple[int, int], start: int
) -> None:
    storage = WatchedStore(MemoryStore())
    segments = [segment(number, size, ages[number]) for number, size in enumerate(sizes)]
    held = policy(retention_ms=limits[0], retention_bytes=limits[1])
    whole = walked(manifest_of(segments), held, start=start)
    manifest = manifest_of(segments, storage, paged=min(paged, len(segments)))
    assert walked(manifest, held, storage, start=start).start == whole.start
    left = [each for each in segments if each.last >= whole.start]
    if limits[1] >= 0:
        assert sum(each.bytes for each in left) <= limits[1] or all(each.base < start for each in left)
    # What is cut is garbage, what is left is as it was, and nothing is in both.
    spill = ManifestSpill(storage, PLACE, 1024)
    cut = expire_below(storage, manifest, whole.start, spill)
    after = manifest if cut is None else cut.manifest
    assert list(iter_all_entries(storage, after)) == left
    assert after.stored_bytes == sum(each.bytes for each in left)
    dead = [entry for page in after.garbage.pages for entry in read_page(storage, page)] + [*after.garbage.entries]
    assert sorted(entry.base for entry in dead) == [each.base for each in segments if each.last < whole.start]
    if cut is not None:
        assert (cut.segments, cut.records) == (len(dead), 10 * len(dead))
        assert after.start == min(whole.start, manifest.end)


def test_a_large_page_is_cut_at_the_price_of_a_small_one() -> None:
    storage = WatchedStore(MemoryStore())
    segments = [segment(number) for number in range(5_000)]
    spill = ManifestSpill(storage, PLACE, 1024)
    manifest = Manifest("west", 0, 1, 0, 50_000, pages=(spill.write_page(segments),))
    written = 0
    for number in range(400):
        fresh = ManifestSpill(storage, PLACE, 1024)
        cut = expire_below(storage, manifest, 10 * (number + 1), fresh)
        assert cut is not None
        before = {page.key for page in manifest.pages}
        manifest = replace(cut.manifest, garbage=replace(cut.manifest.garbage, pages=(), entries=()))
        written += sum(page.entries for page in manifest.pages if page.key not in before)
    assert [entry.base for entry in iter_all_entries(storage, manifest)] == list(range(4_000, 50_000, 10))
    assert written < 5_000 + 400 * 100


def test_much_garbage_goes_to_a_page_and_the_manifest_stays_small() -> None:
    storage = MemoryStore()
    segments = [segment(number) for number in range(500)]
    spill = ManifestSpill(storage, PLACE, 1024)
    manifest = Manifest(
        "west", 0, 1, 0, 5_000, pages=(spill.write_page(segments[:400]),), entries=tuple(segments[400:])
    )
    cut = expire_below(storage, manifest, 3_000, spill)
    assert cut is not None
    assert cut.manifest.garbage.entries == ()
    assert [page.entries for page in cut.manifest.garbage.pages] == [300]
    assert cut.pages == (manifest.pages[0].key,)
