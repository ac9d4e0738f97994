"""Mirrors whose entry left the files, and that are not simply deleted: their link keeps them, or they are on a way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MIRROR
from reconciler.planning.actions import Delete, Forget, Reason
from reconciler.planning.judging.allowances import allowances, granted_by
from reconciler.planning.plan import Waiting
from reconciler.planning.situation import is_live, mirror_at
from reconciler.planning.wanted.sources import link_of
from reconciler.planning.wanted.ways import status_of
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.namefilters import takes

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed, Recorded

_OVER: Final = frozenset({"FAILED", "STOPPED"})
"""States in which a mirror can be deleted whatever the filters of its link say."""


def is_kept_by_link(seen: Observed, situation: Situation) -> bool:
    """Tell whether a mirror is its link's still: it made it, or its filters would have it made again."""
    mirror = seen.resource
    if not isinstance(mirror, MirrorTopic) or seen.state in _OVER:
        return False
    link = situation.wanted.get(link_of(mirror))
    if link is None or not isinstance(link.resource, MirrorLink):
        return False
    making = link.resource.spec.auto_create
    return making is not None and making.enabled and takes(making.filters, mirror.source)


def leave_to_link(address: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Forget a mirror that goes on without its entry. Who wants it deleted has to keep it from being made again."""
    mirror = seen.resource
    link = link_of(mirror) if isinstance(mirror, MirrorTopic) else address
    wanted = situation.wanted.get(link)
    source = wanted.source if wanted is not None else None
    delete = Delete(address=address, before=seen.resource)
    if granted_by(delete, allowances(situation.given.guards, situation.given.selection)) is not None:
        name = mirror.source if isinstance(mirror, MirrorTopic) else ""
        decision.refuse(
            address,
            source,
            f"it cannot be deleted: the autoCreate filters of {link} take its source, so that it would be made again",
            f"Exclude {name!r} from the filters, or switch autoCreate off; or fail it over first.",
            marks=((link, ("spec", "autoCreate", "filters")),),
        )
        return
    decision.actions.append(Forget(address=address, reasons=(Reason.NO_LONGER_DECLARED,)))
    message = f"its entry is gone, and it goes on: the autoCreate filters of {link} take its source"
    decision.warn(address, source, message, "Exclude the name there first, if it is to be deleted.")


def is_on_its_way(seen: Observed) -> bool:
    """Tell whether a mirror is half-way through a move of its life, where it cannot be deleted."""
    status = status_of(seen) if isinstance(seen.resource, MirrorTopic) else None
    return status is not None and "delete" not in MIRROR.legal(status)


def wait_for_end(address: Address, seen: Observed, decision: Decision) -> None:
    """Refuse to delete a mirror on its way."""
    decision.waiting.append(Waiting(address, seen.state or ""))
    decision.refuse(
        address,
        None,
        f"its entry is gone, and it is {seen.state}: it cannot be deleted on its way",
        "Wait until it has come to its end (`reconciler run` goes on with it); or declare it again, failed-over.",
    )


def destroyed_as_mirror(topic: Address, last: Recorded, situation: Situation) -> Observed | None:
    """Return what is to be destroyed of a topic of ours that mirrors another one now: it is still that topic."""
    seen = situation.observed.get(mirror_at(topic))
    is_it = seen is not None and last.incarnation is not None and seen.incarnation == last.incarnation
    return seen if situation.given.is_destroy and is_it and is_live(seen) else None
