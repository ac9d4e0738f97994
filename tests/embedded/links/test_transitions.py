"""Transitions of mirrors whose process dies, or loses an answer, at any write on either cluster."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.jobs.flows import find_missing_ranges
from reconciler.providers.embedded.links import EmbeddedLinks
from reconciler.records.log import ObservedSource
from reconciler.resources.mirrors import Operation, Position
from tests.embedded.deaths import Fault
from tests.embedded.links.link_machine import (
    check_whole,
    committed,
    deaths,
    equal,
    finish,
    mirrors_of,
    one_after_the_other,
    process,
    rivals,
    takes_records,
    values,
)
from tests.embedded.links.linked import ORDERS, Linked, mirrored
from tests.embedded.mounts.migrants import refusal
from tests.embedded.samples import values as batch
from tests.embedded.stores import DiedError

PARTITIONS = 2


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    one_after_the_other(monkeypatch)


def lagging() -> Linked:
    """Return a mirror that lags by two records in one partition, and groups that are ahead of it."""
    linked = mirrored(partitions=PARTITIONS)
    linked.produce("west", "late", "later")
    linked.east.groups.commit("near", {(ORDERS, 0): 8})
    linked.east.groups.commit("far", {(ORDERS, 0): 12})
    linked.east.groups.commit("farther", {(ORDERS, 1): 30})
    return linked


def with_open_transaction(linked: Linked) -> Linked:
    producer = linked.west.producer("checkout", transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin()
    producer.send(ORDERS, "undecided", partition=1)
    producer.flush()
    return linked


def never_both(linked: Linked) -> tuple[bool, bool]:
    """See that at most one side takes records; return which."""
    found = tuple(
        all(takes_records(linked, name, partition=at) for at in range(PARTITIONS)) for name in ("west", "east")
    )
    some = tuple(
        any(takes_records(linked, name, partition=at) for at in range(PARTITIONS)) for name in ("west", "east")
    )
    assert some == found, "one partition takes records and another does not"
    assert found != (True, True)
    return found  # type: ignore[return-value]  # two of them


@pytest.mark.fact("F-C-063", "F-C-066")
def test_a_promotion_that_died_at_any_write_is_finished_by_the_next() -> None:
    points = 0
    for left in deaths(lagging(), lambda it: it.driver().promote("east", ORDERS)):
        points += 1
        was = left.status("east")
        assert takes_records(left, "east") == (was == "STOPPED")
        if was == "ACTIVE":
            left.driver().promote("east", ORDERS)
        finish(left)
        assert (left.status("east"), left.seen("east").stopped_by) == ("STOPPED", "promote")
        assert equal(left, "west", "east")
        left.produce("east", "own")
        left.produce("east", "own", partition=1)
        assert "late" in values(left, "east")
        check_whole(left)
        assert committed(left, "east") == {("near", 0): 8, ("far", 0): 12, ("farther", 1): 10}
    assert points > 10


@pytest.mark.fact("F-C-041", "F-C-065")
def test_a_failover_that_died_at_any_write_holds_groups_to_what_was_fetched() -> None:
    points, before = 0, lagging()
    before.west.alter_topic(ORDERS, {}, partitions=PARTITIONS + 1)
    before.sync(before.seen("east"))
    before.produce("west", "lost", partition=PARTITIONS)
    before.east.groups.commit("never", {(ORDERS, PARTITIONS): 1})
    for left in deaths(before, lambda it: it.provider("east").links.request_verb(ORDERS, "failover")):
        points += 1
        del left.stores["west"]
        if left.status("east") == "ACTIVE":
            left.provider("east").links.request_verb(ORDERS, "failover")
        for partition in range(PARTITIONS + 1):
            left.produce("east", *"abcdefgh", partition=partition)
        assert values(left, "east") == sorted([*_ten(0), *_ten(1), *"abcdefgh" * (PARTITIONS + 1)])
        assert committed(left, "east") == {("near", 0): 8, ("far", 0): 10, ("farther", 1): 10, ("never", PARTITIONS): 0}
        check_whole(left)
    assert points > 4


@pytest.mark.fact("F-C-074", "F-C-075")
@pytest.mark.parametrize(
    ("is_paused", "ends"), [(False, "ACTIVE"), pytest.param(True, "PAUSED", marks=pytest.mark.soak)]
)
def test_a_reversal_that_died_at_any_write_is_finished_by_the_next(*, is_paused: bool, ends: str) -> None:
    points = 0
    before = with_open_transaction(lagging())
    for left in deaths(before, lambda it: it.driver().reverse("east", ORDERS, is_paused=is_paused)):
        points += 1
        never_both(left)
        if left.status("east") == "ACTIVE":
            left.driver().reverse("east", ORDERS, is_paused=is_paused)
        finish(left)
        assert left.status("west") == ends
        assert never_both(left) == (False, True)
        assert equal(left, "west", "east")
        assert values(left, "east") == sorted([*_ten(0), *_ten(1), "late", "later"])
        for partition in range(PARTITIONS):
            left.produce("east", "own", partition=partition)
        if is_paused:
            left.provider("west").links.request_verb(ORDERS, "resume")
        left.catch_up("west")
        assert equal(left, "west", "east")
        check_whole(left)
    assert points > 20


def diverged() -> Linked:
    """Return clusters of which each has records that the other never had, after a failover."""
    linked = lagging()
    linked.provider("east").links.request_verb(ORDERS, "failover")
    linked.produce("east", "own")
    linked.produce("west", "more", partition=1)
    linked.west.groups.commit("readers", {(ORDERS, 0): 12, (ORDERS, 1): 5})
    return with_open_transaction(linked)


@pytest.mark.thorough
@pytest.mark.fact("F-C-078", "F-C-079")
def test_a_restore_that_died_at_any_write_is_finished_by_the_next() -> None:
    points = 0
    for left in deaths(diverged(), lambda it: it.driver().restore("west", ORDERS)):
        points += 1
        assert takes_records(left, "east")
        if not [seen for seen in mirrors_of(left) if seen.cluster == "west"]:
            left.driver().restore("west", ORDERS)
        finish(left)
        assert (left.status("west"), left.status("east")) == ("ACTIVE", "STOPPED")
        assert never_both(left) == (False, True)
        assert equal(left, "west", "east")
        assert values(left, "west") == sorted([*_ten(0), *_ten(1), "own"])
        assert committed(left, "west") == {("readers", 0): 10, ("readers", 1): 5}
        left.produce("east", "then", partition=1)
        left.catch_up("west")
        assert equal(left, "west", "east")
        check_whole(left)
    assert points > 20


def failed_back(linked: Linked) -> None:
    """Restore where topics were first, then reverse: the roles there were."""
    driver = linked.driver()
    driver.restore("west", ORDERS)
    driver.reverse("west", ORDERS)


@pytest.mark.thorough
@pytest.mark.fact("F-C-080")
def test_failing_back_may_die_at_any_write() -> None:
    points = 0
    for left in deaths(diverged(), failed_back, hows=("dies before",)):
        points += 1
        if [seen for seen in mirrors_of(left) if seen.cluster == "west"]:
            never_both(left)
        steps: list[Callable[[], object]] = []
        finish(left)
        if not [seen for seen in mirrors_of(left) if seen.cluster == "west"]:
            steps.append(lambda left=left: failed_back(left))  # type: ignore[misc]
        elif left.status("west") == "ACTIVE":
            steps.append(lambda left=left: left.driver().reverse("west", ORDERS))  # type: ignore[misc]
        for step in steps:
            step()
        assert (left.status("west"), left.status("east")) == ("STOPPED", "ACTIVE")
        assert never_both(left) == (True, False)
        for partition in range(PARTITIONS):
            left.produce("west", "home", partition=partition)
        left.catch_up("east")
        assert equal(left, "west", "east")
        assert values(left, "west") == sorted([*_ten(0), *_ten(1), "own", "home", "home"])
        check_whole(left)
    assert points > 30


@pytest.mark.fact("F-C-001", "F-C-004")
def test_a_mirror_whose_making_died_at_any_write_is_made_and_copied_by_the_next() -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        linked.produce("west", *_ten(partition), partition=partition)

    def make(it: Linked) -> None:
        it.link("east", "west")
        it.mirror("east", "west")
        it.catch_up("east")

    linked.provider("east")
    points = 0
    for left in deaths(linked, make):
        points += 1
        for name, other in [("east", "west"), ("west", "east")]:
            if "dr" not in left.cluster(name).catalog.read().links:
                left.half(name, other)
        if ORDERS not in left.east.topics():
            left.mirror("east", "west")
        left.catch_up("east")
        assert left.seen("east").first_copy_done
        assert never_both(left) == (True, False)
        assert equal(left, "west", "east")
        check_whole(left)
    assert points > 8


def _ten(partition: int) -> list[str]:
    return [f"{partition}-{number}" for number in range(10)]


# Two at once: transitions that meet another driver, a failover by command or a producer before any of their writes.

Do = Callable[[Linked], object]


def promote(it: Linked) -> object:
    return it.driver().promote("east", ORDERS)


def reverse(it: Linked) -> object:
    return it.driver().reverse("east", ORDERS)


def restore(it: Linked) -> object:
    return it.driver().restore("west", ORDERS)


def failover(name: str) -> Do:
    return lambda it: refusal(lambda: it.provider(name).links.request_verb(ORDERS, "failover"))


@pytest.mark.thorough
@pytest.mark.fact("F-C-063", "F-C-074", "F-C-079")
@pytest.mark.parametrize(
    ("begin", "do", "side"),
    [(lagging, promote, "east"), (lagging, reverse, "east"), (diverged, restore, "west")],
    ids=["promote", "reverse", "restore"],
)
@pytest.mark.parametrize("is_finished", [True, False], ids=["to the end", "one that dies"])
def test_of_two_drivers_of_the_same_transition_each_goes_on_where_the_other_is(
    begin: Callable[[], Linked], do: Do, side: str, *, is_finished: bool
) -> None:
    met = 0

    def rival(now: Linked) -> None:
        under_way = [seen for seen in mirrors_of(now) if seen.operation is not None]
        if is_finished:
            finish(now)
        elif under_way:
            dies_at(now, side, 3)

    for left, said in rivals(begin(), do, rival):
        met += 1
        assert said is None, said
        finish(left)
        assert {seen.status for seen in mirrors_of(left)} <= {"STOPPED", "ACTIVE"}
        assert [seen.trouble for seen in mirrors_of(left) if seen.trouble is not None] == []
        assert equal(left, "west", "east")
        for name in ("west", "east"):
            for partition in range(PARTITIONS):
                if takes_records(left, name, partition=partition):
                    left.produce(name, "after", partition=partition)
        check_whole(left)
    assert met > 7


def dies_at(now: Linked, side: str, at: int) -> None:
    """Let another driver take some steps, and die."""
    with suppress(DiedError):
        process(now, fault=Fault(at, "dies before")).driver().drive(side, ORDERS)


@pytest.mark.fact("F-C-066")
def test_a_failover_before_any_write_of_a_promotion_is_the_end_of_it() -> None:
    seen: list[list[str]] = []
    stopped = 0

    def rival(now: Linked) -> None:
        failover("east")(now)
        assert takes_records(now, "east")
        seen.append(values(now, "east"))

    for left, said in rivals(lagging(), promote, rival):
        finish(left)
        if left.seen("east").stopped_by == "failover":
            stopped += 1
            assert isinstance(said, UserError), said
            assert values(left, "east") == seen[-1]
        else:
            assert said is None
            assert equal(left, "west", "east")
        for partition in range(PARTITIONS):
            left.produce("east", "own", partition=partition)
        check_whole(left)
    assert stopped > 3


def read_only(linked: Linked, name: str) -> bool:
    return not any(takes_records(linked, name, partition=partition) for partition in range(PARTITIONS))


RESCUES = [("east",), ("west",), ("east", "west"), ("west", "east")]


@pytest.mark.thorough
@pytest.mark.fact("F-C-076", "F-C-077")
@pytest.mark.parametrize("sides", RESCUES, ids=" then ".join)
def test_a_failover_before_any_write_of_a_reversal_rescues_its_side(sides: tuple[str, ...]) -> None:
    rescued: list[dict[str, list[str]]] = []
    was: list[str] = []

    def rival(now: Linked) -> None:
        was.append(now.status("east"))
        for name in sides:
            failover(name)(now)
        rescued.append({})
        for name in sides:
            if takes_records(now, name):
                now.produce(name, f"rescued {name}")
                rescued[-1][name] = values(now, name)

    counted = Counter[str]()
    for left, said in rivals(lagging(), reverse, rival):
        assert said is None or isinstance(said, UserError)
        if sides == ("west",) and left.seen("east").stopped_by == "reverse-and-start":
            assert not rescued[-1] or was[-1] in {"PENDING_STOPPED", "STOPPED"} or read_only(left, "west")
        for name in sides:
            if any(seen.cluster == name and seen.status.startswith("PENDING") for seen in mirrors_of(left)):
                failover(name)(left)  # The other side was interrupted; this one was asked for later.
        for name, found in rescued[-1].items():
            counted[name] += 1
            assert set(found) <= set(values(left, name)), name
            if any(seen.cluster == name and seen.stopped_by == "failover" for seen in mirrors_of(left)):
                assert takes_records(left, name), name
                assert values(left, name) == found, name
    assert counted["east"] > 3 or "east" not in sides
    assert counted["west"] > 3 or "west" not in sides


@pytest.mark.thorough
@pytest.mark.fact("F-C-077")
def test_a_failover_before_any_write_of_a_restore_makes_its_topic_writable_for_good() -> None:
    begun: list[bool] = []

    def rival(now: Linked) -> None:
        begun.append(any(seen.cluster == "west" for seen in mirrors_of(now)))
        failover("west")(now)
        for partition in range(PARTITIONS):
            if takes_records(now, "west"):
                now.produce("west", "rescued", partition=partition)

    stopped, before = 0, values(diverged(), "west")
    for left, said in rivals(diverged(), restore, rival):
        found = [seen for seen in mirrors_of(left) if seen.cluster == "west"]
        assert begun[-1] == (bool(found) and found[0].stopped_by == "failover")
        if begun[-1]:
            stopped += 1
            assert isinstance(said, UserError), said
            assert takes_records(left, "west")
            # What was open of transactions may be aborted late: until then it hides what comes after it.
            finish(left)
            gone = Counter(before) - Counter(values(left, "west"))
            assert set(gone) <= {"late", "later", "more"}, gone  # What diverged, if it was cut already.
            assert Counter(values(left, "west")) - Counter(before) == Counter({"rescued": 2})
            for partition in range(PARTITIONS):
                left.produce("west", "again", partition=partition)
            check_whole(left)
            left.driver().restore("west", ORDERS)
        left.catch_up("west")
        assert equal(left, "west", "east")
        check_whole(left)
    assert stopped > 5


# Producers at every point of a transition: what was acknowledged is never lost, what was refused never shows.

Step = Callable[[Linked], object]
Send = Callable[[str], object]

NEVER = PARTITIONS
"""A partition that nobody ever wrote to."""


def grown(begin: Callable[[], Linked]) -> Linked:
    """Return clusters with a partition more, that nobody wrote to."""
    linked = begin()
    for name in ("east", "west"):
        topic = linked.cluster(name).topic(ORDERS)
        if topic.active_mirror is None:
            linked.cluster(name).alter_topic(ORDERS, {}, partitions=PARTITIONS + 1)
        else:
            linked.west.alter_topic(ORDERS, {}, partitions=PARTITIONS + 1)
            linked.sync(linked.seen(name))
            return linked
    return linked


def plain(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).producer()

    def send(value: str) -> None:
        producer.send(ORDERS, value, partition=partition)
        producer.flush()

    return send


def anew(it: Linked, name: str, partition: int) -> Send:
    return lambda value: it.produce(name, value, partition=partition)


def transactional(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).producer("teller", transaction_timeout_ms=900_000)
    producer.init_transactions()

    def send(value: str) -> None:
        producer.begin()
        producer.send(ORDERS, value, partition=partition)
        producer.commit()

    return send


def sequenced(it: Linked, name: str, partition: int) -> Send:
    producer = it.cluster(name).sequenced_producer("counter")
    numbers = itertools.count()

    def send(value: str) -> None:
        producer.append(ORDERS, partition, batch(value), sequence=next(numbers))

    return send


KINDS = {"plain": plain, "anew": anew, "transactional": transactional, "sequenced": sequenced}
OFTEN = ["plain", "transactional", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("anew", "sequenced"))]
TRANSITIONS: dict[str, tuple[Callable[[], Linked], Step]] = {
    "reverse": (lagging, reverse),
    "restore": (diverged, restore),
    "promote": (lagging, promote),
}


class Told:
    """What a producer was told of each value."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.refused: list[str] = []
        self.unsure: list[str] = []

    def send(self, send: Send, value: str) -> None:
        """Send it, and keep what came of it."""
        said = refusal(lambda: send(value))
        told = self.acked if said is None else self.unsure if isinstance(said, RetryableError) else self.refused
        told.append(value)


@pytest.mark.thorough
@pytest.mark.fact("F-C-002", "F-C-074")
@pytest.mark.parametrize("partition", [0, NEVER])
@pytest.mark.parametrize("kind", OFTEN)
@pytest.mark.parametrize("verb", TRANSITIONS)
def test_what_a_producer_was_told_before_any_write_of_a_transition_is_so(verb: str, kind: str, partition: int) -> None:
    begin, do = TRANSITIONS[verb]
    sends: list[Send] = []
    tolds: list[Told] = []
    acked = refused = 0

    def prepare(left: Linked) -> None:
        tolds.append(Told())
        sends[:] = [KINDS[kind](left, "west", partition)]
        if partition != NEVER:
            sends[0]("known")

    def rival(_left: Linked) -> None:
        tolds[-1].send(sends[0], "now")
        tolds[-1].send(sends[0], "and now")

    for left, said in rivals(grown(begin), do, rival, prepare=prepare):
        assert said is None, said
        finish(left)
        told = tolds[-1]
        found = values(left, "west")
        assert not told.unsure
        assert not set(told.refused) & set(found), (told.refused, left.status("west"))
        if verb != "restore":
            assert set(told.acked) <= set(found)
        if verb == "promote":
            assert len(told.acked) == 2
            continue
        assert equal(left, "west", "east")
        acked, refused = acked + len(told.acked), refused + len(told.refused)
    assert verb == "promote" or (acked and refused)


@pytest.mark.thorough
@pytest.mark.fact("F-C-002", "F-C-074")
@pytest.mark.parametrize("partition", [0, NEVER])
@pytest.mark.parametrize("kind", OFTEN)
@pytest.mark.parametrize("verb", ["reverse", "restore"])
@pytest.mark.parametrize(
    "writes", [2, pytest.param(3, marks=pytest.mark.soak), None], ids=["begun", "half sealed", "whole"]
)
def test_what_a_producer_is_told_whom_a_transition_overtakes_before_any_write_is_so(
    verb: str, kind: str, partition: int, writes: int | None
) -> None:
    begin, do = TRANSITIONS[verb]
    tolds: list[Told] = []

    def produces(it: Linked) -> None:
        tolds.append(Told())
        send = KINDS[kind](it, "west", partition)
        if partition != NEVER:
            send("known")
        tolds[-1].send(send, "now")
        tolds[-1].send(send, "then")

    def rival(now: Linked) -> None:
        if verb == "reverse":
            now.catch_up("east")  # What a reversal copies before it begins would be its first writes.
        with suppress(DiedError):
            do(process(now, fault=None if writes is None else Fault(writes, "dies before")))

    for left, said in rivals(grown(begin), produces, rival):
        told = tolds[-1]
        finish(left)
        left.west.finish_transactions()
        found = values(left, "west")
        assert not told.unsure
        assert not set(told.refused) & set(found), (told.refused, said)
        if verb == "reverse":
            assert set(told.acked) <= set(found)
        left.catch_up("west")
        assert equal(left, "west", "east")


# Who comes very late: copiers and drivers of an earlier life of a mirror; and reversals that were broken off.


def fail_over(linked: Linked, name: str) -> None:
    linked.provider(name).links.request_verb(ORDERS, "failover")


@pytest.mark.fact("F-C-001", "F-C-080")
def test_a_copy_of_what_was_cut_since_is_not_published_into_the_next_life_of_the_mirror() -> None:
    linked = mirrored()
    linked.produce("west", "never fetched", "nor this")
    source = linked.west.log(ORDERS)
    bounds = source.read_bounds()
    sink = linked.east.sink(ORDERS).follow_source(ObservedSource(source.topic_id, bounds))
    staged = [
        sink.stage_copy(number, source, offsets)
        for number, offsets in find_missing_ranges(bounds, sink.read_ends()).items()
    ]

    fail_over(linked, "east")
    linked.driver().restore("west", ORDERS)
    linked.driver().reverse("west", ORDERS)
    assert linked.status("east") == "ACTIVE"

    with pytest.raises(RetryableError, match="source metadata is stale"):
        sink.publish(staged)
    assert equal(linked, "west", "east")
    linked.produce("west", "home", "again", "and again")
    linked.catch_up("east")
    assert equal(linked, "west", "east")


def test_a_partition_of_the_mirror_that_its_cluster_does_not_show_yet_counts_as_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linked, real = mirrored(partitions=2), EmbeddedLinks.read_positions

    def unshown(links: EmbeddedLinks, full_name: str) -> Mapping[int, Position]:
        return {number: at for number, at in real(links, full_name).items() if number == 0}

    monkeypatch.setattr(EmbeddedLinks, "read_positions", unshown)
    with pytest.raises(IncompleteError, match=r"partition 1 .* lacks 10 records"):
        linked.driver().promote("east", ORDERS)
    monkeypatch.setattr(EmbeddedLinks, "read_positions", real)
    linked.driver().drive("east", ORDERS)
    assert linked.status("east") == "STOPPED"


def suspended_at(linked: Linked, at: int) -> None:
    with pytest.raises(DiedError):
        process(linked, fault=Fault(at, "dies before")).driver().reverse("east", ORDERS)


@pytest.mark.fact("F-C-076")
def test_a_suspended_reversal_stays_read_only_on_both_sides_and_goes_on_when_resumed() -> None:
    linked = mirrored()
    suspended_at(linked, 3)
    east = linked.provider("east").links
    east.request_verb(ORDERS, "pause")
    assert (linked.status("east"), linked.status("west")) == ("PAUSED", "PENDING_MIRROR")
    for name in ("east", "west"):
        with pytest.raises(UserError, match="Cannot append records"):
            linked.produce(name, "no")
    for verb in ("promote", "reverse-and-start", "pause"):
        with pytest.raises(UserError, match=r"PAUSED|suspended"):
            east.request_verb(ORDERS, verb, operation="another")
    with pytest.raises(UserError, match="PAUSED"):
        linked.driver().reverse("east", ORDERS)
    linked.driver().drive("west", ORDERS)
    assert (linked.status("east"), linked.status("west")) == ("PAUSED", "PENDING_MIRROR")
    east.request_verb(ORDERS, "resume")
    assert linked.status("east") == "PENDING_SYNCHRONIZE"
    linked.driver().drive("east", ORDERS)
    assert (linked.status("east"), linked.status("west")) == ("STOPPED", "ACTIVE")


@pytest.mark.fact("F-C-077", "F-C-079")
def test_after_a_reversal_that_was_broken_off_each_side_can_be_restored_from_the_other_that_stopped_last() -> None:
    linked = mirrored()
    linked.produce("west", "late")
    suspended_at(linked, 4)
    fail_over(linked, "east")
    linked.clock.now_ms += 1
    fail_over(linked, "west")
    linked.produce("west", "rescued west")
    linked.produce("east", "rescued east", "and more")
    with pytest.raises(UserError, match="which is the original source"):
        linked.driver().restore("west", ORDERS)
    fetched = linked.positions("east")[0].fetched
    seen, cut = linked.driver().restore("east", ORDERS)
    assert (seen.status, seen.source_cluster) == ("ACTIVE", "west")
    assert (cut[0].offset, cut[0].records) == (fetched, 2)
    linked.catch_up("east")
    assert equal(linked, "west", "east")
    assert "rescued west" in values(linked, "east")
    assert "rescued east" not in values(linked, "east")


@pytest.mark.fact("F-C-077")
@pytest.mark.parametrize("verb", ["truncate-and-restore", "reverse-and-start"])
def test_what_was_failed_over_is_not_begun_again_by_a_driver_that_knew_it_before(verb: str) -> None:
    linked = mirrored()
    peer, west = linked.seen("east"), linked.provider("west").links
    west.convert_to_mirror(ORDERS, peer, Operation("operation-1", verb))
    fail_over(linked, "west")
    linked.produce("west", "rescued")
    with pytest.raises(UserError, match="that operation is over"):
        west.convert_to_mirror(ORDERS, peer, Operation("operation-1", verb))
    assert linked.status("west") == "STOPPED"
    linked.produce("west", "again")


@pytest.mark.fact("F-C-063")
def test_a_promotion_waits_for_what_it_cannot_fetch_yet_and_then_goes_on() -> None:
    linked = mirrored()
    open_one = linked.west.producer("checkout")
    open_one.init_transactions()
    open_one.begin()
    open_one.send(ORDERS, "undecided", partition=0)
    open_one.flush()
    with pytest.raises(IncompleteError, match="partition 0 of mirror shop:orders lacks 1 records"):
        linked.driver().promote("east", ORDERS)
    assert linked.status("east") == "PENDING_STOPPED"
    assert linked.seen("east").trouble is not None
    assert not takes_records(linked, "east")
    open_one.commit()
    assert linked.driver().promote("east", ORDERS).status == "STOPPED"
    assert linked.read("east") == linked.read("west")


@pytest.mark.fact("F-C-079")
def test_roles_that_were_just_swapped_are_known_to_be_equal() -> None:
    linked = mirrored()
    linked.driver().reverse("east", ORDERS)
    assert linked.positions("west")[0].fetched == 10
    fail_over(linked, "west")
    linked.produce("west", "own")
    _, cut = linked.driver().restore("east", ORDERS)
    assert (cut[0].offset, cut[0].records) == (10, 0)
    linked.catch_up("east")
    assert equal(linked, "west", "east")


@pytest.mark.fact("F-C-077")
def test_of_two_that_are_restored_from_each_other_at_once_neither_is_cut() -> None:
    linked = mirrored()
    suspended_at(linked, 4)
    for name in ("east", "west"):
        fail_over(linked, name)
        linked.produce(name, f"rescued {name}")
    before = {name: values(linked, name) for name in ("east", "west")}
    peers = {"east": linked.seen("west"), "west": linked.seen("east")}
    for name, peer in peers.items():
        linked.provider(name).links.convert_to_mirror(
            ORDERS, peer, Operation(f"restore {name}", "truncate-and-restore")
        )
    assert {linked.status(name) for name in ("east", "west")} == {"PENDING_SETUP_FOR_RESTORE"}
    for name in ("east", "west"):
        with pytest.raises(UserError, match="accepts no records itself"):
            linked.driver().drive(name, ORDERS)
    for name in ("east", "west"):
        fail_over(linked, name)
    assert {name: values(linked, name) for name in ("east", "west")} == before


@pytest.mark.fact("F-C-094")
@pytest.mark.parametrize("verb", ["promote", "reverse"])
def test_a_source_that_was_made_anew_is_noticed_before_anything_is_begun(verb: str) -> None:
    linked = mirrored()
    linked.west.delete_topic(ORDERS)
    linked.west.create_topic(ORDERS, partitions=1)
    with pytest.raises(UserError, match="created again"):
        getattr(linked.driver(), verb)("east", ORDERS)
    assert linked.status("east") == "ACTIVE"


@pytest.mark.fact("F-C-067")
def test_what_is_stopped_is_stopped_whatever_became_of_its_source() -> None:
    linked = mirrored()
    fail_over(linked, "east")
    del linked.stores["west"]
    with pytest.raises(UserError, match="already stopped"):
        linked.driver().promote("east", ORDERS)
