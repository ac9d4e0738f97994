"""Same or less may happen than what was approved, never more."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.planning.document.saved import compare, to_document
from reconciler.planning.plan import Plan
from tests.planning.casefile import Case

APPROVED: dict[str, Any] = {
    "desired": [{"topic": "a"}, {"topic": "b", "configs": {"segment.ms": "2d"}}],
    "recorded": [{"topic": "b", "configs": {"segment.ms": "1d"}}],
    "observed": [{"topic": "b", "configs": {"segment.ms": "1d"}}],
}


def planned(**other: Any) -> Plan:
    return Case("sample", {**APPROVED, **other}).world.plan()


def test_the_same_plan_is_allowed() -> None:
    found = compare(to_document(planned()), planned())
    assert found.is_allowed
    assert found.not_needed == ()


def test_less_is_allowed_and_said() -> None:
    now = planned(
        observed=[{"topic": "b", "configs": {"segment.ms": "2d"}}],
        recorded=[{"topic": "b", "configs": {"segment.ms": "2d"}}],
    )
    found = compare(to_document(planned()), now)
    assert found.is_allowed
    assert found.not_needed == ("update:topic/west/b",)


@pytest.mark.parametrize(
    ("other", "wrong", "message"),
    [
        ({"desired": [*APPROVED["desired"], {"topic": "c"}]}, "create:topic/west/c", "not in the approved plan"),
        (
            {"desired": [{"topic": "a", "partitions": 9}, APPROVED["desired"][1]]},
            "create:topic/west/a",
            "lead to something else",
        ),
        (
            {"observed": [{"topic": "b", "configs": {"segment.ms": "3d"}}]},
            "update:topic/west/b",
            "has changed on the cluster",
        ),
    ],
)
def test_more_is_refused(other: dict[str, Any], wrong: str, message: str) -> None:
    found = compare(to_document(planned()), planned(**other))
    assert not found.is_allowed
    assert [difference.id for difference in found.more] == [wrong]
    assert message in found.more[0].message


def test_a_higher_risk_than_was_approved_is_refused() -> None:
    row: dict[str, Any] = {
        "desired": [{"topic": "b", "configs": {"retention.ms": "1d"}}],
        "recorded": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
        "observed": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
    }
    empty = planned(**row, given={"measures": {"topic/west/b": {"bytes": 0, "records": 0}}})
    filled = planned(**row, given={"measures": {"topic/west/b": {"bytes": 9, "records": 9, "ages": [[10**9, 9]]}}})
    found = compare(to_document(empty), filled)
    assert [difference.message for difference in found.more] == [
        "its risk was none when it was approved, and is data-loss now"
    ]
    assert compare(to_document(filled), empty).is_allowed


def test_what_changes_elsewhere_does_not_make_a_plan_stale() -> None:
    observed = [{"topic": "b", "configs": {"segment.ms": "1d", "max.message.bytes": "9"}}, {"topic": "stranger"}]
    assert compare(to_document(planned()), planned(observed=observed)).is_allowed
