"""What is declared together: one topic named by a Topic, a mounting and a mirror; who of them speaks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.deciding.mirrored import is_mirror
from reconciler.resources.address import address_of, full_name_of
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision, Sides
    from reconciler.planning.situation import Situation


def is_spoken_for(sides: Sides, situation: Situation, decision: Decision) -> bool:
    """Tell whether a Topic manifest is to be left alone now, because something else of its name comes first."""
    return is_mirror(sides, situation, decision) or _is_mounting(sides, situation, decision)


def _is_mounting(sides: Sides, situation: Situation, decision: Decision) -> bool:
    mounting = situation.mountings.get(sides.address)
    if mounting is not None:
        return mounting.spec.state == "unmounted"  # understood to be detached
    if sides.before is not None:
        return False
    cluster = sides.address.split("/")[1]
    last = situation.recorded.get(address_of("mounting", cluster, full_name_of(sides.address)))
    if last is None or not isinstance(last.resource, Mounting) or last.resource.spec.state != "unmounted":
        return False
    where = last.physical_name or last.resource.spec.source or last.resource.metadata.name
    forgetting = last.resource.address if sides.last is None else f"{last.resource.address} {sides.address}"
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it lies detached at {where}, and its Mounting is no longer declared",
        "Declare the Mounting again: mounted to have the topic back, unmounted to leave it there. "
        f"To make a new and empty one: reconciler state rm {forgetting}",
    )
    return True
