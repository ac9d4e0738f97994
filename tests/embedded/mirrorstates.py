"""Mirrors in each of their states, brought there as they come there in life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
from reconciler.resources.mirrors import Trouble
from tests.embedded.linking.linked import LINK, ORDERS, Linked, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.providers.protocol import LinksOfCluster

_M = MirrorStatus
OPERATION: Final = "operation-1"
GONE: Final = Trouble("SOURCE_TOPIC_MAY_BE_DELETED", "its source is gone")
AWAY: Final = Trouble("TIMEOUT_ERROR", "it does not answer")


@dataclass(frozen=True)
class Placed:
    """Two clusters, and the one whose topic is in the state that was asked for."""

    linked: Linked
    cluster: str = "east"

    @property
    def links(self) -> LinksOfCluster:
        """Its cluster's side, opened anew."""
        return self.linked.provider(self.cluster).links

    @property
    def status(self) -> str:
        """What it is now."""
        return self.linked.status(self.cluster)


def east_of(linked: Linked) -> LinksOfCluster:
    """Return the side of the mirror."""
    return linked.provider("east").links


def pause_link(linked: Linked, *, paused: bool) -> None:
    """Pause a link as an update of its manifest does, or let it go on."""
    declared = linked.east.catalog.read().links[LINK].declared
    linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, {**declared, "paused": paused}))


def _active(_: Linked) -> Placed:
    return Placed(_)


def _paused(linked: Linked) -> Placed:
    east_of(linked).ask(ORDERS, "pause")
    return Placed(linked)


def _link_paused(linked: Linked) -> Placed:
    pause_link(linked, paused=True)
    return Placed(linked)


def _unavailable(linked: Linked) -> Placed:
    east_of(linked).link_trouble(LINK, LinkStatus.UNAVAILABLE, AWAY)
    return Placed(linked)


def _link_failed(linked: Linked) -> Placed:
    east_of(linked).link_trouble(LINK, LinkStatus.FAILED, Trouble("AUTHENTICATION_ERROR", "who are you"))
    return Placed(linked)


def _failed(linked: Linked) -> Placed:
    east_of(linked).trouble(ORDERS, GONE, fails=True)
    return Placed(linked)


def _pending_stopped(linked: Linked) -> Placed:
    east_of(linked).ask(ORDERS, "promote", operation=OPERATION)
    return Placed(linked)


def _pending_synchronize(linked: Linked) -> Placed:
    east_of(linked).ask(ORDERS, "reverse-and-start", operation=OPERATION)
    return Placed(linked)


def _pending_mirror(linked: Linked) -> Placed:
    _pending_synchronize(linked)
    there = linked.provider("west").links
    there.join(ORDERS, linked.seen("east"), operation=OPERATION, verb="reverse-and-start")
    return Placed(linked, "west")


def _stopped(linked: Linked) -> Placed:
    east_of(linked).ask(ORDERS, "failover")
    return Placed(linked)


def _setting_up(linked: Linked) -> Placed:
    _stopped(linked)
    there = linked.provider("west").links
    there.join(ORDERS, linked.seen("east"), operation=OPERATION, verb="truncate-and-restore")
    return Placed(linked, "west")


def _restoring(linked: Linked) -> Placed:
    placed = _setting_up(linked)
    placed.links.aim(ORDERS, operation=OPERATION, ends={0: 10})
    placed.links.advance(ORDERS, _M.PENDING_RESTORE, operation=OPERATION)
    return placed


WAYS: Final[dict[MirrorStatus, Callable[[Linked], Placed]]] = {
    _M.ACTIVE: _active,
    _M.PAUSED: _paused,
    _M.LINK_PAUSED: _link_paused,
    _M.PENDING_SYNCHRONIZE: _pending_synchronize,
    _M.PENDING_MIRROR: _pending_mirror,
    _M.PENDING_SETUP_FOR_RESTORE: _setting_up,
    _M.PENDING_RESTORE: _restoring,
    _M.PENDING_STOPPED: _pending_stopped,
    _M.STOPPED: _stopped,
    _M.SOURCE_UNAVAILABLE: _unavailable,
    _M.LINK_FAILED: _link_failed,
    _M.FAILED: _failed,
}
"""How a mirror comes into each state it can have as a record."""


def mirror_in(state: MirrorStatus) -> Placed:
    """Return two clusters with a mirror of ten records in a state, its source or itself."""
    return WAYS[state](mirrored())
