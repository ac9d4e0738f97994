"""Actions as a run keeps them: what somebody changed in them is refused."""

from __future__ import annotations

import pytest

from reconciler.errors import UserError
from reconciler.planning.saved_plan import encode_action, read_action
from tests.planning.casefile import cases


def some() -> dict[str, object]:
    return next(encode_action(action) for case in cases() for action in case.world.plan().actions)


def test_an_action_whose_id_was_changed_is_refused() -> None:
    with pytest.raises(UserError, match="is called delete:topic/west/a, but is"):
        read_action({**some(), "id": "delete:topic/west/a"})


@pytest.mark.parametrize("damage", [{"action": "explode"}, {"address": 3}, {"risk": "none of them"}, {"more": 1}])
def test_what_is_no_action_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(UserError, match="a stored action"):
        read_action({**some(), **damage})
