"""Who does an action: one lane a cluster, taking batches, and one for jobs. Lanes go side by side."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias, assert_never

from reconciler.errors import BrokenInvariantError, ReconcilerError
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.providers.base import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.actions import Action, ControlAction
    from reconciler.providers.base import Outcome, Provider

JOBS = "jobs"
"""The lane of data actions; no cluster is called so, for lanes of clusters carry a prefix."""

Lane: TypeAlias = str


def lane_of(action: Action) -> Lane | None:
    """Return the lane of an action; `None` where only the state changes."""
    match action:
        case Create() | Update() | Delete() | Transition():
            return f"cluster/{action.cluster}"
        case RunJob():
            return JOBS
        case Adopt() | Forget():
            return None
        case _:
            assert_never(action)


class Queue:
    """What waits in one lane, taken in batches of at most `size`."""

    def __init__(self, size: int) -> None:
        """`size` is what the platform takes in one call."""
        self._size = size
        self._waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Put an action behind the others."""
        self._waiting.append(action)

    def take(self) -> list[Action]:
        """Return the next batch; empty when nothing waits."""
        return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]


def do_batch(provider: Provider, actions: Sequence[ControlAction]) -> list[Outcome]:
    """Ask a platform for a batch and return one outcome for each action, whatever happens on the way."""
    found: dict[str, Outcome] = {}
    error: ReconcilerError | None = None
    try:
        for outcome in provider.apply(actions):
            found[outcome.id] = outcome
    except ReconcilerError as raised:
        error = raised
    unanswered = error or BrokenInvariantError("the platform gave no answer for it", hint="Please report this.")
    return [found.get(action.id) or Failed(action.id, unanswered) for action in actions]


def done(action: Action) -> Done:
    """Return the outcome of an action that called nothing and is complete by being recorded."""
    return Done(action.id)
