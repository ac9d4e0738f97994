"""Same or less may happen than what was approved, never more."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.planning.plan import Plan
from reconciler.planning.same_or_less import Why, compare
from reconciler.planning.saved_plan import to_document
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


LOWERED: dict[str, Any] = {
    "desired": [{"topic": "b", "configs": {"retention.ms": "1d"}}],
    "recorded": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
    "observed": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
}
EMPTY = {"topic/west/b": {"bytes": 0, "records": 0}}
FILLED = {"topic/west/b": {"bytes": 9, "records": 9, "ages": [[10**9, 9]]}}


def test_where_only_the_files_say_less_now_nobody_is_said_to_have_changed_the_cluster() -> None:
    def of(desired: dict[str, str], **live: str) -> Plan:
        before = {"segment.ms": "1d", "max.message.bytes": "5000"}
        return planned(
            desired=[{"topic": "b", "configs": desired}],
            recorded=[{"topic": "b", "configs": before}],
            observed=[{"topic": "b", "configs": {**before, "segment.ms": "3d", **live}}],
        )

    approved = to_document(of({"segment.ms": "1d", "max.message.bytes": "5000"}))
    (found,) = compare(approved, of({"segment.ms": "1d"})).more
    assert found.whys == (Why.RESULT,)
    (found,) = compare(approved, of({"segment.ms": "1d"}, **{"segment.ms": "4d"})).more
    assert found.whys == (Why.RESULT, Why.GROUND)


def test_a_higher_risk_than_was_approved_is_refused_and_a_lower_one_is_not() -> None:
    allowed = {"allow": ["update:topic/west/b"]}
    empty = planned(**LOWERED, given={"measures": EMPTY, **allowed})
    filled = planned(**LOWERED, given={"measures": FILLED, **allowed})
    (found,) = compare(to_document(empty), filled).more
    assert found.message == "its risk was none when it was approved, and is data-loss now"
    assert (found.is_dangerous, found.approved_risk, found.risk) == (True, "none", "data-loss")
    assert compare(to_document(filled), empty).is_allowed


def test_what_a_guard_refuses_now_and_did_not_is_told_with_the_guard() -> None:
    empty, filled = (planned(**LOWERED, given={"measures": sizes}) for sizes in (EMPTY, FILLED))
    (found,) = compare(to_document(empty), filled).more
    assert found.whys == (Why.RISK, Why.BLOCKED)
    assert found.blocked is not None
    assert found.blocked.allow == "update:topic/west/b"
    assert "a guard refuses it now" in found.message


def test_what_was_blocked_when_it_was_approved_is_blocked_still_or_was_never_agreed_to() -> None:
    empty, filled = (planned(**LOWERED, given={"measures": sizes}) for sizes in (EMPTY, FILLED))
    assert compare(to_document(filled), filled).is_allowed
    (found,) = compare(to_document(filled), empty).more
    assert found.whys == (Why.UNBLOCKED,)


def test_a_field_that_moved_is_told_before_and_after_on_both_sides() -> None:
    now = planned(observed=[{"topic": "b", "configs": {"segment.ms": "3d"}}])
    (found,) = compare(to_document(planned()), now).more
    assert found.whys == (Why.GROUND,)
    (field,) = found.fields
    assert field.path == "configs.segment.ms"
    assert field.approved is not None
    assert field.now is not None
    day = 86_400_000
    assert (field.approved.before, field.approved.after) == (str(day), str(2 * day))
    assert (field.now.before, field.now.after) == (str(3 * day), str(2 * day))


def test_a_field_of_what_is_made_is_told_with_what_it_would_be() -> None:
    now = planned(desired=[{"topic": "a", "partitions": 9, "configs": {"segment.ms": "1d"}}, APPROVED["desired"][1]])
    (found,) = compare(to_document(planned()), now).more
    assert found.whys == (Why.RESULT,)
    told = {each.path: (each.approved and each.approved.after, each.now and each.now.after) for each in found.fields}
    assert told == {"configs.segment.ms": (None, "86400000"), "partitions": (1, 9)}


def test_what_was_made_again_since_is_told_so() -> None:
    there = [*APPROVED["observed"], {"topic": "a"}]
    again = [*APPROVED["observed"], {"topic": "a", "is": {"incarnation": "another"}}]
    (found,) = compare(to_document(planned(observed=there)), planned(observed=again)).more
    assert found.id == "adopt:topic/west/a"
    assert found.message == "it was deleted and made again on the cluster since it was approved"
    assert found.fields == ()


def test_what_would_be_done_instead_names_what_was_approved() -> None:
    exists = planned(observed=[*APPROVED["observed"], {"topic": "a"}])
    found = compare(to_document(planned()), exists)
    assert {each.id: each.instead_of for each in found.more} == {"adopt:topic/west/a": ("create:topic/west/a",)}
    assert found.not_needed == ("create:topic/west/a",)


def test_danger_comes_first_and_else_the_order_of_the_plan_stays() -> None:
    two = planned(
        desired=[*APPROVED["desired"], {"topic": "c"}, {"topic": "d"}],
        observed=[*APPROVED["observed"], {"topic": "z"}],
        recorded=[*APPROVED["recorded"], {"topic": "z"}],
    )
    found = compare(to_document(planned()), two)
    assert [each.id for each in found.more] == ["delete:topic/west/z", "create:topic/west/c", "create:topic/west/d"]


def test_what_changes_elsewhere_does_not_make_a_plan_stale() -> None:
    observed = [{"topic": "b", "configs": {"segment.ms": "1d", "max.message.bytes": "9"}}, {"topic": "stranger"}]
    assert compare(to_document(planned()), planned(observed=observed)).is_allowed


STANDING: dict[str, Any] = {
    "clusters": ["west", "east"],
    "has_links": True,
    "desired": [
        {"topic": "orders", "partitions": 2},
        {
            "link": "l",
            "where": "east",
            "source": "west",
            "mode": "bidirectional",
            "mirrors": [{"source": "orders", "state": "failed-over"}],
        },
    ],
    "recorded": [
        {"topic": "orders", "partitions": 2},
        {"link": "l", "where": "east", "source": "west", "mode": "bidirectional"},
        {"link": "l", "source": "east", "mode": "bidirectional"},
        {"mirror": "orders", "where": "east", "link": "l", "state": "mirroring"},
    ],
    "observed": [
        {"topic": "orders", "partitions": 2},
        {"link": "l", "where": "east", "source": "west", "mode": "bidirectional"},
        {"link": "l", "source": "east", "mode": "bidirectional"},
        {"mirror": "orders", "where": "east", "link": "l", "partitions": 2},
    ],
}
"""A mirror that is to fail over."""


def failing_over(lag: int | None, *, is_allowed: bool = True) -> Plan:
    """Return a plan whose failover loses so many offsets; `None`: that was not measured."""
    measures = {
        "topic/west/orders": {"bytes": 100, "records": 10 + (lag or 0), "positions": {0: {"end": 10 + (lag or 0)}}},
        "topic/east/orders": {"bytes": 100, "records": 10, "positions": {0: {"end": 10}}},
    }
    given = {"measures": {} if lag is None else measures, "allow": ["failover:*"] if is_allowed else []}
    return planned(**STANDING, given=given)


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 2), (0, 0), (None, 7), (None, None)])
def test_a_failover_that_loses_no_more_than_was_approved_is_allowed(before: int | None, after: int | None) -> None:
    assert compare(to_document(failing_over(before)), failing_over(after)).is_allowed


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (0, 1, "1 offset would be lost now, and nothing when it was approved"),
        (3, 2_000, "2,000 offsets would be lost now, and 3 when it was approved"),
        (3, None, "it cannot be told any more how many offsets would be lost; 3 when it was approved"),
    ],
)
def test_a_failover_that_loses_more_than_was_approved_is_refused(before: int, after: int | None, message: str) -> None:
    approved = to_document(failing_over(before))
    assert approved.digest == failing_over(after).digest
    (found,) = compare(approved, failing_over(after)).more
    assert (found.whys, found.is_dangerous, found.message) == ((Why.LOSS,), True, message)


def test_what_a_blocked_failover_would_lose_is_no_difference() -> None:
    assert compare(to_document(failing_over(0, is_allowed=False)), failing_over(9, is_allowed=False)).is_allowed
