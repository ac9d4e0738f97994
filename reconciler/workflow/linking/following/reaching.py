"""Whether a link reaches its source, and whether that is the cluster it was made to.

A source that does not answer is waited for: the link is UNAVAILABLE, and ACTIVE again by itself. What somebody has to
mend (credentials, a location at which another cluster lies) makes it FAILED, until it has been mended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import MendFirstError, NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.lifecycles.mirror import LinkStatus
from reconciler.resources.mirroring import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.resources.syncs import Offered
    from reconciler.workflow.linking.following.sides import Sides

TIMEOUT: Final = "TIMEOUT_ERROR"
AUTHENTICATION: Final = "AUTHENTICATION_ERROR"
MISCONFIGURATION: Final = "MISCONFIGURATION_ERROR"


@dataclass(frozen=True, slots=True)
class Reached:
    """A source that answers: which cluster, its version, and what it offers where that was asked."""

    cluster_id: str
    version: str
    offered: Mapping[str, Offered] | None


def reached(sides: Sides, needs: Callable[[str], bool]) -> Reached | ReconcilerError:
    """Look at the source of a link, and at what it offers where its version `needs` that; or return why it cannot be.

    The link says from then on whether it could.
    """
    try:
        found = _reached(sides, needs)
    except ReconcilerError as error:
        _note(sides, *_verdict(sides, error))
        return error
    _note(sides, LinkStatus.ACTIVE, None)
    if sides.link.source_cluster_id is None:
        sides.destination.links.syncs.meet(sides.link.name, found.cluster_id)
    return found


def link_status_of(error: ReconcilerError) -> LinkStatus:
    """Return what a link is whose source says this."""
    if isinstance(error, RetryableError) and not isinstance(error, MendFirstError):
        return LinkStatus.UNAVAILABLE
    return LinkStatus.FAILED


def _reached(sides: Sides, needs: Callable[[str], bool]) -> Reached:
    name, known = sides.spec.source, sides.link.source_cluster_id
    found = sides.source.identify()
    if found is None:  # Perhaps it is not mounted; in any case it may come back.
        raise RetryableError(f"there is no cluster {name} where it should be", hint="Check that its root is there.")
    if known is not None and found.cluster_id != known:
        message = f"at the place of {name} lies cluster {found.cluster_id}; the link was made to {known}"
        hint = f"Correct where {name} is. To follow the other cluster, make the link anew."
        raise UserError(message, hint=hint)
    above = sides.source.links.syncs
    version = above.version()
    return Reached(found.cluster_id, version, above.offered(sides.principal) if needs(version) else None)


def _verdict(sides: Sides, error: ReconcilerError) -> tuple[LinkStatus, Trouble]:
    status = link_status_of(error)
    if status is LinkStatus.UNAVAILABLE:
        code = TIMEOUT
    else:
        code = AUTHENTICATION if isinstance(error, NotAuthorizedError | MendFirstError) else MISCONFIGURATION
    return status, Trouble(code, error.message, sides.now_ms)


def _note(sides: Sides, status: LinkStatus, trouble: Trouble | None) -> None:
    """Write it down where it is news: however often a source does not answer, that is written once."""
    known = sides.link.trouble
    if sides.link.status is status and _told(status, known) == _told(status, trouble):
        return
    sides.destination.links.link_trouble(sides.link.name, status, trouble)


def _told(status: LinkStatus, trouble: Trouble | None) -> tuple[str, ...]:
    if trouble is None:
        return ()
    return (trouble.code, trouble.message) if status is LinkStatus.FAILED else (trouble.code,)
