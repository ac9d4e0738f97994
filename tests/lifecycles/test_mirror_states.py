"""Every cell of the table of a mirror's states: what is legal goes where it says, all else is refused and says why."""

from __future__ import annotations

import pytest

from reconciler.errors import UserError
from reconciler.lifecycles import MIRROR, MirrorStatus
from tests.lifecycles.mirror_states import BY_ITSELF, CELLS, STATES, VERBS, Cell


def test_the_table_has_every_state_and_every_verb() -> None:
    assert [str(state) for state in MirrorStatus] == list(STATES)
    assert sorted(MIRROR.verbs) == sorted(VERBS)
    assert len(CELLS) == len(STATES) * len(VERBS)


@pytest.mark.fact("F-C-060")
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.ends], ids=lambda cell: f"{cell.verb}-{cell.state}")
def test_a_legal_verb_leads_where_the_table_says(cell: Cell) -> None:
    state = MirrorStatus(cell.state)
    assert {
        move.condition: str(move.end) for move in MIRROR.moves if move.start == state and move.verb == cell.verb
    } == cell.ends
    for condition, end in cell.ends.items():
        assert MIRROR.apply_verb(state, cell.verb, condition=condition) == end


@pytest.mark.fact("F-C-060")
@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS if not cell.ends], ids=lambda cell: f"{cell.verb}-{cell.state}"
)
def test_every_other_pair_is_refused_with_the_state_and_what_is_legal_there(cell: Cell) -> None:
    legal = [each.verb for each in CELLS if each.state == cell.state and each.ends]
    with pytest.raises(UserError) as refused:
        MIRROR.apply_verb(MirrorStatus(cell.state), cell.verb)
    said = f"{refused.value.message} {refused.value.hint}"
    assert cell.state in refused.value.message or (cell.state, cell.verb) in {
        (str(state), verb) for state, verb, _ in MIRROR.refusals
    }
    assert all(verb in said for verb in legal)
    if not legal:
        assert "Nothing can be asked for there" in said


@pytest.mark.fact("F-C-060")
@pytest.mark.parametrize("state", STATES)
def test_a_mirror_moves_by_itself_where_the_table_says(state: str) -> None:
    assert sorted(map(str, MIRROR.list_automatic_states(MirrorStatus(state)))) == sorted(BY_ITSELF[state])
