"""Local space: only where it is short, what is uploaded leaves, oldest first, until the capacity is held to."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.archives.entries import Entry
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.retention import Segment
from reconciler.embedded.tiered.remote_retention import (
    EvictionCandidates,
    find_first_differing_offset,
    measure_disk_under,
    plan_evictions,
    read_local_capacity,
)
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest
from tests.embedded.maintenance.tiny_segments import TOPIC, append, append_parts, head_of, held, with_topic
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

SECOND = 1_000
KEEP: Mapping[str, str] = {"retention_ms": "-1", "retention_local_target_ms": "-1"}


def part(base: int, size: int = 10, when: int = 0, *, records: int = 10) -> Entry:
    return Entry(base, base + 9, when, when, size, 0, f"p{base}", Digest(records, 1, 1))


def found(*sizes_and_times: tuple[int, int], beyond: int = 0) -> EvictionCandidates:
    segments = (
        Segment((part(10 * at, size, when),), is_closed=True) for at, (size, when) in enumerate(sizes_and_times)
    )
    return EvictionCandidates(tuple(segments), beyond)


# -- how much there may be


@pytest.mark.fact("F-R-024")
@pytest.mark.fact("F-R-025")
@pytest.mark.parametrize(
    ("properties", "disk", "capacity"),
    [
        ({}, None, None),
        ({}, 1_000, 600),  # 100 - 20 - 20 percent
        ({"cloud_storage_cache_size_percent": "5"}, 1_000, 750),
        ({"disk_reservation_percent": "50"}, 1_000, 300),
        ({"disk_reservation_percent": "90", "cloud_storage_cache_size_percent": "90"}, 1_000, 0),
        ({"retention_local_target_capacity_percent": "80"}, 1_000, 800),
        ({"retention_local_target_capacity_percent": "80"}, None, None),
        ({"retention_local_target_capacity_bytes": "500"}, None, 500),
        ({"retention_local_target_capacity_bytes": "500"}, 1_000, 500),
        ({"retention_local_target_capacity_bytes": "700"}, 1_000, 600),  # the smaller
        (
            {"retention_local_target_capacity_bytes": "700", "retention_local_target_capacity_percent": "90"},
            1_000,
            700,
        ),
    ],
)
def test_the_capacity_is_the_smaller_of_both_targets(
    properties: Mapping[str, str], disk: int | None, capacity: int | None
) -> None:
    assert read_local_capacity(properties, disk) == capacity


def test_the_disk_under_a_folder_is_asked_of_the_system_and_a_bucket_has_none(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "a folder")
    store.put("anything", b"")
    assert measure_disk_under(store) == shutil.disk_usage(tmp_path).total
    assert measure_disk_under(MemoryStore()) is None


# -- what goes first


@pytest.mark.parametrize(
    ("partitions", "excess", "counts"),
    [
        ([found((10, 1), (10, 2))], 0, [0]),
        ([found((10, 1), (10, 2))], 1, [1]),
        ([found((10, 1), (10, 2))], 10, [1]),
        ([found((10, 1), (10, 2))], 99, [2]),
        ([found((10, 1), (10, 4)), found((10, 2), (10, 3))], 30, [1, 2]),
        ([found((10, 1), (10, 2)), found((10, 8), (10, 9), beyond=1)], 20, [1, 1]),  # beyond its target goes first
        ([found((10, 5), (10, 1)), found((10, 2))], 10, [0, 1]),  # from the front only
        ([found(), found((10, 1))], 10, [0, 1]),
    ],
)
def test_the_oldest_of_all_partitions_goes_first(
    partitions: list[EvictionCandidates], excess: int, counts: list[int]
) -> None:
    assert plan_evictions(partitions, excess) == counts


@given(
    partitions=st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), max_size=6).map(
            lambda rows: found(*rows, beyond=len(rows) // 2)
        ),
        max_size=6,
    ),
    excess=st.integers(-5, 90),
)
def test_no_more_goes_than_is_needed(partitions: list[EvictionCandidates], excess: int) -> None:
    counts = plan_evictions(partitions, excess)
    sizes = [[segment.bytes for segment in one.segments[:count]] for one, count in zip(partitions, counts, strict=True)]
    freed = sum(map(sum, sizes))
    whole = sum(segment.bytes for one in partitions for segment in one.segments)
    assert freed >= min(excess, whole)
    assert freed == 0 or freed - max(max(each, default=0) for each in sizes) < excess


# -- where both copies are the same


def test_copies_agree_as_far_as_base_last_and_digest_are_the_same() -> None:
    local = [part(0), part(10), part(20)]
    remote = [replace(each, key="elsewhere", bytes=7, max_ts=3) for each in local]
    assert find_first_differing_offset(local, remote, start=0) == 30
    assert find_first_differing_offset(local, remote[:2], start=0) == 20
    assert find_first_differing_offset(local, remote[1:], start=0) == 0
    assert find_first_differing_offset(local, [remote[0], replace(remote[1], digest=Digest(9, 1, 1))], start=0) == 10
    assert find_first_differing_offset(local, [remote[0], replace(remote[1], last=18)], start=0) == 10
    assert find_first_differing_offset([local[0], local[2]], remote, start=0) == 10
    assert find_first_differing_offset([], remote, start=5) == 5
    assert (
        find_first_differing_offset(local[1:], [replace(remote[1], last=29)], start=5) == 10
    )  # what lay below was compacted away


# -- a cluster that has too much


def cluster_with(used: Mapping[int, int], *, capacity: int | None = None, **configs: str) -> Tiered:
    """Return a topic whose partitions have so many uploaded segments of one part, the older ones in the higher."""
    it = tiered(partitions=len(used), segment_bytes="14", **{**KEEP, **configs})
    if capacity is not None:
        it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(capacity)})
    for partition, count in used.items():
        for number in range(count):
            append(
                it.cluster, (None, str(number)), partition=partition, at_ms=it.clock.now_ms - 100 * partition + number
            )
    it.upload()
    return it


def local_starts(it: Tiered) -> list[int]:
    partitions = it.cluster.topic(TOPIC).partitions
    return [head_of(it.cluster, partition).local_start for partition in range(partitions)]


def local_bytes(it: Tiered) -> int:
    partitions = it.cluster.topic(TOPIC).partitions
    return sum(head_of(it.cluster, partition).stored_bytes for partition in range(partitions))


@pytest.mark.fact("F-R-023")
@pytest.mark.fact("F-R-024")
def test_local_data_is_trimmed_to_its_capacity_oldest_first_and_stays_readable() -> None:
    it = cluster_with({0: 6, 1: 6, 2: 6})
    before = [held(it.opened(), partition) for partition in range(3)]
    size = local_bytes(it) // 18
    it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(local_bytes(it) + 1)})
    assert it.cluster.upkeep().retain() == MaintenanceResult()
    it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(11 * size + size // 2)})
    done = it.cluster.upkeep().retain()
    assert (done.partitions, done.records, done.failed) == (2, 0, 0)
    assert local_starts(it) == [0, 2, 5]
    assert 10 * size < local_bytes(it) <= 11 * size + size // 2
    assert [held(it.opened(), partition) for partition in range(3)] == before


@pytest.mark.fact("F-R-021")
def test_what_is_not_uploaded_and_the_open_segment_stay_however_short_space_is() -> None:
    it = cluster_with({0: 4}, capacity=1)
    for number in range(3):
        append(it.cluster, (None, str(number)))
    before = held(it.opened())
    it.cluster.upkeep().retain()
    assert local_starts(it) == [3]
    assert held(it.opened()) == before
    assert local_bytes(it) > 1
    # It is tried again, without waiting, until there is room.
    it.upload()
    it.cluster.upkeep().retain()
    assert local_starts(it) == [6]
    assert held(it.opened()) == before


def test_what_is_beyond_its_local_target_goes_before_what_is_within() -> None:
    it = cluster_with({0: 6, 1: 6})
    size = local_bytes(it) // 12
    it.cluster.alter_topic(TOPIC, {"retention.local.target.bytes": str(4 * size + size // 2)})
    it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(9 * size + size // 2)})
    it.cluster.upkeep().retain()
    assert local_starts(it) == [1, 2]


@pytest.mark.fact("F-R-024")
def test_it_is_looked_at_every_trim_interval_and_reads_only_heads_that_changed() -> None:
    it = cluster_with({0: 3, 1: 3}, capacity=10_000_000)
    store = WatchedStore(it.store)
    cluster = it.opened(store)
    cluster.upkeep().retain()
    for waited, reads in ((29 * SECOND, 0), (2 * SECOND, 0)):
        it.clock.now_ms += waited
        store.calls.clear()
        cluster.upkeep().retain()
        assert store.count("get", "heads/") == reads
        assert store.count("list", "heads/") == 1
    size = local_bytes(it)
    append_parts(it.cluster, 1)
    it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(size)})
    it.clock.now_ms += 1
    cluster.upkeep().retain()
    assert local_bytes(it) <= size
    it.cluster.alter_cluster({"retention_local_trim_interval": "1h"})
    it.upload()
    append_parts(it.cluster, 4)
    it.clock.now_ms += 60 * SECOND
    over = local_bytes(it)
    cluster.upkeep().retain()
    assert local_bytes(it) == over


def test_the_disk_under_a_folder_sets_the_capacity(tmp_path: Path) -> None:
    it = Tiered(DirectoryStore(tmp_path / "west"), DirectoryStore(tmp_path / "remote"))
    it.switch_on()
    with_topic(it.cluster, segment_bytes="14", remote_write="true", remote_read="true")
    for number in range(6):
        append(it.cluster, (None, str(number)))
    it.upload()
    before, size = held(it.opened()), local_bytes(it) // 6
    upkeep: Any = replace(it.cluster.upkeep(), disk_bytes=lambda _store: 10 * size)
    assert upkeep.retain() == MaintenanceResult()
    upkeep = replace(it.cluster.upkeep(), disk_bytes=lambda _store: 4 * size)
    upkeep.retain()
    assert local_bytes(it) <= 4 * size * 6 // 10
    assert held(it.opened()) == before


def test_other_topics_count_and_only_wanted_and_tiered_ones_give() -> None:
    it = cluster_with({0: 4})
    it.cluster.create_topic("plain", configs={"segment.bytes": "14"})
    with it.cluster.producer() as producer:
        for number in range(4):
            producer.send("plain", str(number), partition=0)
    it.cluster.alter_cluster({"retention_local_target_capacity_bytes": str(local_bytes(it))})
    assert it.cluster.upkeep(is_wanted=lambda name: name == "plain").retain() == MaintenanceResult()
    it.cluster.upkeep().retain()
    assert local_starts(it) != [0]
    plain = it.cluster.log("plain").read_head(0)
    assert plain is not None
    assert plain.local_start == 0


def test_a_head_that_cannot_be_read_is_told_and_the_others_are_trimmed() -> None:
    it = cluster_with({0: 4, 1: 4}, capacity=1)
    it.store.put(f"heads/{it.cluster.topic(TOPIC).id}/00000.json", b"{")
    done = it.cluster.upkeep().retain()
    assert done.failed
    assert done.partitions == 1
    assert head_of(it.cluster, 1).local_start == 3
