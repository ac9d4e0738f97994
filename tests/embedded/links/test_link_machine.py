"""Whatever is done to a topic and its mirrors, wherever a process dies: nothing is mixed, and nothing lost unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from reconciler.errors import ReconcilerError
from tests.embedded.links import test_transitions as transitions
from tests.embedded.links.link_machine import VARIANTS, LinkMachine, one_after_the_other
from tests.embedded.machine import run_machine


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    one_after_the_other(monkeypatch)


@pytest.mark.thorough
@pytest.mark.fact("F-C-001", "F-C-002", "F-C-061", "F-C-063", "F-C-065", "F-C-074", "F-C-079", "F-C-095")
def test_in_memory() -> None:
    run_machine(LinkMachine, examples=6, steps=15)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_in_memory_for_long(number: int) -> None:
    run_machine(LinkMachine, examples=30, steps=40, number=number)


# The points of mirrors can fail: variants that leave out one rule are noticed; the real thing passes them all.

Play = Callable[..., object]


_OVERTAKEN: Final = transitions.test_what_a_producer_is_told_whom_a_transition_overtakes_before_any_write_is_so
PLAYS: Final[Mapping[str, Play]] = {
    "promote died": transitions.test_a_promotion_that_died_at_any_write_is_finished_by_the_next,
    "promote fails over": transitions.test_a_failover_before_any_write_of_a_promotion_is_the_end_of_it,
    "failover died": transitions.test_a_failover_that_died_at_any_write_holds_groups_to_what_was_fetched,
    "reverse died": partial(
        transitions.test_a_reversal_that_died_at_any_write_is_finished_by_the_next, is_paused=False, ends="ACTIVE"
    ),
    "restore died": transitions.test_a_restore_that_died_at_any_write_is_finished_by_the_next,
    "fails back": transitions.test_failing_back_may_die_at_any_write,
    "restore rescued": transitions.test_a_failover_before_any_write_of_a_restore_makes_its_topic_writable_for_good,
    "west rescued": partial(
        transitions.test_a_failover_before_any_write_of_a_reversal_rescues_its_side, sides=("west",)
    ),
    "append": partial(
        transitions.test_what_a_producer_was_told_before_any_write_of_a_transition_is_so, "reverse", "plain", 0
    ),
    "first append": partial(_OVERTAKEN, "reverse", "plain", transitions.NEVER, 2),
    "overtaken first append": partial(_OVERTAKEN, "reverse", "plain", transitions.NEVER, None),
    "overtaken append": partial(_OVERTAKEN, "reverse", "plain", 0, None),
    "just swapped": transitions.test_roles_that_were_just_swapped_are_known_to_be_equal,
    "late join": partial(
        transitions.test_what_was_failed_over_is_not_begun_again_by_a_driver_that_knew_it_before, "reverse-and-start"
    ),
    "waits": transitions.test_a_promotion_waits_for_what_it_cannot_fetch_yet_and_then_goes_on,
    "late copy": transitions.test_a_copy_of_what_was_cut_since_is_not_published_into_the_next_life_of_the_mirror,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_noticed(name: str) -> None:
    with VARIANTS[name].applied(), pytest.raises((AssertionError, ReconcilerError, pytest.fail.Exception)):
        PLAYS[VARIANTS[name].noticed]()
