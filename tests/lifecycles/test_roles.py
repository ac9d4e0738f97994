"""From the role wanted of a mirror to the verbs, for every role and every state."""

from __future__ import annotations

from itertools import product

import pytest

from reconciler.lifecycles import MIRROR, ROLES, Ask, InRole, MirrorStatus, Refuse, Role, Wait, towards

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
    verdict = towards(role, state)
    match verdict:
        case InRole():
            assert cell == "held"
        case Refuse():
            assert cell == "refuse"
            assert verdict.hint
        case Ask():
            assert list(verdict.verbs) == cell.split()
        case Wait():
            pytest.fail(f"nothing in {cell!r} waits")


@pytest.mark.parametrize(("role", "state"), list(product(ROLES, MirrorStatus)))
def test_what_is_asked_for_is_legal_one_verb_after_the_other(role: Role, state: MirrorStatus) -> None:
    verdict = towards(role, state)
    if isinstance(verdict, Ask):
        for verb in verdict.verbs:
            assert verb in MIRROR.legal(state)
            state = MIRROR.step(state, verb)


@pytest.mark.parametrize("role", ROLES)
def test_an_ordinary_topic_gets_no_role(role: Role) -> None:
    assert isinstance(towards(role, MirrorStatus.REGULAR), Refuse)


def test_a_reversal_under_way_is_waited_for_and_can_be_paused() -> None:
    assert towards("reversed", MirrorStatus.PENDING_SYNCHRONIZE) == Wait()
    assert towards("paused", MirrorStatus.PENDING_SYNCHRONIZE) == Ask(("pause",))
    assert isinstance(towards("promoted", MirrorStatus.PENDING_MIRROR), Refuse)
