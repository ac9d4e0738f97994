"""Two at once: transitions that meet another driver, a failover by command or a producer before any of their writes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.linking.linkedpoints import (
    check_whole,
    equal,
    finish,
    mirrors_of,
    one_after_the_other,
    process,
    rivals,
    takes_records,
    values,
)
from tests.embedded.linking.test_link_crashes import PARTITIONS, diverged, lagging
from tests.embedded.mortal import Fault
from tests.embedded.mounting.migrating import refusal
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    Do = Callable[[Linked], object]


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
    one_after_the_other(monkeypatch)


def promote(it: Linked) -> object:
    return it.driver().promote("east", ORDERS)


def reverse(it: Linked) -> object:
    return it.driver().reverse("east", ORDERS)


def restore(it: Linked) -> object:
    return it.driver().restore("west", ORDERS)


def failover(name: str) -> Do:
    return lambda it: refusal(lambda: it.provider(name).links.ask(ORDERS, "failover"))


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
                failover(name)(left)  # The other side was broken off; this one was asked for later.
        for name, found in rescued[-1].items():
            counted[name] += 1
            assert set(found) <= set(values(left, name)), name
            if any(seen.cluster == name and seen.stopped_by == "failover" for seen in mirrors_of(left)):
                assert takes_records(left, name), name
                assert values(left, name) == found, name
    assert counted["east"] > 3 or "east" not in sides
    assert counted["west"] > 3 or "west" not in sides


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
