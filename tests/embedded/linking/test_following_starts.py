"""Where mirrors begin: where their source does while retention is synced, else where their own retention says."""

from __future__ import annotations

import itertools

import pytest

from reconciler.embedded.link_side import follow_starts
from reconciler.resources.mirror_link import ALWAYS_SYNCED
from tests.embedded.linking.linked import ORDERS, Linked, mirrored
from tests.embedded.test_tiered_crashes import Ticking
from tests.embedded.truncated import archived, both_copied, faults, is_sound, joined, mirror_more, rows
from tests.embedded.upkeeping import DAY, TOPIC, head_of, parts_in
from tests.embedded.watched import DiedError, WatchedStore

MONTH = 30 * DAY


def starts(linked: Linked) -> dict[int, int]:
    return {number: found.start for number, found in linked.positions("east").items()}


@pytest.mark.fact("F-C-054")
def test_what_the_source_let_go_of_the_mirror_lets_go_of() -> None:
    linked = mirrored(partitions=2)
    links = linked.provider("east").links
    links.follow_starts(ORDERS, {0: 4, 1: 0})
    assert starts(linked) == {0: 4, 1: 0}
    assert linked.read("east") == [(number, f"0-{number}") for number in range(4, 10)]
    links.follow_starts(ORDERS, {0: 2, 1: 10})
    assert starts(linked) == {0: 4, 1: 10}
    assert linked.read("east", partition=1) == []
    assert len(parts_in(linked.stores["east"])) == 1


@pytest.mark.fact("F-C-054")
def test_a_mirror_that_lags_begins_at_its_own_end_at_most() -> None:
    linked = mirrored()
    linked.provider("east").links.follow_starts(ORDERS, {0: 50, 7: 3})
    assert starts(linked) == {0: 10}
    linked.produce("west", "next")
    linked.catch_up("east")
    assert linked.read("east") == [(10, "next")]


def small_segments(linked: Linked) -> None:
    """Close segments, on both sides, so that what is old may expire."""
    for name in ("west", "east"):
        linked.cluster(name).alter_topic(ORDERS, {"segment.bytes": "14"})
    for number in range(3):
        linked.produce("west", f"more-{number}")
        linked.catch_up("east")


@pytest.mark.fact("F-C-054")
def test_the_mirrors_own_retention_leaves_it_alone_until_mirroring_is_over() -> None:
    linked = mirrored()
    small_segments(linked)
    linked.clock.now_ms += MONTH
    assert linked.east.upkeep().retain().partitions == 0
    assert starts(linked) == {0: 0}
    assert linked.west.upkeep().retain().partitions == 1
    bounds = linked.west.log(ORDERS).bounds()
    linked.provider("east").links.follow_starts(ORDERS, {0: bounds[0].start})
    assert starts(linked) == {0: 12}
    linked.produce("west", "last")
    linked.catch_up("east")
    linked.east.linking.ask(ORDERS, "failover")
    linked.provider("east").links.follow_starts(ORDERS, {0: 13})
    assert starts(linked) == {0: 12}
    assert linked.east.upkeep().retain().partitions == 1
    assert starts(linked) == {0: 13}


@pytest.mark.fact("F-C-055")
@pytest.mark.parametrize("own", [{"retention.ms", "retention.bytes"}, {"retention.ms"}, {"retention.bytes"}])
def test_without_synced_retention_a_mirror_begins_where_its_own_says(own: set[str]) -> None:
    include = sorted({*ALWAYS_SYNCED, "retention.ms", "retention.bytes"} - own)
    linked = mirrored(topicConfigSync={"include": include})
    small_segments(linked)
    linked.provider("east").links.follow_starts(ORDERS, {0: 4})
    assert starts(linked) == {0: 0}
    linked.clock.now_ms += MONTH
    assert linked.east.upkeep().retain().partitions == 1
    assert starts(linked) == {0: 12}


@pytest.mark.fact("F-C-054")
@pytest.mark.parametrize("start", [3, 8, 10, 12, 17, 24, 28])
def test_both_tiers_let_go_of_what_lies_below(start: int) -> None:
    it = archived(pages=True)
    joined(it)
    before = rows(it)
    follow_starts(it.opened(), TOPIC, {0: start})
    assert rows(it) == before[start:]
    head, manifest = head_of(it.opened()), it.manifest()
    assert (head.start, head.local_start) == (start, max(start, 12))
    assert manifest.start <= start
    assert all(entry.last >= start for entry in it.segments())
    is_sound(it)
    assert not faults(it)
    mirror_more(it, 4)
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += 5_000
    it.upload()
    assert it.manifest().end == 32
    assert [offset for offset, _, _ in rows(it)] == list(range(start, 32))


def test_following_that_died_is_ended_by_the_next_pass() -> None:
    it = archived(pages=True)
    joined(it)
    before = rows(it)
    points = 0
    for done, point in itertools.product((False, True), range(24)):
        left, tick = both_copied(it), Ticking(point)
        opened = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
        try:
            follow_starts(opened, TOPIC, {0: 14})
        except DiedError:
            points += 1
        assert rows(left) in (before, before[14:])
        follow_starts(left.opened(), TOPIC, {0: 14})
        assert not left.opened().upkeep().retain().errors
        assert rows(left) == before[14:]
        assert not left.manifest().garbage
        assert all(entry.last >= 14 for entry in left.segments())
        is_sound(left)
    assert points > 10


def test_where_nothing_is_new_heads_are_looked_at_and_nothing_is_written() -> None:
    linked = mirrored(partitions=5)
    watched = WatchedStore(linked.stores["east"])
    linked.stores["east"] = watched
    east = linked.east
    watched.calls.clear()
    follow_starts(east, ORDERS, dict.fromkeys(range(5), 0))
    assert not [call for call in watched.calls if call[1].startswith("heads/")]
    assert not {call for call, _ in watched.calls} - {"get", "list"}
