"""Mirrors found half-way through a move that nothing of a plan is about: they take no records, and somebody is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.planning.deciding.leavingmirrors import is_on_its_way
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import is_live
from reconciler.planning.wanted.sources import link_of
from reconciler.planning.wanted.ways import peer_of
from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address

_OTHERWISE: Final = frozenset({"failover", "promote"})
"""What stops a mirror so that no reversal of it can end any more."""


def say_under_way(situation: Situation, decision: Decision) -> None:
    """Tell of restores and reversals under way, also those that no entry of the files waits for."""
    if situation.given.is_destroy:
        return
    told = _told(decision)
    for address, mirror in sorted(situation.mirrors.items()):
        seen = situation.observed[address]
        is_ours = link_of(mirror) in situation.wanted and situation.is_decidable(address)
        if not is_ours or not is_on_its_way(seen):
            continue
        if is_broken_off(address, situation):
            peer = peer_of(mirror).address
            decision.warn(
                address,
                situation.wanted[link_of(mirror)].source,
                f"it is {seen.state} and takes no records: its reversal was broken off when {peer} was stopped",
                f"Let it take records again with: reconciler mirror failover {address}",
            )
        elif not {address, peer_of(mirror).address} & told:
            decision.waiting.append(Waiting(address, seen.state or ""))


def is_broken_off(address: Address, situation: Situation) -> bool:
    """Tell whether a mirror waits for the end of a reversal whose other side somebody stopped otherwise."""
    seen = situation.observed.get(address)
    if seen is None or not isinstance(seen.resource, MirrorTopic) or seen.state != MirrorStatus.PENDING_MIRROR:
        return False
    peer = situation.observed.get(peer_of(seen.resource).address)
    return peer is not None and not is_live(peer) and peer.stopped_by in _OTHERWISE


def _told(decision: Decision) -> frozenset[Address | None]:
    acted = {action.address for action in decision.actions}
    waiting = {each.address for each in decision.waiting}
    return frozenset({*acted, *waiting, *(each.address for each in decision.errors)})
