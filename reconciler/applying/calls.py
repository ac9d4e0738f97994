"""Ask a platform, or a job: one outcome for each action, whatever happens on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.applying.ports import Moved
from reconciler.errors import BrokenInvariantError, ReconcilerError
from reconciler.providers.base import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.applying.events import Event
    from reconciler.applying.ports import DataAction, Jobs, Turn
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome, Provider


def do_batch(provider: Provider, actions: Sequence[ControlAction], turn: Turn) -> list[Outcome]:
    """Ask a platform for a batch and return one outcome for each action, whatever happens on the way.

    The lease is looked at once more, here: a call may have waited long for its thread.
    """
    found: dict[str, Outcome] = {}
    unanswered: ReconcilerError | None = None
    try:
        turn.check()
        for outcome in provider.apply(actions, may_go_on=turn.check):
            found[outcome.id] = outcome
    except ReconcilerError as error:
        unanswered = error
    except Exception as error:  # noqa: BLE001 - a bug in one platform must not lose what the others have done
        unanswered = _bug(error)
    return [found.get(action.id) or Failed(action.id, unanswered or _no_answer()) for action in actions]


def do_job(job: DataAction, jobs: Jobs, turn: Turn, say: Callable[[Event], None]) -> tuple[Outcome, Moved]:
    """Run a job, or drive a transition over two clusters, and return its outcome and what it moved."""
    try:
        turn.check()
        moved = jobs.run(job, say, turn.check)
        return Done(job.id, moved.incarnation, moved.physical_name), moved
    except ReconcilerError as error:
        return Failed(job.id, error), Moved()
    except Exception as error:  # noqa: BLE001 - as in a batch
        return Failed(job.id, _bug(error)), Moved()


def _no_answer() -> BrokenInvariantError:
    return BrokenInvariantError("the platform gave no answer for it", hint="Please report this, with the run's files.")


def _bug(error: Exception) -> BrokenInvariantError:
    broken = BrokenInvariantError(
        f"{type(error).__name__}: {error}", hint="Please report this, with the run's files; the rest goes on."
    )
    broken.__cause__ = error
    return broken
