"""Dying before and after every write of retention, eviction and deletion: nothing named is gone, all is finished."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import iter_all_entries
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance.survey import MaintenanceResult
from reconciler.lifecycles import PARTITION_DELETION, SEGMENT, PartitionDeletion, SegmentState
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    LateStore,
    append,
    append_parts,
    copied,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
)
from tests.embedded.stores import DiedError, Ticking, WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

Job = Callable[[EmbeddedCluster], object]

pytestmark = pytest.mark.thorough

SMALL: dict[str, str] = {"segment_bytes": "14", "retention_ms": "-1", "retention_local_target_ms": "-1"}


def again(it: Tiered) -> Tiered:
    """Return the same cluster over copies of its stores."""
    return Tiered(copied(it.store), copied(it.storage), it.clock)


def deaths(it: Tiered, job: Job, *, every: int = 1) -> Iterator[Tiered]:
    """Yield the cluster as it is left behind for every point at which the job can die, or every so many."""
    for done in (False, True):
        for at in itertools.count(step=every):
            left, tick = again(it), Ticking(at)
            try:
                job(left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done)))
            except DiedError:
                yield left
            else:
                assert at > 1
                break


def filled(parts: int, **configs: str) -> Tiered:
    """Return a topic with pages on both tiers, all but the newest part uploaded."""
    it = tiered(**SMALL, **configs)
    it.switch_on(spillover_manifest_size="1024")
    for number in range(parts):
        append(it.cluster, (f"k{number}", str(number)), at_ms=it.clock.now_ms + number)
    it.upload()
    assert len(it.manifest().pages) > 1
    return it


def names_what_is_there(it: Tiered) -> None:
    """See that head and manifest name objects that are there, and cover the log without a gap."""
    head, manifest = head_of(it.opened()), it.manifest()
    assert head.start <= head.local_start <= head.end
    live = [entry for entry in it.segments() if entry.last >= head.start]
    assert {key for entry in live for key in (entry.key, build_index_key(entry.key))} <= it.objects()
    assert manifest.start <= head.start or not live
    assert named_in(it.opened()) <= parts_in(it.store) | it.objects()
    remote = [offset for entry in live for offset in range(entry.base, entry.last + 1)]
    assert set(range(head.start, head.local_start)) <= set(remote)


def is_swept_clean(it: Tiered) -> None:
    late: tuple[Any, Any] = LateStore(it.store, DAY + 60_000), LateStore(it.storage, DAY + 60_000)
    it.opened(*late).sweep()
    assert it.objects() == {key for entry in it.segments() for key in (entry.key, build_index_key(entry.key))}
    pages = {listed.key for listed in it.storage.list("topics/") if "/pages/" in listed.key}
    assert pages == {page.key for page in it.manifest().pages}
    assert len(parts_in(it.store)) == head_of(it.opened()).records - _dead(it)


def _dead(it: Tiered) -> int:
    """Count the records of parts that a cut page still names."""
    head = head_of(it.opened())
    return sum(1 for entry in iter_all_entries(it.store, head) if entry.last < head.start)


CHANGES: dict[str, dict[str, str]] = {
    "total retention": {"retention.ms": "1d", "retention.local.target.ms": "1d"},
    "eviction": {"retention.local.strict": "true", "retention.local.target.ms": "1d"},
    "both": {"retention.ms": "2d", "retention.local.target.ms": "1d", "retention.local.strict": "true"},
    "both tiers together": {"remote.write": "false", "retention.ms": "1d", "retention.local.target.ms": "1d"},
}


@pytest.mark.parametrize(
    ("parts", "every"), [(14, 3), *(pytest.param(*each, marks=pytest.mark.soak) for each in ((14, 1), (200, 17)))]
)
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_retention_that_died_is_finished_by_the_next_and_nothing_else_is_lost(
    name: str, parts: int, every: int
) -> None:
    it = filled(parts)
    it.clock.now_ms += DAY + parts * 2 // 3
    if name == "both":
        for number in range(parts, parts + 6):
            append(it.cluster, (f"k{number}", str(number)), at_ms=it.clock.now_ms + number)
        it.upload()
        it.cluster.alter_topic(TOPIC, {"retention.local.target.ms": "1d", "retention.local.strict": "true"})
        it.cluster.upkeep().retain()
        it.clock.now_ms += DAY
    it.cluster.alter_topic(TOPIC, CHANGES[name])
    before = held(it.opened())
    whole = again(it)
    assert whole.cluster.upkeep().retain().partitions == 1
    after = held(whole.opened())
    points = 0
    for left in deaths(it, lambda cluster: cluster.upkeep().retain(), every=every):
        points += 1
        names_what_is_there(left)
        assert held(left.opened()) in (before, after)
        left.opened().upkeep().retain()
        names_what_is_there(left)
        assert not left.manifest().garbage
        assert pairs_of(held(left.opened())) == pairs_of(after)
        finished, expected = head_of(left.opened()), head_of(whole.cluster)
        assert (finished.start, finished.local_start) == (expected.start, expected.local_start)
        append(left.opened(), ("next", "one"))
        assert held(left.opened())[-1]["offset"] == finished.end
        if points % 4 == 0:
            is_swept_clean(left)
            assert pairs_of(held(left.opened()))[:-1] == pairs_of(after)
    assert points >= 8


def segment_state(it: Tiered, key: str) -> SegmentState:
    """Tell the state of a remote segment by where it is named."""
    manifest = read_manifest(it.storage, RemotePartition(it.cluster.cluster_id, 1, 0))
    is_there = it.storage.get(key) is not None
    if manifest is not None and key in {entry.key for entry in iter_all_entries(it.storage, manifest)}:
        assert is_there
        return SegmentState.COPY_FINISHED
    waiting = () if manifest is None else manifest.garbage.entries
    pages = () if manifest is None else manifest.garbage.pages
    if key in {entry.key for entry in waiting} or (pages and is_there):
        return SegmentState.DELETE_STARTED
    return SegmentState.COPY_STARTED if is_there else SegmentState.DELETE_FINISHED


@pytest.mark.fact("F-K-042")
@pytest.mark.fact("F-K-043")
def test_a_remote_segment_goes_through_the_states_of_the_table() -> None:
    it = tiered(**SMALL)
    append(it.cluster, ("k", "0"))
    append(it.cluster, ("k", "1"))
    watched: dict[str, SegmentState] = {}
    seen: set[tuple[SegmentState, SegmentState]] = set()

    def look(_what: str, key: str) -> None:
        if key.endswith(".parquet"):
            watched.setdefault(key, SegmentState.COPY_STARTED)
        for each, before in watched.items():
            after = segment_state(it, each)
            assert after in {before, *SEGMENT.list_automatic_states(before)}, (
                "a transition that is repeated is accepted"
            )
            seen.add((before, after))
            watched[each] = after
            # Only a finished copy is read.
            named = {entry.key for entry in it.segments()} if it.storage.get(it.remote().key) else set()
            assert (each in named) == (after is SegmentState.COPY_FINISHED)

    storage = WatchedStore(it.storage, after=look)
    it.opened(None, storage).upkeep().upload()
    it.cluster.alter_topic(TOPIC, {"retention.bytes": "0"})
    it.opened(None, storage).upkeep().retain()
    assert set(watched.values()) == {SegmentState.DELETE_FINISHED}
    moves = {(move.start, move.end) for move in SEGMENT.moves}
    assert {pair for pair in seen if pair[0] != pair[1]} == moves - {
        (SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED)
    }


@pytest.mark.fact("F-K-042")
@pytest.mark.fact("F-R-008")
def test_a_deletion_that_died_is_finished_by_the_next_and_goes_through_the_states_of_the_table() -> None:
    it = filled(12)
    where, place = it.tiering().location, it.remote()
    points = 0
    for left in deaths(it, lambda cluster: cluster.delete_topic(TOPIC)):
        points += 1
        marked = left.opened().catalog.read().deletions
        if not marked:
            assert TOPIC in left.opened().topics() or list(left.storage.list("topics/")) == []
            continue
        assert TOPIC not in left.opened().topics()
        assert [entry.location for entry in marked.values()] == [str(where)]
        state = deletion_state(left, place)
        for _ in range(2):
            left.opened().finish_deletions()
            state = advanced_far(state, deletion_state(left, place))
        assert state is PartitionDeletion.FINISHED
        assert [listed.key for listed in left.storage.list("topics/")] == []
        assert parts_in(left.store) == set()
        assert list(left.store.list("heads/")) == []
        assert left.opened().catalog.read().deletions == {}
    assert points > 20


def deletion_state(it: Tiered, place: RemotePartition) -> PartitionDeletion:
    manifest = read_manifest(it.storage, place)
    if manifest is None:
        return PartitionDeletion.FINISHED
    return PartitionDeletion.MARKED if manifest.segments else PartitionDeletion.STARTED


def advanced_far(state: PartitionDeletion, end: PartitionDeletion) -> PartitionDeletion:
    """Follow the table as far as it takes."""
    path = PARTITION_DELETION.find_path(state, end)
    assert path is not None
    for move in path:
        state = PARTITION_DELETION.follow_automatic_move(state, move.end)
    return state


def test_nothing_of_another_topic_goes_with_a_deletion_that_died() -> None:
    it = filled(6 + 6)
    it.cluster.create_topic("other", configs={"remote.write": "true", "remote.read": "true", "segment.bytes": "14"})
    for number in range(3):
        with it.cluster.producer() as producer:
            producer.send("other", str(number), partition=0)
    it.upload()
    other = remote_partition(_location(it, "other"), 0)
    before = {listed.key for listed in it.storage.list(other.key_prefix)}
    for left in deaths(it, lambda cluster: cluster.delete_topic(TOPIC), every=5):
        assert {listed.key for listed in left.storage.list(other.key_prefix)} == before


def _location(it: Tiered, name: str) -> Any:
    found = find_tiering(it.cluster.catalog.read(), name, it.cluster.cluster_id)
    assert found is not None
    return found.location


# Retention of two tiers beside others who are faster: what they did stays, and what they made is not lost.


STRICT = {"retention_ms": "-1", "retention_local_target_bytes": "0", "retention_local_strict": "true"}


def beside(it: Tiered, act: Callable[[], object], *, before: str, remote: bool = False) -> EmbeddedCluster:
    """Return a cluster beside whose first swap of such a key somebody else acts."""
    is_done = False

    def meanwhile(what: str, key: str) -> None:
        nonlocal is_done
        if what == "swap" and before in key and not is_done:
            is_done = True
            act()

    def watch(inner: ObjectStore, *, is_watched: bool) -> ObjectStore:
        return WatchedStore(inner, before=meanwhile) if is_watched else inner

    return it.opened(watch(it.store, is_watched=not remote), watch(it.storage, is_watched=remote))


def is_well(it: Tiered) -> None:
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []


def test_what_is_uploaded_while_the_manifest_lets_go_stays_named() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1

    def more() -> None:
        append_parts(it.cluster, 4)
        it.upload()

    assert beside(it, more, before="manifest.json", remote=True).upkeep().retain().records == 8
    assert [row["offset"] for row in held(it.opened())] == list(range(8, 18))
    assert it.manifest().end == 16
    is_well(it)


def test_a_part_that_was_rolled_meanwhile_is_not_evicted_and_goes_with_the_next_pass() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload(rolls=False)
    before = held(it.opened())
    again = beside(it, lambda: it.cluster.upkeep().roll(), before="heads/")
    assert again.upkeep().retain() == MaintenanceResult()
    assert head_of(it.cluster).local_start == 0
    is_well(it)
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 12
    assert held(it.opened()) == before
    is_well(it)


def test_two_that_retain_at_once_do_it_once() -> None:
    it = tiered(retention_ms="1d", **{key: value for key, value in STRICT.items() if key != "retention_ms"})
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    it.fill(4)
    it.upload()
    other = it.opened()
    for key, remote in (("heads/", False), ("manifest.json", True)):
        beside(it, lambda: other.upkeep().retain(), before=key, remote=remote).upkeep().retain()
        assert [row["offset"] for row in held(it.opened())] == list(range(8, 18))
        is_well(it)
    assert head_of(it.cluster).local_start == 16
    assert it.opened().upkeep().retain() == MaintenanceResult()


def test_what_was_appended_while_parts_are_evicted_stays() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload()
    before = held(it.opened())
    beside(it, lambda: append(it.cluster, ("new", "one")), before="heads/").upkeep().retain()
    assert pairs_of(held(it.opened()))[:-1] == pairs_of(before)
    assert head_of(it.cluster).local_start == 12
    is_well(it)


def test_tiering_that_is_switched_off_with_its_data_meanwhile_leaves_what_was_local() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload()

    def off() -> None:
        it.cluster.alter_topic(
            TOPIC, {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}
        )
        it.cluster.finish_disablings()

    assert beside(it, off, before="heads/").upkeep().retain() == MaintenanceResult()
    assert [row["offset"] for row in held(it.opened())] == list(range(14))
    assert head_of(it.cluster).local_start == 0


def test_a_topic_deleted_while_its_partition_is_retained_stays_deleted() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    beside(it, lambda: it.cluster.delete_topic(TOPIC), before="manifest.json", remote=True).upkeep().retain()
    assert [listed.key for listed in it.storage.list("")] == ["storage.json"]
    assert list(it.store.list("topics/")) == []
