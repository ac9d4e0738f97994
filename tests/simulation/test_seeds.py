"""Random histories, repeatable by their seeds."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios import failures, play
from tests.simulation.seeds import scenario
from tests.simulation.typed import read, typed

pytestmark = pytest.mark.thorough

QUICK = 80
MANY = 6000


def test_two_to_four_runners_crash_pause_and_lose_answers_and_nothing_is_lost() -> None:
    assert failures(map(scenario, range(QUICK))) == []


@pytest.mark.soak
@pytest.mark.parametrize("first", range(QUICK, MANY, 500))
def test_thousands_of_seeds(first: int) -> None:
    assert failures(map(scenario, range(first, first + 500))) == []


def test_the_same_seed_is_the_same_history() -> None:
    seed = 17
    traces = [{name: ended.trace for name, ended in play(scenario(seed)).ended.items()} for _ in range(2)]
    assert traces[0] == traces[1]


def test_a_history_can_be_typed() -> None:
    for seed in range(50):
        visits = scenario(seed).visits
        assert tuple(read(typed(visit)) for visit in visits) == visits
