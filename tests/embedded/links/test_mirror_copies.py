"""What a mirror has of its source: everything, at the same offsets, byte for byte; and when it is no copy any more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from reconciler.embedded.link_side import raise_mirror_starts
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.errors import SourceChangedError
from reconciler.jobs.copy import copy_flows, copy_log
from reconciler.jobs.flows import CopyResult, Flow
from reconciler.jobs.verify import compare_logs
from reconciler.records.log import OffsetRange, StagedRecords, TopicLog
from reconciler.resources.mirror_link import ALWAYS_SYNCED
from tests.embedded.links.linked import (
    ORDERS,
    Linked,
    archived,
    both_copied,
    faults,
    is_sound,
    joined,
    mirror_more,
    mirrored,
    rows,
)
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, head_of, parts_in, swept_later
from tests.embedded.samples import numbered, read
from tests.embedded.stores import DiedError, WatchedStore
from tests.embedded.tiered.test_tier_crashes import Ticking
from tests.engines import here
from tests.jobs.doubles import Wrapped


@pytest.fixture
def linked() -> Linked:
    return mirrored()


def copy(linked: Linked) -> CopyResult:
    linked.sync(linked.seen("east"))
    return copy_log(here(), linked.west.log(ORDERS), linked.east.sink(ORDERS))


def same(linked: Linked) -> bool:
    """Compare every field of every record, and what the logs say of themselves."""
    sides = linked.west.log(ORDERS), linked.east.log(ORDERS)
    ours, theirs = ([read(log, number) for number in log.read_bounds()] for log in sides)
    return ours == theirs and compare_logs(here(), *sides, deep=True).is_equal


def parts(linked: Linked, cluster: str) -> list[bytes]:
    """Return the bodies of the parts of partition 0, in order."""
    log = linked.cluster(cluster).log(ORDERS)
    head = log.read_head(0)
    assert head is not None
    stored = [log.store.get(entry.key) for entry in log.iter_local_entries(head, OffsetRange(0, 1 << 40))]
    return [one.body for one in stored if one is not None]


def swapped(linked: Linked, change: Callable[[Head], Head], cluster: str = "west") -> None:
    topic = linked.cluster(cluster).topic(ORDERS)
    swap_head(linked.stores[cluster], Partition(ORDERS, topic.id, 0), change)


def aborted(linked: Linked, *values: str) -> None:
    producer = linked.west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    for value in values:
        producer.send(ORDERS, value, partition=0)
    producer.flush()
    producer.abort()


@pytest.mark.fact("F-C-001")
def test_parts_are_the_same_bytes(linked: Linked) -> None:
    for start in (10, 13, 16):
        sink = linked.west.sink(ORDERS)
        at = OffsetRange(start, start + 3)
        sink.publish([sink.stage(0, [numbered(start, 3)], at=at)])
    assert copy(linked).records == 9
    assert parts(linked, "east") == parts(linked, "west")
    assert same(linked)


@pytest.mark.fact("F-C-001")
def test_aborted_transactions_are_gaps_and_open_ones_wait(linked: Linked) -> None:
    aborted(linked, "never", "was")
    linked.produce("west", "after")
    opened = linked.west.producer("payments")
    opened.init_transactions()
    opened.begin()
    opened.send(ORDERS, "undecided", partition=0)
    opened.flush()
    linked.produce("west", "behind")
    got = copy(linked)
    assert (got.records, got.offsets, got.lag) == (1, 3, 2)
    assert [offset for offset, _ in linked.read("east")][-2:] == [9, 12]
    opened.commit()
    assert copy(linked).records == 2
    assert same(linked)


@dataclass
class Sleeping(Wrapped):
    """A sink whose machine sleeps for days after the first range is staged; others sweep meanwhile."""

    sleep: Callable[[], object]
    nights: int = 1

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        staged = super().stage_copy(partition, source, offsets)
        while self.nights:
            self.nights -= 1
            self.sleep()
        return staged


def test_what_was_staged_before_the_machine_slept_for_days_is_copied_again(linked: Linked) -> None:
    linked.produce("west", "next")
    linked.sync(linked.seen("east"))
    slept = [0.0]

    def sleep() -> None:
        slept[0] += 2 * 24 * 60 * 60
        swept_later(linked.stores["east"], linked.clock)

    sink = Sleeping(linked.east.sink(ORDERS), sleep)
    copied = copy_log(here(clock=lambda: slept[0]), linked.west.log(ORDERS), sink)
    assert (copied.records, sink.nights) == (1, 0)
    assert same(linked)


@pytest.mark.fact("F-C-001")
def test_an_end_that_holds_no_records_is_the_end_of_the_mirror_too(linked: Linked) -> None:
    aborted(linked, "never", "was")
    assert (copy(linked).offsets, linked.positions("east")[0].end) == (2, 12)
    linked.produce("west", "next")
    assert copy(linked).records == 1
    assert linked.read("east")[-1] == (12, "next")


@pytest.mark.fact("F-C-001", "F-C-010")
def test_what_compaction_took_from_the_source_is_a_gap_of_the_mirror() -> None:
    linked = Linked()
    configs = {"cleanup.policy": "compact", "segment.bytes": "2KiB", "min.cleanable.dirty.ratio": "0.0"}
    linked.west.create_topic(ORDERS, configs=configs)
    with linked.west.producer() as producer:
        for number in range(200):
            producer.send(ORDERS, f"{number}" * 20, key=f"k{number % 3}", partition=0)
            if number % 20 == 19:
                producer.flush()
    linked.clock.now_ms += 86_400_000
    keeping = linked.west.upkeep()
    keeping.roll()
    keeping.compact()
    assert len(read(linked.west.log(ORDERS))) < 200
    linked.link("east", "west")
    linked.mirror("east", "west")
    assert copy(linked).offsets == 200
    assert linked.east.topic(ORDERS).configs["cleanup.policy"] == "compact"
    assert same(linked)


@pytest.mark.fact("F-C-001", "F-C-054")
def test_what_the_source_let_go_of_before_it_was_fetched_is_a_gap(linked: Linked) -> None:
    for value in "abcdef":
        linked.produce("west", value)

    def expired(head: Head) -> Head:
        kept = tuple(entry for entry in head.entries if entry.last >= 14)
        return replace(head, start=14, local_start=14, entries=kept)

    swapped(linked, expired)
    before = linked.read("east")
    got = copy(linked)
    assert (got.offsets, linked.positions("east")[0].end) == (6, 16)
    assert linked.read("east") == [*before, (14, "e"), (15, "f")]


@pytest.mark.fact("F-C-008")
def test_partitions_that_are_new_are_copied_from_their_beginning(linked: Linked) -> None:
    linked.west.alter_topic(ORDERS, partitions=3)
    linked.produce("west", "x", partition=2)
    assert copy(linked).records == 1
    assert same(linked)


def test_heads_say_which_log_they_were_copied_from(linked: Linked) -> None:
    linked.produce("west", "x")
    copy(linked)
    found = linked.positions("east")[0]
    assert found.source_topic_id == linked.west.topic(ORDERS).id
    assert (found.source_epochs, found.fetched, found.end) == (linked.west.log(ORDERS).read_bounds()[0].epochs, 11, 11)


def refused(linked: Linked) -> str:
    """Copy, see that it is refused and that nothing of the two is mixed, and return the code."""
    before = linked.read("east")
    with pytest.raises(SourceChangedError) as caught:
        copy(linked)
    assert linked.read("east") == before
    return caught.value.code


def cut(linked: Linked, at: int, *, epoch: int = 1) -> None:
    """Cut the source as a restore does, or what brings back an older copy of it."""
    swapped(
        linked,
        lambda head: replace(
            head,
            end=at,
            entries=tuple(entry for entry in head.entries if entry.last < at),
            epochs=(*head.epochs, (epoch, at)),
        ),
    )


@pytest.fixture
def split() -> Linked:
    """Return clusters whose records lie in parts of their own."""
    linked = Linked()
    linked.west.create_topic(ORDERS)
    for value in range(10):
        linked.produce("west", f"{value}")
    linked.link("east", "west")
    linked.mirror("east", "west")
    copy(linked)
    return linked


def test_a_source_that_ends_below_its_mirror_was_cut(split: Linked) -> None:
    cut(split, 7)
    assert refused(split) == "UNEXPECTED_TRUNCATION"


def test_a_source_that_was_cut_and_written_again_beyond_its_mirror_is_another_log(split: Linked) -> None:
    cut(split, 7)
    for value in "abcdef":
        split.produce("west", value)
    assert split.west.log(ORDERS).read_bounds()[0].end > 10
    assert refused(split) == "UNEXPECTED_TRUNCATION"


def test_a_source_that_was_cut_above_what_was_copied_is_the_same_log(split: Linked) -> None:
    for value in "abc":
        split.produce("west", value)
    cut(split, 11)
    split.produce("west", "again")
    assert copy(split).records == 2
    assert same(split)


def test_a_source_whose_head_changed_hands_at_its_end_is_the_same_log(split: Linked) -> None:
    cut(split, 10)
    split.produce("west", "more")
    assert copy(split).records == 1
    assert split.positions("east")[0].source_epochs[-1] == (1, 10)


@pytest.mark.fact("F-C-094")
def test_a_source_of_the_same_name_made_anew_is_another_log(split: Linked) -> None:
    split.west.delete_topic(ORDERS)
    split.west.create_topic(ORDERS)
    for value in range(20):
        split.produce("west", f"new {value}")
    assert refused(split) == "SOURCE_TOPIC_ID_CHANGED"
    # Also where nobody looked at the catalog: the head itself knows.
    before = split.read("east")
    with pytest.raises(SourceChangedError, match="its topic id changed"):
        copy_log(here(), split.west.log(ORDERS), split.east.sink(ORDERS))
    assert split.read("east") == before


def test_a_source_that_is_cut_while_it_is_copied_is_found_by_the_next_round(split: Linked) -> None:
    split.produce("west", "x")

    def cut_meanwhile() -> bool:
        cut(split, 4)
        for value in range(20):
            split.produce("west", f"other {value}")
        return True

    flow = Flow(split.west.log(ORDERS), split.east.sink(ORDERS), is_wanted=cut_meanwhile)
    (outcome,) = copy_flows([flow], here())
    # What was staged is the log as it was when the round began, and is published as that.
    assert (outcome.error, split.read("east")[-1]) == (None, (10, "x"))
    assert refused(split) == "UNEXPECTED_TRUNCATION"


# Where mirrors begin: where their source does while retention is synced, else where their own retention says.


MONTH = 30 * DAY


def starts(linked: Linked) -> dict[int, int]:
    return {number: found.start for number, found in linked.positions("east").items()}


@pytest.mark.fact("F-C-054")
def test_what_the_source_let_go_of_the_mirror_lets_go_of() -> None:
    linked = mirrored(partitions=2)
    links = linked.provider("east").links
    links.delete_below_starts(ORDERS, {0: 4, 1: 0})
    assert starts(linked) == {0: 4, 1: 0}
    assert linked.read("east") == [(number, f"0-{number}") for number in range(4, 10)]
    links.delete_below_starts(ORDERS, {0: 2, 1: 10})
    assert starts(linked) == {0: 4, 1: 10}
    assert linked.read("east", partition=1) == []
    assert len(parts_in(linked.stores["east"])) == 1


@pytest.mark.fact("F-C-054")
def test_a_mirror_that_lags_begins_at_its_own_end_at_most() -> None:
    linked = mirrored()
    linked.provider("east").links.delete_below_starts(ORDERS, {0: 50, 7: 3})
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
    bounds = linked.west.log(ORDERS).read_bounds()
    linked.provider("east").links.delete_below_starts(ORDERS, {0: bounds[0].start})
    assert starts(linked) == {0: 12}
    linked.produce("west", "last")
    linked.catch_up("east")
    linked.east.linking.start_operation(ORDERS, "failover")
    linked.provider("east").links.delete_below_starts(ORDERS, {0: 13})
    assert starts(linked) == {0: 12}
    assert linked.east.upkeep().retain().partitions == 1
    assert starts(linked) == {0: 13}


@pytest.mark.fact("F-C-055")
@pytest.mark.parametrize("own", [{"retention.ms", "retention.bytes"}, {"retention.ms"}, {"retention.bytes"}])
def test_without_synced_retention_a_mirror_begins_where_its_own_says(own: set[str]) -> None:
    include = sorted({*ALWAYS_SYNCED, "retention.ms", "retention.bytes"} - own)
    linked = mirrored(topicConfigSync={"include": include})
    small_segments(linked)
    linked.provider("east").links.delete_below_starts(ORDERS, {0: 4})
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
    raise_mirror_starts(it.opened(), TOPIC, {0: start})
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


@pytest.mark.thorough
def test_following_that_died_is_ended_by_the_next_pass() -> None:
    it = archived(pages=True)
    joined(it)
    before = rows(it)
    points = 0
    for done, point in itertools.product((False, True), range(24)):
        left, tick = both_copied(it), Ticking(point)
        opened = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
        try:
            raise_mirror_starts(opened, TOPIC, {0: 14})
        except DiedError:
            points += 1
        assert rows(left) in (before, before[14:])
        raise_mirror_starts(left.opened(), TOPIC, {0: 14})
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
    raise_mirror_starts(east, ORDERS, dict.fromkeys(range(5), 0))
    assert not [call for call in watched.calls if call[1].startswith("heads/")]
    assert not {call for call, _ in watched.calls} - {"get", "list"}
