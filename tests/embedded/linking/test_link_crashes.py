"""Transitions of mirrors whose process dies, or loses an answer, at any write on either cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.embedded.linking.linked import ORDERS, Linked, mirrored
from tests.embedded.linking.linkedpoints import (
    check_whole,
    committed,
    deaths,
    equal,
    finish,
    mirrors_of,
    one_after_the_other,
    takes_records,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 2


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th write is the same one every time."""
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
    """Leave a transaction open at the source."""
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
    for left in deaths(before, lambda it: it.provider("east").links.ask(ORDERS, "failover")):
        points += 1
        del left.stores["west"]
        if left.status("east") == "ACTIVE":
            left.provider("east").links.ask(ORDERS, "failover")
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
            left.provider("west").links.ask(ORDERS, "resume")
        left.catch_up("west")
        assert equal(left, "west", "east")
        check_whole(left)
    assert points > 20


def diverged() -> Linked:
    """Return clusters of which each has records that the other never had, after a failover."""
    linked = lagging()
    linked.provider("east").links.ask(ORDERS, "failover")
    linked.produce("east", "own")
    linked.produce("west", "more", partition=1)
    linked.west.groups.commit("readers", {(ORDERS, 0): 12, (ORDERS, 1): 5})
    return with_open_transaction(linked)


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
