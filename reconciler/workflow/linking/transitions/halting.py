"""Transitions that were stopped half-way: which side takes records meanwhile, what goes on with it, what opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, ReconcilerError
from reconciler.lifecycles.mirror import TWO_SIDED, MirrorStatus
from reconciler.planning.actions import Transition
from reconciler.resources.address import address_of, cluster_of, full_name_of
from reconciler.workflow.linking.transitions.driving import PROMOTE, RESTORE, REVERSALS, UNDER_WAY
from reconciler.workflow.linking.transitions.origins import mirror_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from reconciler.planning.actions import Action
    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.mirroring import MirrorSeen

_GOES_ON: Final = "Go on with: reconciler run --once --only mirror"


def halted(providers: Mapping[str, Provider], address: Address) -> IncompleteError | None:
    """Return what is said of a mirror whose transition was stopped; `None`: it was not begun, or has ended.

    Where a cluster does not answer, nothing is known to say.
    """
    try:
        here = mirror_at(providers[cluster_of(address) or ""].links, full_name_of(address))
        there = None if here is None else mirror_at(providers[here.source_cluster].links, here.source)
    except ReconcilerError:
        return None
    if here is None:
        return None
    peer = address_of("mirror", here.source_cluster, here.source)
    is_joined = there is not None and there.status is MirrorStatus.PENDING_MIRROR
    if here.status in UNDER_WAY:
        said, opens = _under_way(address, here, peer if is_joined else None)
        message = f"stopped half-way: {said}"
    elif here.status is MirrorStatus.STOPPED and here.stopped_by in REVERSALS and is_joined:
        message = f"stopped half-way: {address} takes records, and {peer} is PENDING_MIRROR: it does not follow it yet"
        opens = ""
    else:
        return None
    return IncompleteError(message, hint=f"{_GOES_ON}. {opens}" if opens else _GOES_ON)


def _under_way(address: Address, here: MirrorSeen, shut: Address | None) -> tuple[str, str]:
    """Return which side takes no records, and what lets one of them take some as it is."""
    verb = "" if here.operation is None else here.operation.verb
    if verb == PROMOTE:
        return f"{address} is {here.status}: it takes no records yet", _opens(address)
    if verb == RESTORE:
        other = f"its mirror on {here.source_cluster} goes on taking them"
        return f"{address} is {here.status} and takes no records; {other}", _opens(address)
    if shut is None:
        return f"{address} is {here.status}; its source still takes records, until it is gone on with", _opens(address)
    return f"{address} is {here.status} and {shut} PENDING_MIRROR: neither takes records", _opens(shut)


def _opens(address: Address) -> str:
    return f"To give it up, and take records there as it is: reconciler mirror failover {address}"


def halted_of(
    providers: Mapping[str, Provider], actions: Iterable[Action], left: Collection[str]
) -> tuple[IncompleteError, ...]:
    """Return what is said of the transitions among what a stopped run has left, where they were begun."""
    asked = (one for one in actions if isinstance(one, Transition) and one.verb in TWO_SIDED and one.id in left)
    return tuple(found for one in asked if (found := halted(providers, one.address)) is not None)
