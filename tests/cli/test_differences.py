"""What exit 6 shows: an action nobody approved with what it would move, one that moved with both sides."""

from __future__ import annotations

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.states_text import difference_lines
from reconciler.operations.steps.approval import ApprovalCheck
from reconciler.planning.same_or_less import Difference, FieldDifference, Move, SameOrLess, Why
from reconciler.resources.address import Address

DAY_MS = 86_400_000
ORDERS = Address("topic/west/shop:orders")


def moves(before: int, after: int) -> Move:
    return Move(str(before * DAY_MS), str(after * DAY_MS), has_before=True)


def told(why: Why, approved: Move | None) -> list[str]:
    field = FieldDifference("configs.retention.ms", approved, moves(7, 3))
    found = Difference(
        id=f"update:{ORDERS}",
        address=ORDERS,
        action="update",
        whys=(why,),
        fields=(field,),
        risk="none",
        approved_risk=None,
        blocked=None,
        source=None,
        is_dangerous=False,
    )
    return text_of(difference_lines(ApprovalCheck(SameOrLess((found,))))).splitlines()


def test_an_update_nobody_approved_is_shown_with_what_it_would_move() -> None:
    assert told(Why.NOT_APPROVED, None) == [
        "CHANGES 1",
        f"  update {ORDERS}  not in the approved plan",
        "      retention.ms  7d → 3d",
    ]


def test_an_update_that_rests_on_something_else_is_shown_with_both_sides() -> None:
    assert told(Why.GROUND, moves(6, 3))[1:] == [
        f"  update {ORDERS}  changed on the cluster since",
        "      retention.ms  approved: 6d → 3d;  now: 7d → 3d",
    ]
