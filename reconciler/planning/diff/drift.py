"""Reviewed drift, and plans that only bring back drift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.lifecycles import MIRROR
from reconciler.planning.actions import (
    SEALED,
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Forget,
    Reason,
    RunJob,
    Transition,
    Update,
    Value,
)
from reconciler.planning.diff.converge import UNSEAL, Decision, precondition
from reconciler.planning.fields import fields_of
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.limits import check_changes
from reconciler.planning.situation import Review, Situation, altered_paths
from reconciler.resources.address import Address, cluster_of, matches
from reconciler.resources.mirror_link import MirrorTopic

if TYPE_CHECKING:
    from datetime import date

    from reconciler.resources.inventory import Recorded, Resource
    from reconciler.resources.workspace import Guards, IgnoredDrift


def ignoring(guards: Guards, today: date) -> Callable[[Address, str], str | None]:
    """Return the test of a field: the reason why it is left as it is observed, or `None`.

    A rule that has expired is an error of the plan and excuses nothing any more.
    """
    rules = [rule for rule in guards.ignore_drift if rule.until >= today]
    if not rules:
        return lambda _address, _path: None

    def ignored(address: Address, path: str) -> str | None:
        for rule in rules:
            if matches(rule.match, address) and matches(rule.field, path):
                return f"{rule.reason}, until {rule.until.isoformat()}"
        return None

    return ignored


def warnings_of_unmatched_rules(review: Review) -> Iterator[Finding]:
    """Yield a warning for each rule that no resource, or no field of those it matches, can ever need: a slip.

    A rule whose fields have not drifted yet is none: it may be there for what is to come.
    """
    situation = review.situation
    request = situation.request
    if request.options.is_destroy:
        return
    for rule in request.guards.ignore_drift:
        if rule.until < request.today:
            continue  # it has expired, and that is an error
        addresses = [address for address in _known(situation) if matches(rule.match, address)]
        if any(_has_field(situation, address, rule) for address in addresses):
            continue
        name = f"guards.ignoreDrift {rule.match} {rule.field}"
        if addresses:
            yield Finding(
                None,
                "reconciler.yaml",
                f"{name} matches no field of {_named(addresses)}",
                "Correct the field, such as configs.retention.ms or partitions, or remove the rule.",
            )
        else:
            hint = "Correct the pattern, or remove the rule."
            yield Finding(None, "reconciler.yaml", f"{name} matches nothing that is declared or recorded", hint)


def _known(situation: Situation) -> Iterator[Address]:
    yield from sorted({*situation.wanted, *situation.recorded})


def _has_field(situation: Situation, address: Address, rule: IgnoredDrift) -> bool:
    sides = (situation.wanted.get(address), situation.recorded.get(address), situation.observed.get(address))
    return any(
        matches(rule.field, path) for side in sides if side is not None for path in fields_of(side.resource)
    ) or any(matches(rule.field, path) for path in _unset(situation, address))


def _unset(situation: Situation, address: Address) -> Iterator[str]:
    wanted = situation.wanted.get(address)
    yield from wanted.origins if wanted is not None else ()
    yield from ("state",) if address.startswith("mirror/") else ()  # Its pause is compared apart.


def _named(addresses: list[Address]) -> str:
    return addresses[0] if len(addresses) == 1 else f"the {len(addresses)} resources it matches"


# `apply --only-drift`: of all that was decided, what brings back what the clusters moved away from, as last applied.
#
# What the files changed since stays undone, also in a topic that drifted beside it, and in the very field that did: the
# record goes on saying what was applied, so that the next plan sees the change of the files as before.


def only_drift(decision: Decision, situation: Situation) -> None:
    """Leave of what was decided what sets drift back: fields that moved, and what was recorded and is gone.

    Nothing is created that was not there before, nothing is deleted, adopted, forgotten or moved through a lifecycle. A
    mirror that is made again is copied or paused again, for it is made empty and active. What cannot go back is said.
    """
    kept = list(_kept(decision, situation))
    made = {action.address for action in kept if isinstance(action, Create)}
    decision.actions = [action for action in kept if not _comes_with_its_mirror(action) or action.address in made]
    _warn_of_what_stays(decision, situation, made)


def _comes_with_its_mirror(action: Action) -> bool:
    """Tell whether an action is only there because a mirror is made again."""
    if isinstance(action, Transition):
        return action.machine == MIRROR.name and not action.changes
    return isinstance(action, RunJob)


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
            case Transition() if action.machine == MIRROR.name:
                if action.changes or action.verb == "pause":
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
    changes = tuple(
        _backwards(change, moved, last) for change in action.changes if change.path in moved or change == UNSEAL
    )
    if last is None or not changes or _is_refused(action, changes, situation, decision):
        return
    yield replace(
        action,
        changes=changes,
        after=last.resource,
        origins=_without_altered(last, changes),
        reasons=(Reason.DRIFTED,),
        precondition=precondition(
            action.address, situation.observed.get(action.address), (change.path for change in changes)
        ),
    )


def _without_altered(last: Recorded, changes: Iterable[Change]) -> dict[str, str]:
    """Return the origins of a record once what a command set is taken away."""
    back = altered_paths(last) & {change.path for change in changes}
    return {path: origin for path, origin in last.origins.items() if path not in back}


def _warn_of_renamed(action: Update, moved: Mapping[str, Value], decision: Decision) -> None:
    """Say what drifted under the name that the record has still: it is set back once it is called as the files say."""
    fields = ", ".join(change.path for change in action.changes if change.drift and change.path not in {*moved, SEALED})
    if fields:
        message = f"{fields} moved away under the name it had, and is not set back: the files rename it"
        decision.warn(action.address, action.source, message, "`reconciler apply` does both.")


def _switched_back(action: Transition, situation: Situation, decision: Decision) -> Iterator[Transition]:
    """Yield a move of tiering that sets drift back; what the files changed is left alone."""
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
            message = "it was deleted and created again outside reconciler: that cannot be set back"
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
