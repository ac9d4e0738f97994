"""What has left the files: deleted where it is ours, forgotten where it is not there or not ours to delete."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Delete, Forget, Reason
from reconciler.planning.deciding.converge import GOING, is_another
from reconciler.planning.deciding.decision import Decision, precondition
from reconciler.planning.deciding.leavingmirrors import (
    destroyed_as_mirror,
    is_kept_by_link,
    is_on_its_way,
    leave_to_link,
    wait_for_end,
)
from reconciler.planning.deciding.mirrored import belongs_to_entry, say_kept
from reconciler.planning.deciding.rulenamespaces import going, say_rules_stay, say_what_stays
from reconciler.planning.estimates import Estimate
from reconciler.planning.judging.hidden import may_be_hidden
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import IMPLIED, STOPPED, Situation
from reconciler.planning.wanted.commanded import is_left
from reconciler.resources.address import Address, cluster_address, cluster_of, kind_of, rank
from reconciler.resources.mountable import MIGRATING
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace

if TYPE_CHECKING:
    from reconciler.resources.inventory import Observed, Recorded


def decide_removed(situation: Situation, decision: Decision) -> None:
    """Decide about every recorded address that is no longer wanted; leaves before what they lean on."""
    leaving = situation.recorded.keys() - situation.wanted.keys() - decision.settled
    undeclared: Counter[str] = Counter()
    for address in sorted(leaving, key=rank, reverse=True):
        cluster = cluster_of(address)
        if not situation.is_chosen(address) or address in situation.given.hidden or may_be_hidden(address, situation):
            continue
        if cluster not in situation.clusters:
            decision.actions.append(Forget(address=address, reasons=(Reason.CLUSTER_REMOVED,)))
            undeclared[cluster or ""] += kind_of(address) in _LEFT_THERE
        elif cluster in situation.trusted and not (address in situation.observed and is_left(address, situation)):
            _leave(address, situation.recorded[address], situation, decision)
    if situation.given.is_destroy:
        for cluster, count in sorted(undeclared.items()):
            _warn_of_left(cluster, count, decision)


_LEFT_THERE: Final = frozenset({"namespace", "topic", "mirror", "link"})


def _warn_of_left(cluster: str, count: int, decision: Decision) -> None:
    """Say that destroying deletes nothing on a cluster nobody declares: how to reach it is not known any more."""
    if count:
        decision.warn(
            cluster_address(cluster),
            None,
            f"the files no longer declare it: {count} resources on it are forgotten, and stay there with their records",
            "To delete them too, put the Cluster document back and destroy again.",
        )


def _leave(address: Address, last: Recorded, situation: Situation, decision: Decision) -> None:
    before = situation.observed.get(address)
    if kind_of(address) == "topic" and before is None:
        if say_kept(address, situation, decision):
            return
        before = destroyed_as_mirror(address, last, situation)
    reason = Reason.DESTROYED if situation.given.is_destroy else Reason.NO_LONGER_DECLARED
    kept = Estimate(location=situation.asleep.get(address))
    if before is not None and isinstance(before.resource, Mounting):
        _say_under_way(address, before, before.resource, decision)
    elif _is_only_forgotten(address, last, before, situation):
        decision.actions.append(Forget(address=address, reasons=(reason,), estimate=kept))
        say_rules_stay(address, last, situation, decision)
    elif before is None or is_another(last, before):
        # What is there now under its name was made by somebody else: it is not ours to delete.
        decision.actions.append(Forget(address=address, reasons=(Reason.ALREADY_GONE,), estimate=kept))
    elif kind_of(address) == "mirror" and is_kept_by_link(before, situation):
        leave_to_link(address, before, situation, decision)
    elif is_on_its_way(before):
        wait_for_end(address, before, decision)
    elif before.state == GOING:
        decision.waiting.append(Waiting(address, GOING))
    elif before.state == MIGRATING:
        decision.waiting.append(Waiting(address, MIGRATING))
        message = f"it is being mounted or unmounted ({MIGRATING}), and cannot be deleted until that is done"
        hint = "`reconciler run` finishes it, unless it waits to be told. See how far it is: reconciler mount status"
        decision.refuse(address, None, message, hint)
    else:
        gone = going(last, before, situation)
        decision.actions.append(
            Delete(
                address=address,
                before=gone,
                incarnation=before.incarnation,
                reasons=(reason,),
                precondition=precondition(address, before),
            )
        )
        if isinstance(gone, Namespace):
            say_what_stays(gone, situation, decision)


def _say_under_way(address: Address, before: Observed, mounting: Mounting, decision: Decision) -> None:
    """Keep a mounting that a job is about: forgotten, it would stand half-done, and nobody would be told."""
    decision.waiting.append(Waiting(address, before.state or ""))
    what = "mounted" if mounting.spec.state == "mounted" else "unmounted"
    message = f"its topic is being {what} ({before.state}), and nobody goes on with that while no file declares it"
    hint = "Put the Mounting back, or call it off with `reconciler mount cancel`; see: reconciler mount status"
    decision.warn(address, None, message, hint)


def _is_only_forgotten(address: Address, last: Recorded, before: Observed | None, situation: Situation) -> bool:
    kind = kind_of(address)
    if kind in {"cluster", "mounting", "policy"}:
        return True  # a cluster is never deleted, and forgetting a mounting neither mounts nor unmounts
    if situation.given.is_destroy and last.ownership == "adopted" and not situation.given.include_adopted:
        return True
    if kind == "mirror":
        return before is not None and before.state == STOPPED
    if kind == "topic" and (address in situation.mountings or belongs_to_entry(address, situation)):
        return True  # a mounted topic belongs to its Mounting, and one that was mirrored to its link's entry
    # A tier that was there before us, and that only our namespaces below needed, is not ours to delete.
    return IMPLIED in last.origins and last.ownership == "adopted"
