"""A transition over two clusters, asked for by an action: driven until it is seen to have come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, cast

from reconciler.errors import IncompleteError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.resources.address import address_of, cluster_of, full_name_of
from reconciler.workflow.linking.transitions.driving import UNDER_WAY

if TYPE_CHECKING:
    from typing import Literal

    from reconciler.planning.actions import Transition
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.workflow.linking.transitions.driving import Driver

    Verb = Literal["promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"]


def drive(driver: Driver, action: Transition) -> MirrorSeen:
    """Drive what an action asks for, begun before or not, and return the mirror at its address.

    Raises:
        IncompleteError: It is under way, and cannot go on now; whoever comes next goes on.
        UserError: That is not legal in its state.
        RetryableError: One of the clusters does not answer.
    """
    cluster, name = cluster_of(action.address) or "", full_name_of(action.address)
    verb = cast("Verb", action.verb)
    match verb:
        case "promote":
            if not _is_over(driver, cluster, name, verb):
                driver.promote(cluster, name)
        case "reverse-and-start" | "reverse-and-pause":
            if not _is_over(driver, cluster, name, verb):
                _check_ended(driver.reverse(cluster, name, is_paused=verb == "reverse-and-pause"))
            driver.drive(cluster, name)
        case "truncate-and-restore":
            _check_ended(driver.restore(cluster, name)[0])
        case _:
            assert_never(verb)
    found = driver.providers[cluster].links.mirror(name)
    _check_ended(found)
    return found


def _is_over(driver: Driver, cluster: str, name: str, verb: str) -> bool:
    """Tell whether it was done already: the answer was lost, or another run was faster."""
    found = driver.providers[cluster].links.mirror(name)
    return found.status is MirrorStatus.STOPPED and found.stopped_by == verb


def _check_ended(found: MirrorSeen) -> None:
    if found.status in UNDER_WAY:
        address = address_of("mirror", found.cluster, found.name)
        why = "" if found.trouble is None else f": {found.trouble.message}"
        raise IncompleteError(
            f"{address} is {found.status}, and does not go on{why}",
            hint="It goes on with: reconciler run --only mirror. `reconciler mirror describe` says where it stands.",
        )
