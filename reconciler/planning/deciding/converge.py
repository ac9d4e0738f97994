"""One address: create it, own it, change it, or find that nothing is to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Adopt, Change, Create, Reason, Update
from reconciler.planning.canonical import plain
from reconciler.planning.deciding.adopting import as_observed, observed_origins
from reconciler.planning.deciding.decision import Decision, Sides, precondition
from reconciler.planning.deciding.differences import Comparison, Differences, differences, drifted
from reconciler.planning.deciding.rulenamespaces import is_only_a_prefix
from reconciler.planning.deciding.tiering import is_disabling, parted, problems
from reconciler.planning.fields import LINK_FEATURES, QUOTAS
from reconciler.planning.judging.limits import FIXED, check_changes
from reconciler.planning.plan import Waiting
from reconciler.resources.address import cluster_of
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.actions import Value
    from reconciler.planning.finding import Mark
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed, Recorded
    from reconciler.resources.kinds import Resource

GOING: Final = "DELETING"
"""What a cluster says of something that is marked for deletion and not gone yet."""


def converge(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about something that is made and changed in place."""
    address, wanted, last, before = sides.address, sides.wanted, sides.last, sides.before
    if before is None:
        create(sides, decision)
    elif before.state == GOING:
        decision.refuse(
            address, wanted.source, "it is being deleted", "Wait until it is gone (`run` finishes it), then plan again."
        )
    elif last is None:
        if wanted.implied_by is None:
            reason = Reason.ONLY_A_PREFIX if is_only_a_prefix(wanted, before, situation) else Reason.ALREADY_EXISTS
            _adopt_new(sides, before, situation, decision, reason)
    elif is_another(last, before):
        decision.drift.append(drifted(address, "incarnation", last.incarnation, before.incarnation))
        _adopt_new(sides, before, situation, decision, Reason.RECREATED)
    else:
        _change(sides, before, situation, decision)


def create(sides: Sides, decision: Decision, parameters: Mapping[str, Value] | None = None) -> None:
    """Make what is not there; what was there when we last looked is drift."""
    wanted, last = sides.wanted, sides.last
    reason = Reason.DECLARED if wanted.implied_by is None else Reason.IMPLIED_BY_TIER
    if last is not None:
        reason = Reason.MISSING
        decision.drift.append(drifted(sides.address, "", plain(last.resource.to_json()), None))
    decision.actions.append(
        Create(
            address=sides.address,
            after=wanted.resource,
            reasons=(reason,),
            source=wanted.source,
            origins=wanted.origins,
            parameters=parameters or {},
        )
    )


def adopt(
    sides: Sides,
    before: Observed,
    found: Differences,
    reason: Reason,
    moved_from: Address | None = None,
) -> Adopt:
    """Return the action by which the record learns what is there; what still differs is changed after it."""
    wanted = sides.wanted
    after: Resource = as_observed(wanted, before) if found.changes else wanted.resource
    return Adopt(
        address=sides.address,
        observed=before.resource,
        after=after,
        changes=found.record_changes,
        incarnation=before.incarnation,
        physical_name=before.physical_name,
        moved_from=moved_from,
        reasons=(reason,),
        source=wanted.source,
        origins=observed_origins(wanted.origins) if found.changes else wanted.origins,
        precondition=precondition(sides.address, before, (change.path for change in found.changes)),
    )


def update(sides: Sides, before: Observed, found: Differences) -> Update:
    """Return the action that changes field by field what differs."""
    return Update(
        address=sides.address,
        before=before.resource,
        after=sides.wanted.resource,
        changes=found.changes,
        reasons=found.reasons,
        source=sides.wanted.source,
        origins=sides.wanted.origins,
        precondition=precondition(sides.address, before, (change.path for change in found.changes)),
    )


def change(sides: Sides, before: Observed, found: Differences, situation: Situation, decision: Decision) -> None:
    """Bring what is there to what is wanted: what switches its tiering off or on first, then field by field."""
    move, rest = parted(sides, before, found, situation)
    if move is not None:
        decision.actions.append(move)
    if rest.changes:
        decision.actions.append(update(sides, before, rest))


def compare(sides: Sides, before: Observed, situation: Situation) -> Differences:
    """Compare one address with what is there, as far as its platform can hold it."""
    capabilities = situation.capabilities(cluster_of(sides.address) or "")
    is_link = isinstance(sides.wanted.resource, MirrorLink)
    how = Comparison(
        catalog=capabilities.configs,
        ignored=situation.ignored,
        is_compared=(lambda path: _is_held(path, capabilities.link_features)) if is_link else _always,
        is_recorded=_never if capabilities.keeps_quotas else _is_quota,
    )
    return differences(sides.address, sides.wanted, sides.last, before, how)


def is_another(last: Recorded, before: Observed) -> bool:
    """Tell whether what is there is not what we recorded, but something made later under its name."""
    return last.incarnation is not None and before.incarnation is not None and last.incarnation != before.incarnation


def _adopt_new(sides: Sides, before: Observed, situation: Situation, decision: Decision, reason: Reason) -> None:
    fresh = Sides(sides.address, sides.wanted, None, before)
    found = compare(fresh, before, situation)
    if not _refused(fresh, before, found.changes, situation, decision):
        decision.actions.append(adopt(fresh, before, found, reason))
        change(fresh, before, found, situation, decision)


def _change(sides: Sides, before: Observed, situation: Situation, decision: Decision) -> None:
    found = compare(sides, before, situation)
    decision.drift.extend(found.drift)
    if _refused(sides, before, found.changes, situation, decision):
        return
    # What only the record holds is shown as an action of its own, so that nobody misses it beside other changes.
    if found.record_changes or (found.is_stale and not found.changes):
        decision.actions.append(adopt(sides, before, found, Reason.RECORD_ONLY))
    change(sides, before, found, situation, decision)


def _refused(
    sides: Sides, before: Observed, changes: tuple[Change, ...], situation: Situation, decision: Decision
) -> bool:
    """Tell whether what differs cannot be brought together; say what is on its way by itself."""
    if is_disabling(before):
        decision.waiting.append(Waiting(sides.address, before.state or ""))
    capabilities = situation.capabilities(cluster_of(sides.address) or "")
    found = [*check_changes(changes, capabilities), *problems(sides, before, changes, situation)]
    for message, hint in found:
        decision.refuse(sides.address, sides.wanted.source, message, hint, marks=_marks(sides, changes))
    return bool(found)


def _marks(sides: Sides, changes: tuple[Change, ...]) -> tuple[Mark, ...]:
    """Return where the fields of a link are written that never change; of a half, where that was derived from."""
    if not isinstance(sides.wanted.resource, MirrorLink):
        return ()
    fixed = (change.path for change in changes if change.path in FIXED)
    return sides.wanted.marks or tuple((sides.address, ("spec", path)) for path in fixed)


def _is_held(path: str, features: frozenset[str]) -> bool:
    feature = LINK_FEATURES.get(path.partition(".")[0])
    return feature is None or feature in features


def _always(_path: str) -> bool:
    return True


def _never(_path: str) -> bool:
    return False


def _is_quota(path: str) -> bool:
    return path.startswith(QUOTAS)
