"""Retention on two tiers: what is remote expires, what is uploaded leaves the local tier, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments import pages
from reconciler.embedded.segments.retention import live_entries
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import (
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
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    return list(live_entries(it.store, head_of(it.cluster, partition)))


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
def test_what_is_not_uploaded_stays_past_its_retention_also_while_uploads_pause() -> None:
    it = tiered(retention_ms="1", retention_bytes="0", retention_local_strict="true")
    it.switch_on(enable_segment_uploads="false")
    it.fill(7)
    it.clock.now_ms += 9 * DAY
    it.cluster.upkeep().roll()
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    assert offsets(it) == list(range(14))
    it.switch_on(enable_segment_uploads="true")
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


def test_a_pass_whose_own_cut_took_pages_of_the_head_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TAIL", 4)
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
