"""What an outcome means: what the journal says of it, and whether anybody knows what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.applying.lanes import JOBS, lane_of
from reconciler.errors import BrokenInvariantError, RetryableError, UnansweredError
from reconciler.providers.base import Done, Failed
from reconciler.state.entries import ActionEnded, ActionRefused, ActionSkipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.planning.actions import Action
    from reconciler.providers.base import Outcome
    from reconciler.state.entries import Entry


def entries_of(action: Action, outcome: Outcome, lost: Mapping[str, Sequence[str]]) -> Iterator[Entry]:
    """Yield what the journal says of an outcome; `lost` are the actions that cannot be tried after a failure.

    Where a platform did not answer, nobody knows what happened: the intent stays open, to be settled by looking.
    """
    match outcome:
        case Done():
            yield ActionEnded(id=action.id, incarnation=outcome.incarnation, physical_name=outcome.physical_name)
        case Failed():
            if not is_in_doubt(action, outcome):
                made = outcome.made
                yield ActionRefused(
                    id=action.id,
                    error=outcome.error.message,
                    hint=outcome.error.hint,
                    is_made=made is not None,
                    incarnation=made.incarnation if made else None,
                    physical_name=made.physical_name if made else None,
                )
            for name in lost[action.id]:
                yield ActionSkipped(id=name, because=action.id)
        case _:
            assert_never(outcome)


def is_in_doubt(action: Action, outcome: Failed) -> bool:
    """Tell whether a failure leaves open what happened.

    A job finds what it published by itself, and a transition over two clusters the step at which it stands.
    """
    is_unknown = isinstance(outcome.error, RetryableError | BrokenInvariantError)
    return is_unknown and lane_of(action) != JOBS


def may_yet_happen(outcome: Failed) -> bool:
    """Tell whether what was asked may be on its way still; what could not be asked, or was refused, is not."""
    return isinstance(outcome.error, UnansweredError)
