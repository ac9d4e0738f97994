"""`apply --only-drift`: of all that was decided, what brings back what the clusters moved away from, as last applied.

What the files changed since stays undone, also in a topic that drifted beside it, and in the very field that did: the
record goes on saying what was applied, so that the next plan sees the change of the files as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.actions import Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.deciding.decision import precondition
from reconciler.planning.judging.limits import check_changes
from reconciler.resources.address import cluster_of
from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from reconciler.planning.actions import Action, Change, Value
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Recorded
    from reconciler.resources.kinds import Resource


def only_drift(decision: Decision, situation: Situation) -> None:
    """Leave of what was decided what sets drift back: fields that moved, and what was recorded and is gone.

    Nothing is created that was not there before, nothing is deleted, adopted, forgotten or moved through a lifecycle. A
    mirror that is made again is copied again, for it is made empty. What cannot be set back is said.
    """
    kept = list(_kept(decision, situation))
    made = {action.address for action in kept if isinstance(action, Create)}
    decision.actions = [action for action in kept if not isinstance(action, RunJob) or action.address in made]
    _warn_of_what_stays(decision, situation, made)


def _kept(decision: Decision, situation: Situation) -> Iterator[Action]:
    for action in decision.actions:
        match action:
            case Update():
                yield from _back(action, situation, decision)
            case Create():
                yield from _again(action, situation)
            case RunJob():
                if Reason.FIRST_COPY in action.reasons:
                    yield action
            case Transition() if action.changes:
                yield from _switched_back(action, situation, decision)
            case Adopt() | Delete() | Forget() | Transition():
                pass
            case _:
                assert_never(action)


def _back(action: Update, situation: Situation, decision: Decision) -> Iterator[Update]:
    """Yield an update of what drifted to what is recorded, whatever the files say of it by now.

    Where they say what the cluster has, nothing was going to change, and nothing is set back.
    """
    last = situation.recorded.get(action.address)
    moved = {found.path: found.recorded for found in decision.drift if found.address == action.address}
    _warn_of_renamed(action, moved, decision)
    changes = tuple(_backwards(change, moved, last) for change in action.changes if change.path in moved)
    if last is None or not changes or _is_refused(action, changes, situation, decision):
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


def _warn_of_renamed(action: Update, moved: Mapping[str, Value], decision: Decision) -> None:
    """Say what drifted under the name that the record has still: it is set back once it is called as the files say."""
    fields = ", ".join(change.path for change in action.changes if change.drift and change.path not in moved)
    if fields:
        message = f"{fields} moved away under the name it had, and is not set back: the files rename it"
        decision.warn(action.address, action.source, message, "`reconciler apply` does both.")


def _switched_back(action: Transition, situation: Situation, decision: Decision) -> Iterator[Transition]:
    """Yield a move of tiering that somebody else made necessary; one that the files changed meanwhile is left alone."""
    last = situation.recorded.get(action.address)
    drifted = [change for change in action.changes if change.drift]
    if last is not None and len(drifted) == len(action.changes):
        yield replace(action, after=last.resource, origins=last.origins, reasons=(Reason.DRIFTED,))
    elif drifted:
        message = f"it is left {action.from_state}: the files changed its tiering, too"
        decision.warn(action.address, action.source, message, "`reconciler apply` brings it to what the files say.")


def _backwards(change: Change, moved: Mapping[str, Value], last: Recorded | None) -> Change:
    if change.drift:
        return change
    origin = last.origins.get(change.path) if last is not None else None
    return replace(change, after=moved[change.path], drift=True, origin=origin)


def _is_refused(action: Update, changes: tuple[Change, ...], situation: Situation, decision: Decision) -> bool:
    """Tell whether the platform cannot go back, where it could have gone on to what the files say."""
    problems = list(check_changes(changes, situation.capabilities(cluster_of(action.address) or "")))
    for message, _ in problems:
        why = message.replace(" are declared:", " were applied last:")
        hint = "Plain `reconciler apply` brings it to what the files say; `--exclude` leaves it as it is."
        decision.refuse(action.address, action.source, f"it cannot be set back: {why}", hint)
    return bool(problems)


def _warn_of_what_stays(decision: Decision, situation: Situation, made: AbstractSet[Address]) -> None:
    refused = {finding.address for finding in decision.errors}
    for found in decision.drift:
        wanted = situation.wanted.get(found.address)
        if found.address in made | refused:
            continue
        if found.path == "incarnation":
            message = "somebody deleted it and made another one under its name: that cannot be set back"
            hint = "`reconciler apply` adopts what is there."
        elif not found.path:
            message = "it is gone, and the files ask for another thing at its place: it is not made again"
            hint = "`reconciler apply` makes what the files say."
        else:
            continue
        decision.warn(found.address, wanted.source if wanted else None, message, hint)


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
