"""What is on the clusters and nobody declares: listed, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.situation import mirror_at
from reconciler.planning.wanted.sources import link_of
from reconciler.resources.address import Address, kind_of, matches, rank
from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed


def unmanaged(situation: Situation) -> tuple[Address, ...]:
    """Return the observed addresses that are neither declared nor recorded, and that this workspace is for."""
    if situation.given.is_destroy:
        return ()
    patterns = situation.given.guards.only
    found = (
        address
        for address, seen in situation.observed.items()
        if address not in situation.wanted
        and address not in situation.recorded
        and _is_strange(address, seen, situation)
    )
    return tuple(
        sorted((item for item in found if not patterns or any(matches(only, item) for only in patterns)), key=rank)
    )


def _is_strange(address: Address, seen: Observed, situation: Situation) -> bool:
    if seen.is_internal or not situation.is_decidable(address) or kind_of(address) in {"cluster", "policy"}:
        return False
    if isinstance(seen.resource, MirrorTopic):
        return not _is_of_our_link(seen.resource, situation)
    if kind_of(address) != "topic":
        return True
    mirror = situation.mirrors.get(mirror_at(address))
    is_role = mirror_at(address) in situation.wanted or mirror_at(address) in situation.recorded
    is_stopped = mirror is not None and _is_of_our_link(mirror, situation)
    return not (is_role or is_stopped or address in situation.mountings)


def _is_of_our_link(mirror: MirrorTopic, situation: Situation) -> bool:
    """Tell whether a mirror belongs to a link of ours, be it one that its link made by itself."""
    link = link_of(mirror)
    return link in situation.wanted or link in situation.recorded
