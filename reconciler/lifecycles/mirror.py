"""Mirror topics and their links: states and legal moves (Confluent, cluster linking).

ABSENT and REGULAR are situations of a topic, not states of a mirror record: no such topic, and an ordinary one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reconciler.lifecycles.table import Lifecycle, Move


class MirrorStatus(StrEnum):
    """What a cluster says of a mirror."""

    ABSENT = "ABSENT"
    REGULAR = "REGULAR"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    LINK_PAUSED = "LINK_PAUSED"
    PENDING_SYNCHRONIZE = "PENDING_SYNCHRONIZE"
    PENDING_MIRROR = "PENDING_MIRROR"
    PENDING_SETUP_FOR_RESTORE = "PENDING_SETUP_FOR_RESTORE"
    PENDING_RESTORE = "PENDING_RESTORE"
    PENDING_STOPPED = "PENDING_STOPPED"
    STOPPED = "STOPPED"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    LINK_FAILED = "LINK_FAILED"
    FAILED = "FAILED"


_M = MirrorStatus

REVERSAL_SUSPENDED: Final = "a reversal is suspended"
LINK_IS_PAUSED: Final = "the link is paused"

TWO_SIDED: Final = frozenset({"promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"})
"""Verbs that need both clusters, and take more than one step."""

_FAILOVER: Final = (
    _M.ACTIVE,
    _M.PAUSED,
    _M.LINK_PAUSED,
    _M.PENDING_SYNCHRONIZE,
    _M.PENDING_MIRROR,
    _M.PENDING_SETUP_FOR_RESTORE,
    _M.PENDING_RESTORE,
    _M.PENDING_STOPPED,
    _M.SOURCE_UNAVAILABLE,
    _M.LINK_FAILED,
    _M.FAILED,
)
_DELETABLE: Final = (
    _M.REGULAR,
    _M.ACTIVE,
    _M.PAUSED,
    _M.LINK_PAUSED,
    _M.STOPPED,
    _M.SOURCE_UNAVAILABLE,
    _M.LINK_FAILED,
    _M.FAILED,
)
_BY_ITSELF: Final = (
    (_M.REGULAR, _M.PENDING_MIRROR),
    (_M.ACTIVE, _M.SOURCE_UNAVAILABLE),
    (_M.ACTIVE, _M.LINK_PAUSED),
    (_M.ACTIVE, _M.LINK_FAILED),
    (_M.ACTIVE, _M.FAILED),
    (_M.PAUSED, _M.LINK_FAILED),
    (_M.PAUSED, _M.FAILED),
    (_M.LINK_PAUSED, _M.ACTIVE),
    (_M.LINK_PAUSED, _M.PAUSED),
    (_M.PENDING_SYNCHRONIZE, _M.PENDING_STOPPED),
    (_M.PENDING_MIRROR, _M.ACTIVE),
    (_M.PENDING_MIRROR, _M.PAUSED),
    (_M.PENDING_SETUP_FOR_RESTORE, _M.PENDING_RESTORE),
    (_M.PENDING_RESTORE, _M.ACTIVE),
    (_M.PENDING_STOPPED, _M.STOPPED),
    (_M.STOPPED, _M.PENDING_MIRROR),
    (_M.SOURCE_UNAVAILABLE, _M.ACTIVE),
    (_M.SOURCE_UNAVAILABLE, _M.FAILED),
    (_M.LINK_FAILED, _M.ACTIVE),
)

MIRROR: Final = Lifecycle(
    name="mirror",
    initial=_M.ABSENT,
    moves=(
        Move(_M.ABSENT, "create", _M.ACTIVE),
        Move(_M.ABSENT, "create", _M.LINK_PAUSED, condition=LINK_IS_PAUSED),
        Move(_M.ACTIVE, "pause", _M.PAUSED),
        Move(_M.PENDING_SYNCHRONIZE, "pause", _M.PAUSED),
        Move(_M.PAUSED, "resume", _M.ACTIVE),
        Move(_M.PAUSED, "resume", _M.PENDING_SYNCHRONIZE, condition=REVERSAL_SUSPENDED),
        Move(_M.ACTIVE, "promote", _M.PENDING_STOPPED),
        Move(_M.PAUSED, "promote", _M.PENDING_STOPPED),
        *(Move(state, "failover", _M.STOPPED) for state in _FAILOVER),
        Move(_M.ACTIVE, "reverse-and-start", _M.PENDING_SYNCHRONIZE),
        Move(_M.ACTIVE, "reverse-and-pause", _M.PENDING_SYNCHRONIZE),
        Move(_M.REGULAR, "truncate-and-restore", _M.PENDING_SETUP_FOR_RESTORE),
        Move(_M.STOPPED, "truncate-and-restore", _M.PENDING_SETUP_FOR_RESTORE),
        *(Move(state, "delete", _M.ABSENT) for state in _DELETABLE),
        *(Move(start, "", end, by_itself=True) for start, end in _BY_ITSELF),
    ),
    refusals=(
        (_M.STOPPED, "promote", "it is already stopped"),
        (_M.STOPPED, "failover", "it is already stopped"),
        (_M.LINK_PAUSED, "resume", "its link is paused: resume the link"),
        (_M.SOURCE_UNAVAILABLE, "promote", "its source must be online to promote; failover works without"),
    ),
)


class LinkStatus(StrEnum):
    """What a cluster says of a link."""

    ABSENT = "ABSENT"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    UNAVAILABLE = "UNAVAILABLE"
    FAILED = "FAILED"


LINK: Final = Lifecycle(
    name="link",
    initial=LinkStatus.ABSENT,
    moves=(
        Move(LinkStatus.ABSENT, "create", LinkStatus.ACTIVE),
        Move(LinkStatus.ACTIVE, "pause", LinkStatus.PAUSED),
        Move(LinkStatus.PAUSED, "resume", LinkStatus.ACTIVE),
        *(
            Move(state, "delete", LinkStatus.ABSENT)
            for state in (LinkStatus.ACTIVE, LinkStatus.PAUSED, LinkStatus.UNAVAILABLE, LinkStatus.FAILED)
        ),
        Move(LinkStatus.ACTIVE, "", LinkStatus.UNAVAILABLE, by_itself=True),
        Move(LinkStatus.UNAVAILABLE, "", LinkStatus.ACTIVE, by_itself=True),
        *(
            Move(state, "", LinkStatus.FAILED, by_itself=True)
            for state in (LinkStatus.ACTIVE, LinkStatus.PAUSED, LinkStatus.UNAVAILABLE)
        ),
        Move(LinkStatus.FAILED, "reconfigure", LinkStatus.ACTIVE),
    ),
)
