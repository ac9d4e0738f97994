"""Why an action is planned, in words."""

from __future__ import annotations

from typing import assert_never

from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.lifecycles.mounting import UNMOUNT
from reconciler.planning.actions import Action, Create, Delete, Forget, Reason, Transition
from reconciler.planning.estimates import Estimate
from reconciler.resources.topic import Topic


def _recovered(action: Action) -> str:
    if not isinstance(action, Create):
        return ""
    given, found = action.parameters, action.estimate
    partitions = given.get("partitions")
    parts = [
        counted(partitions, "partition") if isinstance(partitions, int) else "",
        counted(found.records, "record"),
        bytes_text(found.bytes),
    ]
    named = isinstance(action.after, Topic) and action.after.spec.recover_from is not None
    where = "" if named else f" from {given.get('recoverFrom')}"
    return f"to be copied{where}: {', '.join(filter(None, parts))}"


def _unmeasured(action: Action) -> str:
    if isinstance(action, Delete):
        return "size unknown"
    if action.estimate.role is not None:
        return ""  # `role_notes` say why
    if isinstance(action, Transition) and action.machine == UNMOUNT.name:
        return "cannot tell how much is to flush"
    if Reason.BECOMES_UNREADABLE in action.reasons:
        return "cannot tell what becomes unreadable"
    return "cannot tell how much expires now"


def _replicas(action: Action) -> str:
    found = action.estimate
    partitions = counted(found.partitions, "partition")
    copied = f", about {bytes_text(found.replicated)} between brokers" if found.replicated else ""
    return f"replicas of {partitions} move{copied}"


def _unreadable(estimate: Estimate) -> str:
    """Return what is lost in offsets and bytes, in all; by partition it stands in the JSON."""
    lost = estimate.unreadable
    if not lost:
        return ""
    offsets = counted(sum(each.stop - each.start for each in lost), "offset")
    places = counted(len(lost), "partition")
    return f"{offsets} of {places} become unreadable, about {bytes_text(sum(each.bytes for each in lost))}"


def _expiring(action: Action) -> int:
    return action.estimate.bytes - sum(each.bytes for each in action.estimate.unreadable)


def reason_text(reason: Reason, action: Action) -> str:  # noqa: C901, PLR0912 - one case a reason
    """Return a reason in words; nothing where the line itself says it."""
    match reason:
        case Reason.NO_LONGER_DECLARED:
            return "" if isinstance(action, Delete | Forget) else "no longer declared"
        case Reason.RETENTION_LOWERED | Reason.DELETE_ADDED:
            return "" if Reason.UNMEASURED in action.reasons else f"about {bytes_text(_expiring(action))} expire now"
        case Reason.UNMEASURED:
            return _unmeasured(action)
        case Reason.BECOMES_UNREADABLE:
            return _unreadable(action.estimate)
        case Reason.REMOTE_DELETED:
            return f"its remote data goes too: {action.estimate.location}"
        case Reason.REMOTE_KEPT:
            return f"its remote data is kept, recoverable from {action.estimate.location}"
        case Reason.UPLOADS:
            return f"about {bytes_text(action.estimate.uploads)} to upload"
        case Reason.DRIFTED:
            return "sets drift back"
        case Reason.ADOPTED_DIFFERS:
            return "found here, differs from the files"
        case Reason.IMPLIED_BY_TIER:
            return "implied by a tier below"
        case Reason.READDRESSED:
            return "under a new address"
        case Reason.CLUSTER_REMOVED:
            return "its cluster is no longer declared"
        case Reason.PARTITIONS_INCREASE:
            return "keys move to other partitions"
        case Reason.REPLICAS_MOVE:
            return _replicas(action)
        case Reason.MISSING | Reason.ALREADY_GONE:
            return "gone from the cluster"
        case Reason.FIRST_RULE:
            return "everyone may until now, then only who is allowed"
        case Reason.LAST_RULE:
            return "without access rules everyone may"
        case Reason.LAST_ALLOWANCE:
            return "no access rule allows anything any more: nobody may"
        case Reason.RECOVERED:
            return _recovered(action)
        case Reason.RECREATED:
            return "deleted and made anew by someone else"
        case (
            Reason.DECLARED
            | Reason.CHANGED
            | Reason.ALREADY_EXISTS
            | Reason.MOVED
            | Reason.HOLDS_DATA
            | Reason.DESTROYED
            | Reason.FIRST_COPY
            | Reason.RECORD_ONLY
            | Reason.ONLY_A_PREFIX
            | Reason.ROLE_WANTED
        ):
            return ""
        case _:
            assert_never(reason)
