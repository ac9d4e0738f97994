"""`apply --only-drift`: of all that was decided, what brings back what the clusters moved away from, as last applied.

What the files changed since stays undone, also in a topic that drifted beside it: the record goes on saying what was
applied, so that the next plan sees the change of the files as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.actions import Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.deciding.decision import precondition
from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.planning.actions import Action
    from reconciler.planning.situation import Situation
    from reconciler.resources.kinds import Resource


def only_drift(actions: Iterable[Action], situation: Situation) -> list[Action]:
    """Return what of `actions` sets drift back: fields that moved, and what was recorded and is gone.

    Nothing is created that was not there before, nothing is deleted, adopted, forgotten or moved through a lifecycle. A
    mirror that is made again is copied again, for it is made empty.
    """
    kept = list(_kept(actions, situation))
    made = {action.address for action in kept if isinstance(action, Create)}
    return [action for action in kept if not isinstance(action, RunJob) or action.address in made]


def _kept(actions: Iterable[Action], situation: Situation) -> Iterator[Action]:
    for action in actions:
        match action:
            case Update():
                yield from _back(action, situation)
            case Create():
                yield from _again(action, situation)
            case RunJob():
                if Reason.FIRST_COPY in action.reasons:
                    yield action
            case Adopt() | Delete() | Forget() | Transition():
                pass
            case _:
                assert_never(action)


def _back(action: Update, situation: Situation) -> Iterator[Update]:
    """Yield the part of an update that goes back to what is recorded."""
    last = situation.recorded.get(action.address)
    changes = tuple(change for change in action.changes if change.drift)
    if last is None or not changes:
        return
    yield replace(
        action,
        changes=changes,
        after=last.resource,
        origins=last.origins,
        reasons=(Reason.DRIFTED,),
        precondition=precondition(
            action.address, situation.observed.get(action.address), (change.path for change in changes)
        ),
    )


def _again(action: Create, situation: Situation) -> Iterator[Create]:
    """Yield the making of what is gone, as it was."""
    last = situation.recorded.get(action.address)
    if last is None or Reason.MISSING not in action.reasons:
        return
    after = _as_it_was(action.after, last.resource)
    if after is not None:
        yield replace(action, after=after, origins=last.origins)


def _as_it_was(wanted: Resource, last: Resource) -> Resource | None:
    """Return what is made again; `None` where that would be another thing under the same address."""
    if not isinstance(wanted, MirrorTopic):
        return last if type(last) is type(wanted) else None
    # What a mirror is made of comes from its source as it is now; it only keeps its own configs.
    is_same = isinstance(last, MirrorTopic) and (last.link, last.source, last.state) == (
        wanted.link,
        wanted.source,
        wanted.state,
    )
    return wanted.model_copy(update={"configs": last.configs}) if is_same and isinstance(last, MirrorTopic) else None
