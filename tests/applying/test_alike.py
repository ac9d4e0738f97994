"""Failures that are alike are told once, whatever they are called."""

from __future__ import annotations

import pytest

from reconciler.applying.events import Alike, group_failures, group_skipped_actions, mask_names
from reconciler.errors import UserError
from reconciler.providers.protocol import FailedAction
from reconciler.runtime.text import list_first
from reconciler.state.journal import ActionSkipped


def failed(action: str, message: str, hint: str = "Look.") -> FailedAction:
    return FailedAction(action, UserError(message, hint=hint))


@pytest.mark.parametrize(
    ("text", "action", "told"),
    [
        ("topic/west/a is taken", "create:topic/west/a", "… is taken"),
        ("'shop:a' is taken", "create:topic/west/shop:a", "'…' is taken"),
        ("create:topic/west/a: no answer.", "create:topic/west/a", "…: no answer."),
        ("a.b is not a", "create:topic/west/a", "a.b is not …"),
        ("no quota for aa", "create:topic/west/a", "no quota for aa"),
        ("no quota", "create:cluster/west", "no quota"),
        ("a+b is odd", "create:topic/west/a+b", "… is odd"),
        ("", "create:topic/west/a", ""),
        ("broken", "", "broken"),
    ],
)
def test_the_name_of_what_it_happened_to_is_left_out_where_it_stands_alone(text: str, action: str, told: str) -> None:
    assert mask_names(text, action) == told


def test_one_reason_is_told_once_the_most_frequent_first() -> None:
    failures = [
        failed("create:topic/west/x", "no answer"),
        *(failed(f"create:topic/west/t{n}", f"t{n} is taken", f"Rename t{n}.") for n in range(3)),
    ]
    assert group_failures(failures) == (
        Alike("… is taken", "Rename ….", tuple(f"create:topic/west/t{n}" for n in range(3))),
        Alike("no answer", "Look.", ("create:topic/west/x",)),
    )


def test_a_reason_that_met_one_action_keeps_its_name() -> None:
    (group,) = group_failures([failed("create:topic/west/a", "a is taken")])
    assert group.error == "a is taken"


def test_what_was_skipped_stands_with_its_cause_the_costliest_first() -> None:
    skipped = [ActionSkipped(id=name, because=cause) for name, cause in ("ba", "dc", "ec")]
    assert list(group_skipped_actions(skipped).items()) == [("c", ("d", "e")), ("a", ("b",))]


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (2003, "0, 1, 2 and 2,000 more")]
)
def test_however_many_there_are_they_fit_a_line(count: int, told: str) -> None:
    assert list_first([str(number) for number in range(count)]) == told
