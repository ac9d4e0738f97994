"""How long a try that failed is followed by a pause, and when there are no more tries."""

import pytest

from reconciler.runtime.retry import Backoff, Tries


@pytest.mark.parametrize(("tries", "pause_s"), [(1, 0.1), (2, 0.2), (3, 0.4), (5, 1.0), (5_000, 1.0)])
def test_pauses_double_up_to_the_longest(tries: int, pause_s: float) -> None:
    assert Backoff(first_s=0.1, longest_s=1.0, spread=0).compute_pause(tries) == pytest.approx(pause_s)


@pytest.mark.parametrize(("spread", "least_s"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_chance_takes_away_no_more_than_its_part(spread: float, least_s: float) -> None:
    backoff = Backoff(first_s=1.0, longest_s=1.0, spread=spread)
    assert all(least_s <= backoff.compute_pause(1) <= 1.0 for _ in range(50))


def test_tries_that_take_long_are_followed_by_longer_pauses() -> None:
    backoff = Backoff(first_s=0.1, longest_s=10.0, spread=0)
    assert backoff.compute_pause(2, least_s=1.0) == pytest.approx(2.0)
    assert backoff.compute_pause(2, least_s=0.01) == pytest.approx(0.2)


def test_after_the_last_attempt_it_is_over() -> None:
    tries = Tries(Backoff(first_s=0.0, longest_s=0.0), attempts=3)
    over = []
    for _ in range(2):
        over.append(tries.has_ended)
        tries.wait()
    assert [*over, tries.has_ended] == [False, False, True]
    assert tries.failed == 2


def test_a_pause_that_would_end_too_late_is_not_begun() -> None:
    tries = Tries(Backoff(first_s=0.0, longest_s=0.0), within_s=60.0)
    assert tries.would_end_after(61.0)
    assert not tries.would_end_after(1.0)


def test_after_its_time_it_is_over_however_few_the_tries_were() -> None:
    assert Tries(Backoff(first_s=0.0, longest_s=0.0), within_s=0.0).has_ended
    assert not Tries(Backoff(first_s=0.0, longest_s=0.0), within_s=60.0).has_ended
