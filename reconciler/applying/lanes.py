"""Who does an action: one lane a cluster, taking batches, and one for jobs. Lanes go side by side."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.applying.ports import Moved
from reconciler.errors import BrokenInvariantError, ReconcilerError, RetryableError
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.providers.base import Done, Failed
from reconciler.state.entries import ActionEnded, ActionRefused, ActionSkipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.applying.events import Event
    from reconciler.applying.ports import Jobs, Turn
    from reconciler.planning.actions import Action, ControlAction
    from reconciler.providers.base import Outcome, Provider
    from reconciler.state.entries import Entry

JOBS = "jobs"
"""The lane of data actions; no cluster is called so, for lanes of clusters carry a prefix."""

RECORD = "record"
"""The lane of what changes only the state: nobody is called."""

RECORD_BATCH: Final = 10_000

Lane: TypeAlias = str


def lane_of(action: Action) -> Lane:
    """Return the lane of an action."""
    match action:
        case Create() | Update() | Delete() | Transition():
            return f"cluster/{action.cluster}"
        case RunJob():
            return JOBS
        case Adopt() | Forget():
            return RECORD
        case _:
            assert_never(action)


def is_called(lane: Lane) -> bool:
    """Tell whether a platform is called for what is in a lane: so many of these at once as a run may."""
    return lane not in (JOBS, RECORD)


class Queue:
    """What waits in one lane, taken in batches of at most `size`."""

    def __init__(self, size: int) -> None:
        """`size` is what the platform takes in one call."""
        self._size = size
        self._waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Put an action behind the others."""
        self._waiting.append(action)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return not self._waiting

    def take(self) -> list[Action]:
        """Return the next batch; empty when nothing waits."""
        return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]


def do_batch(provider: Provider, actions: Sequence[ControlAction], turn: Turn) -> list[Outcome]:
    """Ask a platform for a batch and return one outcome for each action, whatever happens on the way.

    The lease is looked at once more, here: a call may have waited long for its thread.
    """
    found: dict[str, Outcome] = {}
    unanswered: ReconcilerError = BrokenInvariantError(
        "the platform gave no answer for it", hint="Please report this, with the run's files."
    )
    try:
        turn.check()
        for outcome in provider.apply(actions, may_go_on=turn.check):
            found[outcome.id] = outcome
    except ReconcilerError as error:
        unanswered = error
    except Exception as error:  # noqa: BLE001 - a bug in one platform must not lose what the others have done
        unanswered = _bug(error)
    return [found.get(action.id) or Failed(action.id, unanswered) for action in actions]


def entries_of(action: Action, outcome: Outcome, lost: Mapping[str, Sequence[str]]) -> Iterator[Entry]:
    """Yield what the journal says of an outcome; `lost` are the actions that cannot be tried after a failure.

    Where a platform did not answer, nobody knows what happened: the intent stays open, to be settled by looking.
    """
    match outcome:
        case Done():
            yield ActionEnded(id=action.id, incarnation=outcome.incarnation, physical_name=outcome.physical_name)
        case Failed():
            if not is_in_doubt(action, outcome):
                yield ActionRefused(id=action.id, error=outcome.error.message, hint=outcome.error.hint)
            for name in lost[action.id]:
                yield ActionSkipped(id=name, because=action.id)
        case _:
            assert_never(outcome)


def is_in_doubt(action: Action, outcome: Failed) -> bool:
    """Tell whether a failure leaves open what happened; a job finds what it published by itself."""
    is_unknown = isinstance(outcome.error, RetryableError | BrokenInvariantError)
    return is_unknown and not isinstance(action, RunJob)


def do_job(job: RunJob, jobs: Jobs, turn: Turn, say: Callable[[Event], None]) -> tuple[Outcome, Moved]:
    """Run a job and return its outcome and what it moved."""
    try:
        turn.check()
        return Done(job.id), jobs.run(job, say)
    except ReconcilerError as error:
        return Failed(job.id, error), Moved()
    except Exception as error:  # noqa: BLE001 - as in a batch
        return Failed(job.id, _bug(error)), Moved()


def _bug(error: Exception) -> BrokenInvariantError:
    broken = BrokenInvariantError(
        f"{type(error).__name__}: {error}", hint="Please report this, with the run's files; the rest goes on."
    )
    broken.__cause__ = error
    return broken
