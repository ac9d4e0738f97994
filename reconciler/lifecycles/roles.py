"""From the role wanted of a mirror and the state it is in to what has to be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from reconciler.lifecycles.mirror import MirrorStatus

Role: TypeAlias = Literal["mirroring", "paused", "promoted", "failed-over", "reversed"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Ask:
    """These verbs, one after the other, lead to the role."""

    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """It has the role already."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It is on its way; nothing is to be asked for."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No legal way leads there; `hint` says what does."""

    hint: str


Verdict: TypeAlias = Ask | Held | Wait | Refuse

_M = MirrorStatus
_PENDING: Final = (
    _M.PENDING_SYNCHRONIZE,
    _M.PENDING_MIRROR,
    _M.PENDING_SETUP_FOR_RESTORE,
    _M.PENDING_RESTORE,
    _M.PENDING_STOPPED,
)
_SUSPENDED: Final = Refuse("A reversal of it is suspended: end it with state reversed, or give it up with failed-over.")
_FAILOVER: Final = Refuse("Its source cannot be asked: use state failed-over.")
_NOT_YET: Final = Refuse("Wait until it is ACTIVE or PAUSED.")
_PLAIN: Final = Refuse("It is an ordinary topic: remove the entry, or delete the topic first.")
_STOPPED: Final = Refuse("Restore it on the original source over a bidirectional link, or delete it and mirror afresh.")

_TABLE: Final[dict[Role, dict[MirrorStatus, Verdict]]] = {
    "mirroring": {
        _M.ACTIVE: Held(),
        _M.PAUSED: Ask(("resume",)),
        _M.LINK_PAUSED: Held(),
        _M.SOURCE_UNAVAILABLE: Held(),
        _M.LINK_FAILED: Held(),
        _M.FAILED: Refuse("It will not recover: allow its deletion, then it is mirrored afresh."),
        **dict.fromkeys(_PENDING, Wait()),
        _M.STOPPED: _STOPPED,
    },
    "paused": {
        _M.ACTIVE: Ask(("pause",)),
        _M.PAUSED: Held(),
        _M.LINK_PAUSED: Held(),  # nothing is mirrored; whether it is paused itself is told once its link goes on
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
        _M.SOURCE_UNAVAILABLE: _FAILOVER,
        _M.LINK_FAILED: _FAILOVER,
        _M.FAILED: _FAILOVER,
        **dict.fromkeys(_PENDING, _NOT_YET),
        _M.PENDING_STOPPED: Wait(),
        _M.STOPPED: Held(),
    },
    "failed-over": {
        **dict.fromkeys((_M.ACTIVE, _M.PAUSED, _M.LINK_PAUSED, *_PENDING), Ask(("failover",))),
        **dict.fromkeys((_M.SOURCE_UNAVAILABLE, _M.LINK_FAILED, _M.FAILED), Ask(("failover",))),
        _M.STOPPED: Held(),
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
    "paused": Held(),
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
