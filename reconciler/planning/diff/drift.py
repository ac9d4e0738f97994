"""Ignored drift, and plans that only revert drift."""

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
from reconciler.planning.diff.converge import UNSEAL, Decision, compute_precondition
from reconciler.planning.fields import list_fields
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.limits import check_changes
from reconciler.planning.situation import Review, Situation, list_altered_paths
from reconciler.resources.address import Address, cluster_of, matches_pattern
from reconciler.resources.mirror_link import MirrorTopic

if TYPE_CHECKING:
    from datetime import date

    from reconciler.resources.inventory import Recorded, Resource
    from reconciler.resources.workspace import Guards, IgnoredDrift


def build_drift_filter(guards: Guards, today: date) -> Callable[[Address, str], str | None]:
    """Return a function that returns why drift of a field is ignored, or `None`."""
    rules = [rule for rule in guards.ignore_drift if rule.until >= today]
    if not rules:
        return lambda _address, _path: None

    def ignored(address: Address, path: str) -> str | None:
        for rule in rules:
            if matches_pattern(rule.match, address) and matches_pattern(rule.field, path):
                return f"{rule.reason}, until {rule.until.isoformat()}"
        return None

    return ignored


def warnings_of_unmatched_rules(review: Review) -> Iterator[PlanFinding]:
    """Warn about rules of ignored drift that match no resource or field."""
    situation = review.situation
    request = situation.request
    if request.options.is_destroy:
        return
    for rule in request.guards.ignore_drift:
        if rule.until < request.today:
            continue  # `check_expired` reports expired rules.
        addresses = [address for address in _list_known_addresses(situation) if matches_pattern(rule.match, address)]
        if any(_has_field(situation, address, rule) for address in addresses):
            continue
        name = f"guards.ignoreDrift {rule.match} {rule.field}"
        if addresses:
            yield PlanFinding(
                None,
                "reconciler.yaml",
                f"{name} matches no field of {_format_resources(addresses)}",
                "Correct the field, such as configs.retention.ms or partitions, or remove the rule.",
            )
        else:
            hint = "Correct the pattern, or remove the rule."
            yield PlanFinding(None, "reconciler.yaml", f"{name} matches nothing that is declared or recorded", hint)


def _list_known_addresses(situation: Situation) -> Iterator[Address]:
    yield from sorted({*situation.wanted, *situation.recorded})


def _has_field(situation: Situation, address: Address, rule: IgnoredDrift) -> bool:
    sides = (situation.wanted.get(address), situation.recorded.get(address), situation.observed.get(address))
    return any(
        matches_pattern(rule.field, path) for side in sides if side is not None for path in list_fields(side.resource)
    ) or any(matches_pattern(rule.field, path) for path in _list_other_paths(situation, address))


def _list_other_paths(situation: Situation, address: Address) -> Iterator[str]:
    wanted = situation.wanted.get(address)
    yield from wanted.origins if wanted is not None else ()
    yield from ("state",) if address.startswith("mirror/") else ()  # `list_fields` omits a mirror's pause.


def _format_resources(addresses: list[Address]) -> str:
    return addresses[0] if len(addresses) == 1 else f"the {len(addresses)} resources it matches"


def keep_only_drift(decision: Decision, situation: Situation) -> None:
    """Keep only actions that revert changed fields and recreate missing resources."""
    reverting = list(_find_reverting_actions(decision, situation))
    made = {action.address for action in reverting if isinstance(action, Create)}
    decision.actions = [action for action in reverting if not _is_part_of_mirror(action) or action.address in made]
    _warn_of_kept_drift(decision, situation, made)


def _is_part_of_mirror(action: Action) -> bool:
    if isinstance(action, Transition):
        return action.machine == MIRROR.name and not action.changes
    return isinstance(action, RunJob)


def _find_reverting_actions(decision: Decision, situation: Situation) -> Iterator[Action]:
    for action in decision.actions:
        match action:
            case Update():
                yield from _revert_update(action, situation, decision)
            case Create():
                yield from _recreate_as_recorded(action, situation)
            case RunJob():
                if Reason.FIRST_COPY in action.reasons:
                    yield action
            case Transition() if action.machine == MIRROR.name:
                if action.changes or action.verb == "pause":
                    yield action
            case Transition() if action.changes:
                yield from _revert_tiering(action, situation, decision)
            case Adopt() | Delete() | Forget() | Transition():
                pass
            case _:
                assert_never(action)


def _revert_update(action: Update, situation: Situation, decision: Decision) -> Iterator[Update]:
    last = situation.recorded.get(action.address)
    moved = {finding.path: finding.recorded for finding in decision.drift if finding.address == action.address}
    _warn_of_renamed(action, moved, decision)
    changes = tuple(
        _revert_change(change, moved, last) for change in action.changes if change.path in moved or change == UNSEAL
    )
    if last is None or not changes or _refuse_revert(action, changes, situation, decision):
        return
    yield replace(
        action,
        changes=changes,
        after=last.resource,
        origins=_drop_altered_origins(last, changes),
        reasons=(Reason.DRIFTED,),
        precondition=compute_precondition(
            action.address, situation.observed.get(action.address), (change.path for change in changes)
        ),
    )


def _drop_altered_origins(last: Recorded, changes: Iterable[Change]) -> dict[str, str]:
    back = list_altered_paths(last) & {change.path for change in changes}
    return {path: origin for path, origin in last.origins.items() if path not in back}


def _warn_of_renamed(action: Update, moved: Mapping[str, Value], decision: Decision) -> None:
    fields = ", ".join(change.path for change in action.changes if change.drift and change.path not in {*moved, SEALED})
    if fields:
        message = f"{fields} drifted under its old name and is not reset: the files rename it"
        decision.warn(action.address, action.source, message, "`reconciler apply` does both.")


def _revert_tiering(action: Transition, situation: Situation, decision: Decision) -> Iterator[Transition]:
    last = situation.recorded.get(action.address)
    drifted = [change for change in action.changes if change.drift]
    if last is not None and len(drifted) == len(action.changes):
        yield replace(action, after=last.resource, origins=last.origins, reasons=(Reason.DRIFTED,))
    elif drifted:
        message = f"it is left {action.from_state}: the files changed its tiering, too"
        decision.warn(action.address, action.source, message, "`reconciler apply` sets it to the files' value.")


def _revert_change(change: Change, moved: Mapping[str, Value], last: Recorded | None) -> Change:
    if change.drift:
        return change
    origin = last.origins.get(change.path) if last is not None else None
    return replace(change, after=moved[change.path], drift=True, origin=origin)


def _refuse_revert(action: Update, changes: tuple[Change, ...], situation: Situation, decision: Decision) -> bool:
    problems = list(check_changes(changes, situation.find_capabilities(cluster_of(action.address) or "")))
    for message, _ in problems:
        why = message.replace(" are declared:", " were applied last:")
        hint = "Plain `reconciler apply` sets it to the files' value; `--exclude` leaves it as it is."
        decision.refuse(action.address, action.source, f"it cannot be set back: {why}", hint)
    return bool(problems)


def _warn_of_kept_drift(decision: Decision, situation: Situation, made: AbstractSet[Address]) -> None:
    refused = {finding.address for finding in decision.errors}
    for drift_finding in decision.drift:
        wanted = situation.wanted.get(drift_finding.address)
        if drift_finding.address in made | refused:
            continue
        if drift_finding.path == "incarnation":
            message = "it was deleted and created again outside reconciler: that cannot be set back"
            hint = "`reconciler apply` adopts what exists."
        elif not drift_finding.path:
            message = "it was deleted, and the files declare another resource there: it is not created again"
            hint = "`reconciler apply` creates the declared resource."
        else:
            continue
        decision.warn(drift_finding.address, wanted.source if wanted else None, message, hint)


def _recreate_as_recorded(action: Create, situation: Situation) -> Iterator[Create]:
    last = situation.recorded.get(action.address)
    if last is None or Reason.MISSING not in action.reasons:
        return
    after = _choose_resource_to_recreate(action.after, last.resource)
    if after is not None:
        yield replace(action, after=after, origins=last.origins)


def _choose_resource_to_recreate(wanted: Resource, last: Resource) -> Resource | None:
    if not isinstance(wanted, MirrorTopic):
        return last if type(last) is type(wanted) else None
    # A mirror's other fields follow its source.
    is_same = isinstance(last, MirrorTopic) and (last.link, last.source, last.state) == (
        wanted.link,
        wanted.source,
        wanted.state,
    )
    return wanted.model_copy(update={"configs": last.configs}) if is_same and isinstance(last, MirrorTopic) else None
