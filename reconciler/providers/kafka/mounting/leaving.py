"""Topics that are deleted because all of them is elsewhere: sealed, and only where nothing was written since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import LeaseError, ReconcilerError, UserError
from reconciler.planning.actions import Delete, Reason
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import full_name_of
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.providers.kafka.mounting.moving import KafkaCopyMoves

    Do = Callable[[Sequence[ControlAction]], Iterator[Outcome]]


def is_left(action: ControlAction) -> bool:
    """Tell whether an action deletes a topic whose records were copied under another name."""
    return isinstance(action, Delete) and isinstance(action.before, Topic) and Reason.MOVED in action.reasons


def carried_out(
    actions: Sequence[ControlAction], open_moves: Callable[[], KafkaCopyMoves], do: Do, may_go_on: Callable[[], None]
) -> Iterator[Outcome]:
    """Do a batch and yield one outcome each; what somebody has written to since it was copied is not deleted."""
    if not any(map(is_left, actions)):
        yield from do(actions)
        return
    moves = open_moves()
    rest: list[ControlAction] = []
    for action in actions:
        try:
            if is_left(action):
                moves.shut_out_left(full_name_of(action.address), _topic_id(action), may_go_on)
            rest.append(action)
        except LeaseError:
            raise
        except ReconcilerError as error:
            yield Failed(action.id, error)
    left = {action.id: _topic_id(action) for action in rest if is_left(action)}
    for outcome in do(rest) if rest else ():
        if (topic_id := left.get(outcome.id)) is not None:
            if isinstance(outcome, Done):
                moves.forget_left([topic_id])
            elif isinstance(outcome.error, UserError):
                # Refused. Of any other failure nobody knows whether it is being deleted.
                moves.let_in_left(topic_id)
        yield outcome


def _topic_id(action: ControlAction) -> str | None:
    return action.incarnation if isinstance(action, Delete) else None
