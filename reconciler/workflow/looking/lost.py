"""Topics that a cluster has still and object storage calls somebody else's: released while their cluster lived."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.situation import mounted_by
from reconciler.resources.address import kind_of
from reconciler.resources.mountable import MIGRATING
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Inventory, Observed, Record
    from reconciler.resources.mountable import Mountable


def leaving(desired: Desired, record: Record, inventory: Inventory) -> Iterator[Address]:
    """Yield the tiered topics that a plan unmounts or deletes: whose they are says what becomes of their records."""
    mountings = (declared.resource for declared in desired.values())
    unmounted = {
        mounted_by(each) for each in mountings if isinstance(each, Mounting) and each.spec.state == "unmounted"
    }
    gone = {address for address in record if kind_of(address) == "topic" and address not in desired}
    for address in sorted(unmounted | gone):
        seen = inventory.get(address)
        if seen is not None and seen.legacy is not None:
            yield address


def is_lost(seen: Observed, cluster_id: str, registered: Mountable | None) -> bool:
    """Tell whether a topic is not its cluster's any more, by its register; while it migrates, that is in order."""
    if registered is None or seen.state == MIGRATING:
        return False
    return registered.state == "detached" or registered.owner != cluster_id


def as_lost(inventory: Inventory, lost: Collection[Address]) -> Inventory:
    """Return what is there; what lies in object storage of topics that are lost stays there, and is not theirs."""
    found = dict(inventory)
    for address in lost:
        legacy = found[address].legacy
        if legacy is not None:
            found[address] = replace(found[address], legacy=replace(legacy, is_deleted=False, is_lost=True))
    return found
