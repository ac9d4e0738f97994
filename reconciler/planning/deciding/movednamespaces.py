"""A namespace that was called otherwise: what is declared in it moves there, each topic by an action of its own.

The namespace is made under its new name first, and the old one goes last, when nothing is left in it. Nothing that is
not declared is renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, split_name, tiers_of
from reconciler.resources.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.deciding.decision import Decision, Sides
    from reconciler.planning.situation import Situation


def implied_moves(situation: Situation) -> Mapping[Address, Address]:
    """Return what is declared in a moved namespace, with the address it had there before."""
    moved = {
        address: wanted.moved_from
        for address, wanted in situation.wanted.items()
        if wanted.moved_from is not None and isinstance(wanted.resource, Namespace)
    }
    if not moved:
        return {}
    implied: dict[Address, Address] = {}
    for address, wanted in situation.wanted.items():
        if wanted.moved_from is None and kind_of(address) in {"topic", "namespace"}:
            old = _old(address, moved)
            if old is not None and _means_something(address, old, situation):
                implied[address] = old
    return implied


def is_namespace_refused(sides: Sides, old: Address, situation: Situation, decision: Decision) -> bool:
    """Refuse to move a namespace whose old name is declared as well; say whether it was."""
    if old not in situation.wanted or old == sides.address:
        return False
    message = f"{old}, which it is moved from, is declared too"
    decision.refuse(sides.address, sides.wanted.source, message, "Remove movedFrom, or one of the two.")
    return True


def _old(address: Address, moved: Mapping[Address, Address]) -> Address | None:
    cluster, full_name = cluster_of(address) or "", full_name_of(address)
    home = full_name.rpartition(":")[0] if kind_of(address) == "namespace" else split_name(full_name)[0]
    for tier in reversed(tiers_of(home)):
        old = moved.get(address_of("namespace", cluster, tier))
        if old is not None:
            return Address(f"{kind_of(address)}/{cluster}/{full_name_of(old)}{full_name[len(tier) :]}")
    return None


def _means_something(address: Address, old: Address, situation: Situation) -> bool:
    """Tell whether the old name is still to be left: where both are there, it has been used anew since."""
    if old in situation.wanted:
        return False
    return old in situation.recorded if address in situation.observed else old in situation.observed
