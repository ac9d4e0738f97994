"""What is declared together: one topic named by a Topic, a mounting and a mirror; who of them speaks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.situation import STOPPED, Situation, mirror_at
from reconciler.resources.address import address_of, full_name_of
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from reconciler.planning.deciding.converge import Sides
    from reconciler.planning.deciding.decision import Decision

_MIRRORS = frozenset({"mirroring", "paused"})


def is_spoken_for(sides: Sides, situation: Situation, decision: Decision) -> bool:
    """Tell whether a Topic manifest is to be left alone now, because something else of its name comes first."""
    return _is_mirror(sides, situation, decision) or _is_mounting(sides, situation, decision)


def _is_mirror(sides: Sides, situation: Situation, decision: Decision) -> bool:
    mirror = mirror_at(sides.address)
    wanted = situation.wanted.get(mirror)
    seen = situation.observed.get(mirror)
    is_live = seen is not None and seen.state != STOPPED
    if wanted is not None and isinstance(wanted.resource, MirrorTopic):
        if wanted.resource.state in _MIRRORS:
            decision.refuse(
                sides.address,
                sides.wanted.source,
                f"it is declared as a topic and, at {wanted.source}, as a mirror that is {wanted.resource.state}",
                "Remove one of the two: a live mirror takes its configs from its source.",
            )
            return True
        return is_live  # the transition comes first; afterwards the topic owns its configs
    if is_live and seen is not None and mirror not in situation.recorded:
        link = seen.resource.link if isinstance(seen.resource, MirrorTopic) else "a link"
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"a mirror of that name was made by link/{mirror.split('/')[1]}/{link}",
            "Exclude the name from the link's autoCreate filters and delete the mirror, or remove the Topic.",
        )
        return True
    return False


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
