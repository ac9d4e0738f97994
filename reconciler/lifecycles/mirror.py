"""The lifecycles of mirror topics and links, and which verb brings a mirror to a role.

ABSENT and REGULAR are situations of a topic, not states of a mirror record: no such topic, and an ordinary one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias, get_args

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
    (_M.PENDING_SYNCHRONIZE, _M.ACTIVE),
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


# From the role wanted of a mirror and the state it is in to what has to be asked for.


Role: TypeAlias = Literal["mirroring", "paused", "promoted", "failed-over", "reversed"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Ask:
    """These verbs, one after the other, lead to the role."""

    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InRole:
    """It has the role already."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It is on its way; nothing is to be asked for."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No legal way leads there; `hint` says what does."""

    hint: str


Verdict: TypeAlias = Ask | InRole | Wait | Refuse

_PENDING: Final = (
    _M.PENDING_SYNCHRONIZE,
    _M.PENDING_MIRROR,
    _M.PENDING_SETUP_FOR_RESTORE,
    _M.PENDING_RESTORE,
    _M.PENDING_STOPPED,
)
_SUSPENDED: Final = Refuse("A reversal of it is suspended: end it with state reversed, or give it up with failed-over.")
_USE_FAILOVER: Final = Refuse("Its source cannot be asked: use state failed-over.")
_NOT_YET: Final = Refuse("Wait until it is ACTIVE or PAUSED.")
_PLAIN: Final = Refuse("It is an ordinary topic: remove the entry, or delete the topic first.")
_STOPPED: Final = Refuse("Restore it on the original source over a bidirectional link, or delete it and mirror afresh.")

_TABLE: Final[dict[Role, dict[MirrorStatus, Verdict]]] = {
    "mirroring": {
        _M.ACTIVE: InRole(),
        _M.PAUSED: Ask(("resume",)),
        _M.LINK_PAUSED: InRole(),
        _M.SOURCE_UNAVAILABLE: InRole(),
        _M.LINK_FAILED: InRole(),
        _M.FAILED: Refuse("It will not recover: allow its deletion, then it is mirrored afresh."),
        **dict.fromkeys(_PENDING, Wait()),
        _M.STOPPED: _STOPPED,
    },
    "paused": {
        _M.ACTIVE: Ask(("pause",)),
        _M.PAUSED: InRole(),
        _M.LINK_PAUSED: InRole(),  # nothing is mirrored; whether it is paused itself is told once its link goes on
        _M.SOURCE_UNAVAILABLE: Refuse("Its source is unreachable; pause it when it is ACTIVE again."),
        _M.LINK_FAILED: Refuse("Mend its link first."),
        _M.FAILED: Refuse("It has failed for good and mirrors nothing."),
        **dict.fromkeys(_PENDING, Wait()),
        _M.PENDING_SYNCHRONIZE: Ask(("pause",)),
        _M.STOPPED: _STOPPED,
    },
    "promoted": {
        _M.ACTIVE: Ask(("promote",)),
        _M.PAUSED: Ask(("promote",)),
        _M.LINK_PAUSED: Refuse("Resume its link first, or use state failed-over."),
        _M.SOURCE_UNAVAILABLE: _USE_FAILOVER,
        _M.LINK_FAILED: _USE_FAILOVER,
        _M.FAILED: _USE_FAILOVER,
        **dict.fromkeys(_PENDING, _NOT_YET),
        _M.PENDING_STOPPED: Wait(),
        _M.STOPPED: InRole(),
    },
    "failed-over": {
        **dict.fromkeys((_M.ACTIVE, _M.PAUSED, _M.LINK_PAUSED, *_PENDING), Ask(("failover",))),
        **dict.fromkeys((_M.SOURCE_UNAVAILABLE, _M.LINK_FAILED, _M.FAILED), Ask(("failover",))),
        _M.STOPPED: InRole(),
    },
    "reversed": {
        _M.ACTIVE: Ask(("reverse-and-start",)),
        _M.PAUSED: Ask(("resume", "reverse-and-start")),
        _M.LINK_PAUSED: Refuse("Resume its link first."),
        _M.SOURCE_UNAVAILABLE: Refuse("Both sides are needed to reverse; its source is unreachable."),
        _M.LINK_FAILED: Refuse("Both sides are needed to reverse; mend its link first."),
        _M.FAILED: Refuse("It has failed for good; fail over, then restore."),
        **dict.fromkeys(_PENDING, _NOT_YET),
        _M.PENDING_SYNCHRONIZE: Wait(),
        _M.PENDING_STOPPED: Wait(),
        _M.STOPPED: Ask(("truncate-and-restore",)),
    },
}

_OF_SUSPENDED: Final[dict[Role, Verdict]] = {
    "mirroring": _SUSPENDED,
    "paused": InRole(),
    "promoted": _SUSPENDED,
    "failed-over": Ask(("failover",)),
    "reversed": Ask(("resume",)),
}


def towards(role: Role, state: MirrorStatus, *, is_suspended: bool = False) -> Verdict:
    """Return what to ask of a mirror in `state` so that it gets `role`.

    `is_suspended`: it was paused during its reversal, so that resuming goes on with that.
    """
    if is_suspended and state is _M.PAUSED:
        return _OF_SUSPENDED[role]
    return _TABLE[role].get(state, _PLAIN)
