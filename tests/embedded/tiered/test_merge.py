"""Merging in object storage: one object in the place of a run, with everything that was in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.archives.entries import STALE_REWRITE_MS, Entry
from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import ManifestSwap
from reconciler.embedded.maintenance.passes import scrub_cluster
from reconciler.embedded.maintenance.roll import MergeLimits, iter_runs_to_merge, read_merge_limits
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.embedded.segments.parts import read_part
from reconciler.errors import OwnershipLostError
from reconciler.objectstore.register import Register
from reconciler.records.log import Digest
from tests.contracts.lossy import LossyStore
from tests.embedded.maintenance.tiny_segments import (
    ALL,
    DAY,
    TOPIC,
    TWO_PARTS,
    LateStore,
    append,
    append_parts,
    copied,
    held,
)
from tests.embedded.samples import rows_of
from tests.embedded.stores import DiedError, WatchedStore, dying
from tests.embedded.tiered.tiered_cluster import Tiered, begin_at, tiered
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


LARGE = 1 << 20


def small(*, segments: int = 8, target: int = LARGE, least: int = 1) -> Tiered:
    """Return a topic of which so many small segments are uploaded, and a target into which all of them fit."""
    found = tiered()
    found.switch_on(segment_size_target=str(target), segment_size_min=str(least))
    found.fill(2 * segments + 1)
    found.upload()
    return found


def remote_rows(found: Tiered) -> list[dict[str, Any]]:
    """Return every record the manifest names, as object storage has it."""
    return [row for entry in found.segments() for row in rows_of(read_part(found.storage, entry, 0, ALL))]


def digest_of(found: Tiered) -> Digest:
    return sum((entry.digest.shift(entry.base) for entry in found.segments()), Digest())


def is_tidy(found: Tiered) -> bool:
    """Tell whether exactly the objects that are named are there, each with its index."""
    named = {key for entry in found.segments() for key in (entry.key, build_index_key(entry.key))}
    return found.objects() == named and not found.manifest().garbage


@pytest.mark.fact("F-R-060")
def test_a_run_becomes_one_object_and_its_records_stay() -> None:
    found = small()
    before, rows, digest = found.segments(), remote_rows(found), digest_of(found)
    assert len(before) == 8
    done = found.cluster.upkeep().merge()
    assert (done.partitions, done.failed) == (1, 0)
    assert (done.records, done.bytes) == (32, sum(entry.bytes for entry in before))
    after = found.segments()
    assert len(after) == 1
    assert (after[0].base, after[0].last, after[0].is_segment) == (0, 31, True)
    assert after[0].key.rpartition("/")[2].startswith(f"0-31-{after[0].bytes}-0-v1-")
    assert (remote_rows(found), digest_of(found)) == (rows, digest)
    assert is_tidy(found)
    assert found.cluster.upkeep().merge() == MaintenanceResult()


def test_a_run_whose_first_segment_the_start_of_the_log_cuts_becomes_one_object_once() -> None:
    found = small()
    begin_at(found, 6)
    assert (found.manifest().start, found.segments()[0].base) == (6, 4)
    rows = held(found.cluster)
    assert found.cluster.upkeep().merge().partitions == 1
    assert [(entry.base, entry.last) for entry in found.segments()] == [(4, 31)]
    assert held(found.cluster) == rows
    assert is_tidy(found)
    assert found.cluster.upkeep().merge() == MaintenanceResult()


def test_what_an_executor_merged_in_a_copy_of_the_storage_replaces_nothing() -> None:
    found = small()
    before, rows = found.segments(), remote_rows(found)

    def elsewhere(chores: Sequence[Any], task: Callable[[Sequence[Any]], Iterable[Any]]) -> Iterator[list[Any]]:
        done = [replace(one, written_by="worker-7:4711") for one in task(chores)]
        written = [key for one in done for each in one.remote.replacements for key in each.written]
        found.storage.delete(written)
        yield done

    done = found.cluster.upkeep().merge(elsewhere)
    assert done.failed == 1
    assert "is not visible to the executor on worker-7" in done.errors[0].message
    assert (found.segments(), remote_rows(found)) == (before, rows)


def test_the_index_is_the_footer_of_the_object() -> None:
    found = small()
    found.cluster.upkeep().merge()
    (entry,) = found.segments()
    body, index = found.storage.get(entry.key), found.storage.get(build_index_key(entry.key))
    assert body is not None
    assert index is not None
    assert body.body.endswith(index.body)
    assert int.from_bytes(index.body[-8:-4], "little") == len(index.body) - 8


@pytest.mark.fact("F-R-064")
def test_by_default_a_run_grows_to_the_topics_own_segments() -> None:
    found = tiered(segment_bytes=TWO_PARTS)
    found.fill(25)
    found.upload()
    before = found.segments()
    while found.cluster.upkeep().merge().partitions:
        pass  # One file is smaller than the two it is made of: there may be room for another.
    sizes = [entry.bytes for entry in found.segments()]
    assert len(sizes) < len(before)
    assert all(size <= int(TWO_PARTS) for size in sizes)
    assert all(sum(pair) > int(TWO_PARTS) for pair in itertools.pairwise(sizes[:-1]))


@pytest.mark.fact("F-R-064")
def test_merging_can_be_switched_off() -> None:
    found = small()
    found.switch_on(enable_segment_merging="false")
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    found.switch_on(enable_segment_merging="true")
    assert found.cluster.upkeep().merge().partitions == 1


@pytest.mark.fact("F-R-065")
@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete"},
        {"remote.write": "false"},
        {"remote.write": "false", "remote.read": "false"},
    ],
)
def test_neither_compacted_topics_nor_those_that_do_not_write_are_merged(configs: dict[str, str]) -> None:
    found = small()
    found.cluster.alter_topic(TOPIC, configs)
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    assert len(found.segments()) == 8
    found.cluster.alter_topic(TOPIC, {"cleanup.policy": "delete", "remote.write": "true", "remote.read": "true"})
    assert found.cluster.upkeep().merge().partitions == 1, "nothing else kept it from being merged"


@pytest.mark.fact("F-R-063")
def test_a_gap_that_was_never_uploaded_parts_runs() -> None:
    found = small()
    taken = found.segments()[3]

    def cut(manifest: Any) -> Any:
        return replace(manifest, entries=tuple(entry for entry in manifest.entries if entry.key != taken.key))

    ManifestSwap(found.storage, found.cluster.cluster_id, found.tiering())(found.remote(), cut)
    found.cluster.upkeep().merge()
    assert [(entry.base, entry.last) for entry in found.segments()] == [(0, 11), (16, 31)]


def with_sizes(*counts: int) -> Tiered:
    """Return a topic whose remote segments hold so many records each, which do not compress."""
    found = tiered(segment_bytes="1MiB")
    for records in counts:
        append(found.cluster, *((None, os.urandom(512).hex()) for _ in range(records)))
    append_parts(found.cluster, 1)
    found.cluster.alter_topic(TOPIC, {"segment.bytes": "14"})
    found.upload()
    return found


@pytest.mark.fact("F-R-061")
def test_small_segments_before_a_large_one_are_merged_in_object_storage() -> None:
    found = with_sizes(4, 4, 48)
    small_one, small_two, large = found.segments()
    assert large.bytes > 3 * (small_one.bytes + small_two.bytes)
    found.switch_on(segment_size_target=str(large.bytes), segment_size_min=str(large.bytes // 2))
    rows = remote_rows(found)
    assert found.cluster.upkeep().merge().partitions == 1
    assert [(entry.base, entry.last) for entry in found.segments()] == [(0, 7), (8, 55)]
    assert found.segments()[1].key == large.key
    assert remote_rows(found) == rows
    assert is_tidy(found)


@pytest.mark.fact("F-R-062")
def test_small_segments_at_the_end_wait_in_object_storage_until_there_are_more() -> None:
    found = with_sizes(4, 4)
    one = found.segments()[0].bytes
    found.switch_on(segment_size_target=str(8 * one), segment_size_min=str(3 * one))
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    assert len(found.segments()) == 2
    append(found.cluster, *((None, os.urandom(512).hex()) for _ in range(8)))
    append_parts(found.cluster, 1)
    found.upload()
    rows = remote_rows(found)
    assert sum(entry.bytes for entry in found.segments()) > 3 * one
    assert found.cluster.upkeep().merge().partitions == 1
    assert len(found.segments()) == 1
    assert remote_rows(found) == rows


@pytest.mark.fact("F-R-066")
def test_fifty_segments_become_one_object_with_all_their_records() -> None:
    found = small(segments=50, target=1)
    before = found.segments()
    assert len(before) == 50
    rows, most = remote_rows(found), sum(entry.bytes for entry in before)
    found.switch_on(segment_size_target=str(most), segment_size_min="1")
    found.cluster.upkeep().merge()
    (entry,) = found.segments()
    assert (entry.base, entry.last) == (before[0].base, before[-1].last)
    assert entry.bytes <= most
    assert remote_rows(found) == rows
    assert is_tidy(found)


@pytest.mark.soak
@pytest.mark.fact("F-R-066")
def test_fifty_segments_of_ten_mebibytes_become_one_object_of_five_hundred() -> None:
    found = tiered(segment_bytes=str(9 * MIB), max_message_bytes=str(12 * MIB))
    for _ in range(51):  # The newest is still open.
        with found.cluster.producer() as producer:
            producer.send(TOPIC, os.urandom(10 * MIB - 4096))
    found.upload()
    assert [round(entry.bytes / MIB, 1) for entry in found.segments()] == [10.0] * 50
    found.switch_on(segment_size_target=str(500 * MIB))
    assert found.cluster.upkeep().merge().records == 50
    (entry,) = found.segments()
    assert (entry.base, entry.last, round(entry.bytes / MIB)) == (0, 49, 500)


@pytest.mark.fact("F-R-060")
def test_an_aborted_transaction_within_a_segment_stays_a_gap() -> None:
    found = tiered()
    found.switch_on(segment_size_target=str(LARGE), segment_size_min="1")
    for number in range(3):
        append(found.cluster, ("k", str(number)))
        with found.cluster.producer("t") as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(TOPIC, "never", key="k")
            producer.flush()
            producer.abort()
        append(found.cluster, ("k", f"after {number}"))
    append_parts(found.cluster, 1)
    found.upload()
    rows = remote_rows(found)
    assert [row["offset"] for row in rows] == [0, 2, 3, 5, 6, 8]
    found.cluster.upkeep().merge()
    assert [(entry.base, entry.last) for entry in found.segments()] == [(0, 8)]
    assert remote_rows(found) == rows
    assert is_tidy(found)


def test_a_changed_target_is_looked_at_although_nothing_was_written() -> None:
    found = small(target=1, least=1)
    assert found.cluster.upkeep().merge() == MaintenanceResult()
    found.switch_on(segment_size_target=str(LARGE))
    assert found.cluster.upkeep().merge().partitions == 1


def test_runs_in_spilled_pages_are_replaced_where_they_lie() -> None:
    found = tiered()
    found.switch_on(segment_size_target="5000", segment_size_min="1", spillover_manifest_size="1024")
    found.fill(121)
    found.upload()
    manifest, rows, digest = found.manifest(), remote_rows(found), digest_of(found)
    assert manifest.pages
    found.cluster.upkeep().merge()
    after = found.manifest()
    assert after.segments < manifest.segments
    assert (remote_rows(found), digest_of(found), after.end) == (rows, digest, manifest.end)
    assert is_tidy(found)
    pages = {listed.key for listed in found.storage.list("topics/") if "/pages/" in listed.key}
    assert pages == {page.key for page in after.pages}
    assert [page.level for page in after.pages] == [0] * len(after.pages)
    found.switch_on(segment_size_target=str(LARGE))
    found.cluster.upkeep().merge()
    assert len(found.segments()) == 1
    assert remote_rows(found) == rows


def test_what_a_merge_left_as_garbage_is_deleted_by_the_next() -> None:
    found = small()
    taken = found.segments()[0]

    def forget(manifest: Any) -> Any:
        garbage = replace(manifest.garbage, entries=(taken,))
        return replace(manifest, start=taken.last + 1, entries=manifest.entries[1:], garbage=garbage)

    ManifestSwap(found.storage, found.cluster.cluster_id, found.tiering())(found.remote(), forget)
    found.cluster.upkeep().merge()
    assert is_tidy(found)


def test_a_segment_whose_records_are_others_is_never_merged_away() -> None:
    found = small()
    first, second = found.segments()[:2]
    body = found.storage.get(second.key)
    assert body is not None
    found.storage.delete([first.key])
    found.storage.put(first.key, body.body)
    before = found.objects()
    done = found.cluster.upkeep().merge()
    assert done.failed == 1
    assert "do not match the digest in the manifest" in done.errors[0].message or "damaged" in done.errors[0].message
    assert found.objects() == before
    assert len(found.segments()) == 8


def test_of_a_long_history_only_the_end_is_looked_at_again() -> None:
    it = tiered()
    it.switch_on(segment_size_target="3000", segment_size_min="1", spillover_manifest_size="1024")
    it.fill(121)
    it.upload()
    assert it.cluster.upkeep().merge() == MaintenanceResult()
    it.fill(4)
    it.upload()
    assert len(it.manifest().pages) > 1
    watched = WatchedStore(it.storage)
    assert it.opened(storage=watched).upkeep().merge() == MaintenanceResult()
    assert ("get", it.remote().key) in watched.calls
    assert not [key for _, key in watched.calls if "/pages/" in key]


def test_what_comes_after_what_was_merged_is_merged_with_its_end() -> None:
    it = small(target=6000)
    for _ in range(6):
        it.fill(8)
        it.upload()
        assert not it.cluster.upkeep().merge().failed
    assert len(it.segments()) < 6
    assert [row["offset"] for row in remote_rows(it)] == list(range(it.manifest().end))
    assert is_tidy(it)


# Which neighbours in object storage become one object, as a table.


MIB = 1 << 20
LIMITS = MergeLimits(high=100, low=50)


def entry(base: int, last: int, size: int, *, epoch: int = 0) -> Entry:
    return Entry(base, last, 0, 0, size, epoch, f"{base}-{last}", Digest(last - base + 1, 0, 0), is_segment=True)


def row(*sizes: int) -> list[Entry]:
    """Return neighbours of these sizes, ten records each."""
    return [entry(10 * number, 10 * number + 9, size) for number, size in enumerate(sizes)]


def merged(entries: Iterable[Entry], limits: MergeLimits = LIMITS) -> list[list[int]]:
    """Return the sizes of what is merged, run by run."""
    return [[each.bytes for each in run] for run in iter_runs_to_merge(entries, limits)]


@pytest.mark.parametrize(
    ("why", "sizes", "runs"),
    [
        ("nothing is there", [], []),
        ("one alone has no neighbour", [10], []),
        ("a run above the minimum is merged, also at the end", [20, 20, 20], [[20, 20, 20]]),
        ("a run grows to the maximum and not beyond", [40, 40, 40, 40, 40], [[40, 40], [40, 40]]),
        ("exactly the maximum is allowed", [50, 50, 10], [[50, 50]]),
        ("a small one that overflows with its neighbour is skipped", [30, 80, 30, 80], []),
        ("what is as large as the maximum is left alone and parts runs", [10, 10, 100, 10, 10], [[10, 10]]),
        ("what is larger than the maximum too", [10, 10, 5000, 30, 30], [[10, 10], [30, 30]]),
        ("what was merged at the end is not written again with every small one", [60, 10], []),
        ("until the next does not fit", [60, 10, 20, 20], [[60, 10, 20]]),
    ],
)
def test_runs_are_merged_where_it_is_worth_it(why: str, sizes: Sequence[int], runs: Sequence[Sequence[int]]) -> None:
    assert merged(row(*sizes)) == [list(run) for run in runs], why


@pytest.mark.fact("F-R-061")
def test_a_run_up_to_the_minimum_before_a_large_segment_is_merged() -> None:
    assert merged(row(10, 15, 90)) == [[10, 15]]


@pytest.mark.fact("F-R-062")
def test_a_run_up_to_the_minimum_at_the_end_waits_for_more() -> None:
    assert merged(row(10, 15, 25)) == []
    assert merged(row(10, 15, 26)) == [[10, 15, 26]]


@pytest.mark.fact("F-R-063")
def test_no_run_crosses_an_epoch_or_a_gap() -> None:
    there = row(20, 20, 20, 20)
    assert merged(there) == [[20, 20, 20, 20]]
    other_epoch = [*there[:2], *(replace(each, epoch=1) for each in there[2:])]
    assert merged(other_epoch) == [[20, 20]]
    gap = [*there[:2], entry(21, 29, 20), there[3]]
    assert merged(gap) == [[20, 20]]


@pytest.mark.fact("F-R-066")
def test_fifty_of_ten_mebibytes_become_one_of_five_hundred() -> None:
    limits = read_merge_limits({"cloud_storage_segment_size_target": str(500 * MIB)}, 128 * MIB)
    assert [len(run) for run in merged(row(*[10 * MIB] * 50), limits)] == [50]
    assert [len(run) for run in merged(row(*[10 * MIB] * 51), limits)] == [50]


@pytest.mark.fact("F-R-064")
@pytest.mark.parametrize(
    ("properties", "high", "low"),
    [
        ({}, 1000, 500),
        ({"cloud_storage_segment_size_target": "3000"}, 3000, 1500),
        ({"cloud_storage_segment_size_min": "100"}, 1000, 100),
        ({"cloud_storage_segment_size_min": "1000"}, 1000, 800),
        ({"cloud_storage_segment_size_target": "500", "cloud_storage_segment_size_min": "2000"}, 500, 400),
    ],
)
def test_limits_come_from_the_cluster_else_from_the_topics_segments(
    properties: dict[str, str], high: int, low: int
) -> None:
    assert read_merge_limits(properties, 1000) == MergeLimits(high, low)


sizes = st.lists(st.integers(1, 130), max_size=40)


@given(sizes=sizes, cuts=st.sets(st.integers(0, 40)))
def test_runs_are_small_contiguous_and_never_found_twice(sizes: list[int], cuts: set[int]) -> None:
    there = [replace(each, epoch=sum(cut <= at for cut in cuts)) for at, each in enumerate(row(*sizes))]
    while runs := list(iter_runs_to_merge(there, LIMITS)):
        for run in runs:
            assert len(run) > 1
            assert sum(each.bytes for each in run) <= LIMITS.high
            assert len({each.epoch for each in run}) == 1
            assert all(after.base == before.last + 1 for before, after in itertools.pairwise(run))
        by_first = {run[0].base: run for run in runs}
        gone = {each.base for run in runs for each in run} - set(by_first)
        there = [
            replace(each, last=by_first[each.base][-1].last, bytes=sum(one.bytes for one in by_first[each.base]))
            if each.base in by_first
            else each
            for each in there
            if each.base not in gone
        ]
        assert not list(iter_runs_to_merge(there, LIMITS))


@given(st.integers(2, 200))
def test_whatever_comes_one_by_one_is_written_less_than_three_times(count: int) -> None:
    there: list[Entry] = []
    written = 0
    for number in range(count):
        there.append(entry(10 * number, 10 * number + 9, 10))
        for run in list(iter_runs_to_merge(there, LIMITS)):
            at = there.index(run[0])
            size = sum(each.bytes for each in run)
            there[at : at + len(run)] = [replace(run[0], last=run[-1].last, bytes=size)]
            written += size
    assert written <= 2 * 10 * count
    assert len(there) <= count // 10 + 6


# Merging and scrub while processes die and others work on the same manifest: nothing is lost, doubled or left over.


def filled(*, evicts: bool = True, spilled: bool = True, storage: ObjectStore | None = None) -> Tiered:
    """Return a topic with runs to merge, some of them in spilled pages; most of it lies in object storage alone."""
    it = tiered(partitions=1, storage=storage, retention_local_target_bytes="1", retention_local_strict="true")
    it.switch_on(
        segment_size_target="5000", segment_size_min="1", spillover_manifest_size="1024" if spilled else "65536"
    )
    it.fill(25)
    it.upload()
    if evicts:
        it.cluster.upkeep().retain()
    return it


def both_copied(it: Tiered) -> Tiered:
    return Tiered(copied(it.store), copied(it.storage), it.clock)


def rows_after_crash(it: Tiered) -> list[dict[str, Any]]:
    return [row for entry in it.segments() for row in rows_of(read_part(it.storage, entry, 0, ALL))]


def has_only_what_is_named(it: Tiered) -> bool:
    named = {key for entry in it.segments() for key in (entry.key, build_index_key(entry.key))}
    pages = {listed.key for listed in it.storage.list("topics/") if "/pages/" in listed.key}
    return it.objects() == named and pages == {page.key for page in it.manifest().pages} and not it.manifest().garbage


def sweep_later(it: Tiered) -> None:
    late: Any = LateStore(it.storage, 2 * DAY)
    it.opened(storage=late).sweep()


@pytest.mark.thorough
@pytest.mark.parametrize("done", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_merge_that_died_is_finished_by_the_next_and_nothing_is_unreadable_in_between(*, done: bool) -> None:
    it = filled()
    rows, remote = held(it.cluster), rows_after_crash(it)
    points = 0
    for at in itertools.count():
        left = both_copied(it)
        try:
            left.opened(storage=dying(left.storage, at, done=done)).upkeep().merge()
        except DiedError:
            points += 1
        else:
            break
        assert held(left.opened()) == rows
        assert rows_after_crash(left) == remote
        left.cluster = left.opened()
        assert not left.cluster.upkeep().merge().failed
        assert rows_after_crash(left) == remote
        assert held(left.cluster) == rows
        if points % 3:
            continue
        sweep_later(left)
        assert has_only_what_is_named(left)
        assert held(left.opened()) == rows
    assert points >= 12


@pytest.mark.parametrize("retries", [False, True])
def test_a_merge_whose_answers_are_lost_loses_nothing(*, retries: bool) -> None:
    it = filled()
    rows = held(it.cluster)
    lossy = LossyStore(it.storage, key=it.remote().key, retries=retries)
    it.opened(storage=lossy).upkeep().merge()
    assert lossy.swaps
    it.cluster = it.opened()
    it.cluster.upkeep().merge()
    sweep_later(it)
    assert held(it.opened()) == rows
    assert has_only_what_is_named(it)


def overtaken(it: Tiered, by: Callable[[], object], at: str = "manifest.json") -> EmbeddedCluster:
    """Return the cluster of one who is overtaken right before it swaps for the first time."""
    was: list[str] = []

    def before(what: str, key: str) -> None:
        if what == "swap" and key.endswith(at) and not was:
            was.append(key)
            by()

    return it.opened(storage=WatchedStore(it.storage, before=before))


def test_retention_and_merging_at_once() -> None:
    it = filled()

    def retain() -> None:
        it.cluster.alter_topic(TOPIC, {"retention.bytes": "9000"})
        it.cluster.upkeep().retain()

    done = overtaken(it, retain).upkeep().merge()
    assert not done.failed
    assert rows_after_crash(it)[0]["offset"] > 0
    assert sum(entry.bytes for entry in it.segments()) <= 9000
    assert has_only_what_is_named(it)
    assert [row["offset"] for row in held(it.opened())] == sorted({row["offset"] for row in held(it.opened())})


def test_uploading_and_merging_at_once() -> None:
    it = filled()

    def upload() -> None:
        append_parts(it.cluster, 8)
        it.upload()

    rows = held(it.cluster)
    assert not overtaken(it, upload).upkeep().merge().failed
    assert held(it.opened())[: len(rows)] == rows
    assert len(held(it.opened())) == len(rows) + 16
    assert [row["offset"] for row in rows_after_crash(it)] == list(range(it.manifest().end))
    assert has_only_what_is_named(it)


def test_two_merges_at_once_make_one() -> None:
    it = filled()
    rows = rows_after_crash(it)
    first = overtaken(it, lambda: it.cluster.upkeep().merge()).upkeep().merge()
    assert not first.failed
    assert rows_after_crash(it) == rows
    assert has_only_what_is_named(it)


@pytest.mark.parametrize("policy", ["retain", "delete"])
def test_what_was_read_before_tiering_was_switched_off_is_not_published(policy: str) -> None:
    it = filled(evicts=False)
    rows = held(it.cluster)

    def disable() -> None:
        configs = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": policy}
        it.cluster.alter_topic(TOPIC, configs)

    before = {entry.key for entry in it.segments()}
    assert not overtaken(it, disable).upkeep().merge().failed
    after = it.opened()
    after.finish_disablings()
    it.cluster = after
    if policy == "retain":
        assert {entry.key for entry in it.segments()} == before
    else:
        assert not it.segments()
    assert held(after) == rows


def test_a_partition_that_another_cluster_owns_is_left_alone() -> None:
    it = filled()

    def take() -> None:
        register = Register(it.storage, it.remote().key, format="reconciler.manifest/1")
        register.update(lambda now: {**(now.value if now else {}), "owner": "another"}, mark="taken")

    done = overtaken(it, take).upkeep().merge()
    assert [type(error) for error in done.errors] == [OwnershipLostError]


def test_what_was_written_longer_than_half_a_day_ago_is_not_named() -> None:
    it = filled()
    before = it.segments()
    clock = it.clock

    def sleep(what: str, key: str) -> None:
        if what == "put" and key.endswith(".index"):
            clock.now_ms += STALE_REWRITE_MS

    it.opened(storage=WatchedStore(it.storage, before=sleep)).upkeep().merge()
    assert it.segments() == before
    assert has_only_what_is_named(it)


def test_whoever_reads_an_object_that_was_merged_away_reads_the_manifest_again() -> None:
    it = filled()
    rows = rows_after_crash(it)  # Not by a reader: what he caches he does not ask for.
    merged: list[int] = []
    lock = Lock()

    def merge_once() -> None:
        with lock:  # A reader asks from many threads.
            if not merged:
                merged.append(it.cluster.upkeep().merge().partitions)

    class Overtaken(WatchedStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            merge_once()
            return super().get_range(key, start, length)

        def get(self, key: str) -> Any:
            if key.endswith(".index"):
                merge_once()
            return super().get(key)

    reader = it.opened(storage=Overtaken(it.storage))
    assert held(reader)[: len(rows)] == rows
    assert merged == [1]


@pytest.mark.thorough
@pytest.mark.parametrize("done", [False, True])
def test_a_scrub_that_died_is_done_by_the_next(*, done: bool) -> None:
    it = filled(evicts=False)
    lost, unindexed = it.segments()[1], it.segments()[2]
    it.storage.delete([lost.key, build_index_key(unindexed.key)])
    rows = held(it.cluster)
    points = 0
    for at in itertools.count():
        left = both_copied(it)
        try:
            scrub_cluster(left.opened(storage=dying(left.storage, at, done=done)).upkeep(), ignores_interval=True)
        except DiedError:
            points += 1
        else:
            break
        left.cluster = left.opened()
        assert not scrub_cluster(left.cluster.upkeep(), ignores_interval=True).failed
        assert rows_after_crash(left) == rows[: len(rows_after_crash(left))]
        left.cluster.upkeep().merge()
        sweep_later(left)
        assert has_only_what_is_named(left)
    assert points >= 5


@pytest.fixture(params=["memory", "directory", pytest.param("s3", marks=pytest.mark.soak)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "remote")


@pytest.mark.fact("F-R-060")
def test_every_kind_of_storage_is_merged_and_scrubbed(storage: ObjectStore) -> None:
    it = filled(storage=storage)
    rows, count = held(it.cluster), len(it.segments())
    done = it.cluster.upkeep().merge()
    assert (done.partitions, done.failed) == (1, 0)
    assert len(it.segments()) < count
    it.storage.delete([build_index_key(it.segments()[0].key)])
    assert not scrub_cluster(it.cluster.upkeep(), ignores_interval=True).failed
    assert held(it.cluster) == rows
    assert has_only_what_is_named(it)
