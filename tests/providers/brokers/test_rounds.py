"""What brokers leave undone is asked for again: nothing else is, and not without being allowed to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.errors import LeaseError
from reconciler.providers.brokers.client import repeat_undone


class Brokers:
    """Do so many of what they are asked for, and leave the rest: throttled."""

    def __init__(self, each_time: int, undone: int = 89) -> None:
        self.each_time, self.undone = each_time, undone
        self.asked: list[list[str]] = []

    def answer(self, items: Sequence[str]) -> list[tuple[str, int]]:
        self.asked.append(list(items))
        return [(item, 0 if number < self.each_time else self.undone) for number, item in enumerate(items)]


def code_of(answer: int) -> int:
    return answer


@pytest.mark.fact("F-K-084")
@pytest.mark.parametrize("undone", [41, 89])
def test_what_was_left_undone_is_asked_for_until_it_is_done(undone: int) -> None:
    brokers = Brokers(2, undone)
    assert list(repeat_undone(list("abcde"), brokers.answer, code_of, lambda: None)) == [(item, 0) for item in "abcde"]
    assert brokers.asked == [list("abcde"), list("cde"), list("e")]


@pytest.mark.fact("F-K-084")
@pytest.mark.parametrize("code", [7, 17, 36, 40])
def test_what_was_refused_or_may_have_been_done_is_not_asked_for_again(code: int) -> None:
    brokers = Brokers(1, code)
    assert list(repeat_undone(list("ab"), brokers.answer, code_of, lambda: None)) == [("a", 0), ("b", code)]
    assert len(brokers.asked) == 1


def test_another_round_needs_leave() -> None:
    brokers = Brokers(1)

    def lost() -> None:
        raise LeaseError("somebody else took over", hint="Wait for them")

    with pytest.raises(LeaseError):
        list(repeat_undone(list("ab"), brokers.answer, code_of, lost))
    assert len(brokers.asked) == 1
