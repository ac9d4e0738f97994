"""From the role wanted of a mirror to the verbs, for every role and every state."""

from __future__ import annotations

from itertools import product

import pytest

from reconciler.lifecycles import (
    MIRROR,
    ROLES,
    MirrorStatus,
    Role,
    RolePending,
    RoleReached,
    UnreachableRole,
    VerbRequest,
    plan_role_change,
)

WANTED = """
           |ACTIVE           |PAUSED                  |SOURCE_UNAVAILABLE|LINK_FAILED|FAILED  |STOPPED
mirroring  |held             |resume                  |held              |held       |refuse  |refuse
paused     |pause            |held                    |refuse            |refuse     |refuse  |refuse
promoted   |promote          |promote                 |refuse            |refuse     |refuse  |held
failed-over|failover         |failover                |failover          |failover   |failover|held
reversed   |reverse-and-start|resume reverse-and-start|refuse            |refuse     |refuse  |truncate-and-restore
"""

ROWS = [[cell.strip() for cell in line.split("|")] for line in WANTED.strip("\n").splitlines()]
CELLS = [
    (role, MirrorStatus(state), cell)
    for role, *cells in ROWS[1:]
    for state, cell in zip(ROWS[0][1:], cells, strict=True)
]


@pytest.mark.parametrize(("role", "state", "cell"), CELLS)
def test_a_role_is_reached_as_the_table_says(role: Role, state: MirrorStatus, cell: str) -> None:
    verdict = plan_role_change(role, state)
    match verdict:
        case RoleReached():
            assert cell == "held"
        case UnreachableRole():
            assert cell == "refuse"
            assert verdict.hint
        case VerbRequest():
            assert list(verdict.verbs) == cell.split()
        case RolePending():
            pytest.fail(f"nothing in {cell!r} waits")


@pytest.mark.parametrize(("role", "state"), list(product(ROLES, MirrorStatus)))
def test_what_is_asked_for_is_legal_one_verb_after_the_other(role: Role, state: MirrorStatus) -> None:
    verdict = plan_role_change(role, state)
    if isinstance(verdict, VerbRequest):
        for verb in verdict.verbs:
            assert verb in MIRROR.list_legal_verbs(state)
            state = MIRROR.apply_verb(state, verb)


@pytest.mark.parametrize("role", ROLES)
def test_an_ordinary_topic_gets_no_role(role: Role) -> None:
    assert isinstance(plan_role_change(role, MirrorStatus.REGULAR), UnreachableRole)


def test_a_reversal_under_way_is_waited_for_and_can_be_paused() -> None:
    assert plan_role_change("reversed", MirrorStatus.PENDING_SYNCHRONIZE) == RolePending()
    assert plan_role_change("paused", MirrorStatus.PENDING_SYNCHRONIZE) == VerbRequest(("pause",))
    assert isinstance(plan_role_change("promoted", MirrorStatus.PENDING_MIRROR), UnreachableRole)
