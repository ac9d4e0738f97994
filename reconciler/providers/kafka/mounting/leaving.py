"""Topics that are deleted because all of them is elsewhere: only where nothing was written to them since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import RetryableError
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
    actions: Sequence[ControlAction], open_moves: Callable[[], KafkaCopyMoves], do: Do
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
                # As late as it can be looked at: brokers keep nobody from writing.
                moves.check_left([moves.naming.physical(full_name_of(action.address))])
            rest.append(action)
        except RetryableError as error:
            yield Failed(action.id, error)
    gone = {action.id: action.incarnation for action in rest if isinstance(action, Delete) and is_left(action)}
    for outcome in do(rest) if rest else ():
        if isinstance(outcome, Done) and (topic_id := gone.get(outcome.id)) is not None:
            moves.forget_left([topic_id])
        yield outcome
