"""A log cut on two tiers: nothing above is seen again, nothing below is lost, and uploads go on where it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.retention import cleanup_policy, live_entries, segments_of
from reconciler.embedded.tiered.remote_retention import evict
from reconciler.errors import UserError
from reconciler.resources.mirrors import Truncated
from tests.embedded.samples import ids
from tests.embedded.tiered import Tiered
from tests.embedded.truncated import archived, cut, faults, is_sound, joined, let_go, mirror_more, rows, truncate
from tests.embedded.upkeeping import DAY, TOPIC, head_of


def goes_on(it: Tiered, end: int) -> None:
    """See that the log goes on at its end: mirrored, uploaded, evicted and read from object storage."""
    before = rows(it)
    mirror_more(it, 3)
    mirror_more(it, 3)
    it.clock.now_ms += DAY
    it.switch_on(segment_max_upload_interval_sec="1")
    upkeep = it.opened().upkeep()
    upkeep.roll()
    assert not upkeep.upload().errors
    manifest, head = it.manifest(), head_of(it.opened())
    assert manifest.end == head.uploaded_to == head.end == end + 6
    assert manifest.epochs == head.epochs
    found = rows(it)
    assert found[: len(before)] == before
    assert [offset for offset, _, _ in found[len(before) :]] == list(range(end, end + 6))
    policy = cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
    segments = list(segments_of(live_entries(it.store, head), policy.limits))[:-1]
    if segments:
        evict(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), segments)
    assert rows(it) == found
    assert not faults(it)


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("at", [0, 1, 4, 7, 11, 12, 13, 16, 18, 23, 24, 25, 27, 28])
def test_both_tiers_end_at_the_cut(at: int, *, pages: bool) -> None:
    it = archived(pages=pages)
    assert (head_of(it.cluster).local_start, it.manifest().end) == (12, 24)
    before = rows(it)
    joined(it)
    assert cut(it, at) == Truncated(at, 28 - at)
    assert rows(it) == before[:at]
    head, manifest = head_of(it.opened()), it.manifest()
    assert (head.end, head.local_start) == (at, min(at, 12))
    assert manifest.end == head.uploaded_to == min(at, 24)
    assert manifest.records == min(at, 24)
    assert not manifest.garbage
    is_sound(it)
    assert not faults(it)
    assert cut(it, at) == Truncated(at, 28 - at)
    goes_on(it, at)


def test_what_is_remote_alone_is_cut_where_nothing_is_left_here() -> None:
    it = archived(12, evicted=0)
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += DAY
    it.upload()
    let_go(it, 5)
    before = rows(it)
    joined(it)
    assert cut(it, 9) == Truncated(9, 15)
    assert rows(it) == before[:9]
    head = head_of(it.opened())
    assert (head.local_start, head.end, head.entries, head.pages) == (9, 9, (), ())
    goes_on(it, 9)


@pytest.mark.parametrize("at", [0, 5, 8, 9, 12])
def test_a_cut_below_where_the_log_begins_leaves_nothing_and_the_log_goes_on_there(at: int) -> None:
    it = archived()
    it.clock.now_ms += DAY
    it.cluster.alter_topic(TOPIC, {"retention.bytes": "6000", "retention.ms": "-1"})
    it.cluster.upkeep().retain()
    start = head_of(it.cluster).start
    assert start > 8
    joined(it)
    assert cut(it, at) == Truncated(at, 28 - max(start, at))
    head = head_of(it.opened())
    assert (head.start, head.end) == (min(start, at), at)
    is_sound(it)
    goes_on(it, at)


def test_an_upload_that_began_before_the_cut_names_nothing_after_it() -> None:
    it = archived()
    joined(it)
    upkeep = it.opened().upkeep()
    upkeep.roll()
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += DAY
    slow = it.opened().upkeep()
    done: list[int] = []
    slow = replace(slow, may_go_on=lambda: done.append(cut(it, 24).records) if not done else None)
    slow.upload()
    assert done == [4]
    assert it.manifest().end == head_of(it.opened()).end == 24
    is_sound(it)
    goes_on(it, 24)


def test_without_its_object_storage_a_tiered_topic_is_not_cut() -> None:
    it = archived()
    joined(it)
    bare = EmbeddedCluster.open(it.store, now_ms=it.clock, new_id=ids())
    before = rows(it)
    with pytest.raises(UserError, match="the cluster is opened without one"):
        truncate(bare, {0: 3})
    assert rows(it) == before
