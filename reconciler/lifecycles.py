"""Lifecycles as tables of legal moves: mounts, mirrors, links and tiering; and which verb brings a mirror to a role."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from reconciler.errors import UserError

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[State]):
    """One legal move. `by_itself`: the platform makes it, nobody may ask for it."""

    start: State
    verb: str
    end: State
    by_itself: bool = False
    condition: str = ""
    """Where one verb leads to several states from here: when it leads to this one."""


@dataclass(frozen=True)
class Lifecycle(Generic[State]):
    """A closed table: what is not in it is refused. `refusals` say more about a (state, verb) people often try."""

    name: str
    initial: State
    moves: tuple[Move[State], ...]
    refusals: tuple[tuple[State, str, str], ...] = ()

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Every state, in the order of its definition."""
        return tuple(type(self.initial))

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """Every verb somebody may ask for, in the order of the table."""
        return tuple(dict.fromkeys(move.verb for move in self.moves if not move.by_itself))

    def legal(self, state: State) -> tuple[str, ...]:
        """Return the verbs that may be asked for in `state`."""
        return tuple(dict.fromkeys(move.verb for move in self._from.get(state, ()) if not move.by_itself))

    def by_itself(self, state: State) -> tuple[State, ...]:
        """Return where `state` leads without anybody asking."""
        return tuple(dict.fromkeys(move.end for move in self._from.get(state, ()) if move.by_itself))

    def step(self, state: State, verb: str, *, condition: str = "", subject: str = "") -> State:
        """Return where `verb` leads from `state`. `condition` chooses where the table has several ends.

        `subject` is what an error names in place of the table.

        Raises:
            UserError: The move is not in the table; names the state and the verbs that are legal there.
        """
        ends = [
            move.end
            for move in self._from.get(state, ())
            if move.verb == verb and not move.by_itself and move.condition == condition
        ]
        if not ends:
            raise UserError(self.refuse(state, verb, subject), hint=self._advice(state))
        return ends[0]

    def follow(self, state: State, end: State) -> State:
        """Return `end`, if `state` moves there by itself.

        Raises:
            UserError: It does not.
        """
        if end not in self.by_itself(state):
            raise UserError(f"{self.name}: {state} does not become {end} by itself", hint=self._advice(state))
        return end

    def path(self, start: State, end: State) -> tuple[Move[State], ...] | None:
        """Return the shortest way from `start` to `end`, moves made by themselves included; `None` where none is."""
        ways: dict[State, tuple[Move[State], ...]] = {start: ()}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here == end:
                return ways[here]
            for move in self._from.get(here, ()):
                if move.end not in ways:
                    ways[move.end] = (*ways[here], move)
                    queue.append(move.end)
        return None

    def refuse(self, state: State, verb: str, subject: str = "") -> str:
        """Say why `verb` is not possible in `state`."""
        known = {(start, word): text for start, word, text in self.refusals}
        refusal = known.get((state, verb))
        if refusal is not None:
            return f"{subject}: {refusal}" if subject else refusal
        return f"{subject or self.name}: cannot {verb} while {state}"

    @cached_property
    def _from(self) -> Mapping[State, tuple[Move[State], ...]]:
        table: dict[State, list[Move[State]]] = {}
        for move in self.moves:
            table.setdefault(move.start, []).append(move)
        return {state: tuple(moves) for state, moves in table.items()}

    def _advice(self, state: State) -> str:
        legal = self.legal(state)
        itself = self.by_itself(state)
        ways = f"Possible in this state: {', '.join(legal)}." if legal else "Nothing can be asked for there."
        return f"{ways} It becomes {' or '.join(itself)} by itself." if itself and not legal else ways


# Mounts and unmounts. Both directions walk the same states; what each state does differs. With auto-advance, which
# every mount and unmount uses, the process that drives the migration asks for `prepare`, `execute` and `finish`.


class MigrationState(StrEnum):
    """Where a mount or unmount is."""

    PLANNED = "planned"
    PREPARING = "preparing"
    PREPARED = "prepared"
    EXECUTING = "executing"
    EXECUTED = "executed"
    CUT_OVER = "cut_over"
    FINISHED = "finished"
    CANCELING = "canceling"
    CANCELLED = "cancelled"
    GONE = "gone"
    """The record was deleted, or removed itself after success."""


_S = MigrationState
_OVER: Final[frozenset[str]] = frozenset({_S.FINISHED, _S.CANCELLED, _S.GONE})


def is_under_way(state: str | None) -> bool:
    """Tell whether a migration has begun and not come to its end; what was cancelled counts as not begun."""
    return state is not None and state not in _OVER


_MIGRATION_MOVES: Final = (
    Move(_S.PLANNED, "prepare", _S.PREPARING),
    Move(_S.PLANNED, "delete", _S.GONE),
    Move(_S.PREPARING, "cancel", _S.CANCELING),
    Move(_S.PREPARING, "prepared", _S.PREPARED, by_itself=True),
    Move(_S.PREPARED, "execute", _S.EXECUTING),
    Move(_S.PREPARED, "cancel", _S.CANCELING),
    Move(_S.EXECUTING, "cancel", _S.CANCELING),
    Move(_S.EXECUTING, "executed", _S.EXECUTED, by_itself=True),
    Move(_S.EXECUTED, "finish", _S.CUT_OVER),
    Move(_S.EXECUTED, "cancel", _S.CANCELING),
    Move(_S.CUT_OVER, "finished", _S.FINISHED, by_itself=True),
    Move(_S.FINISHED, "delete", _S.GONE),
    Move(_S.FINISHED, "removed", _S.GONE, by_itself=True),
    Move(_S.CANCELING, "cancelled", _S.CANCELLED, by_itself=True),
    Move(_S.CANCELLED, "delete", _S.GONE),
)

_MIGRATION_REFUSALS: Final = (
    (_S.PLANNED, "cancel", "cannot cancel what has not begun: it is only planned; delete it"),
    (_S.CUT_OVER, "cancel", "cannot cancel in cut_over: ownership has moved already"),
    (_S.FINISHED, "cancel", "cannot cancel what is finished; mount or unmount again"),
    (_S.CANCELING, "cancel", "it is being cancelled already"),
    (_S.CANCELLED, "cancel", "it is cancelled already"),
)

MOUNT: Final = Lifecycle("mount", _S.PLANNED, _MIGRATION_MOVES, _MIGRATION_REFUSALS)
"""Inbound: from object storage onto a cluster."""

UNMOUNT: Final = Lifecycle("unmount", _S.PLANNED, _MIGRATION_MOVES, _MIGRATION_REFUSALS)
"""Outbound: from a cluster into object storage."""

BY_JOBS: Final = "jobs"
"""Who mounts and unmounts where the platform cannot: the parameter `by` of such a move."""

BY_PLATFORM: Final = "platform"
"""Who changes the role of a mirror where the platform copies it: the parameter `by` of such a transition."""

ADVANCES: Final = {_S.PLANNED: "prepare", _S.PREPARED: "execute", _S.EXECUTED: "finish"}
"""The states that wait to be told, and the verb that leads on."""

BEFORE_EXECUTED: Final = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED, _S.EXECUTING})
"""Where something is still uploaded or looked for, and where a migration may take too long."""


# Mirror topics and links, and which verb brings a mirror to a role. ABSENT and REGULAR are situations of a topic, not
# states of a mirror record: no such topic, and an ordinary one.


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
_REFUSE_STOPPED: Final = Refuse(
    "Restore it on the original source over a bidirectional link, or delete it and mirror afresh."
)

_TABLE: Final[dict[Role, dict[MirrorStatus, Verdict]]] = {
    "mirroring": {
        _M.ACTIVE: InRole(),
        _M.PAUSED: Ask(("resume",)),
        _M.LINK_PAUSED: InRole(),
        _M.SOURCE_UNAVAILABLE: InRole(),
        _M.LINK_FAILED: InRole(),
        _M.FAILED: Refuse("It will not recover: allow its deletion, then it is mirrored afresh."),
        **dict.fromkeys(_PENDING, Wait()),
        _M.STOPPED: _REFUSE_STOPPED,
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
        _M.STOPPED: _REFUSE_STOPPED,
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


# Tiering, remote segments and remote housekeeping.


class TieringState(StrEnum):
    """Where the tiering of a topic is."""

    ENABLED = "ENABLED"
    DISABLING = "DISABLING"
    DISABLED = "DISABLED"


TIERING: Final = Lifecycle(
    name="tiering",
    initial=TieringState.ENABLED,
    moves=(
        Move(TieringState.ENABLED, "disable-tiering", TieringState.DISABLING),
        Move(TieringState.DISABLING, "disabled", TieringState.DISABLED, by_itself=True),
        Move(TieringState.DISABLED, "enable-tiering", TieringState.ENABLED),
    ),
    refusals=(
        (TieringState.DISABLING, "disable-tiering", "its tiering is being switched off already"),
        (
            TieringState.DISABLING,
            "enable-tiering",
            "its tiering is being switched off; it can be on again once it is off",
        ),
    ),
)


# When the remote tier is tidied: while object storage is idle, and now and then whether it is or not.


class HousekeepingState(StrEnum):
    """What housekeeping does at the moment."""

    IDLE = "idle"
    """Nothing: it waits for its turn."""
    ACTIVE = "active"
    """It works, for nobody else does."""
    PAUSE = "pause"
    """It lets others work, with something left to do."""
    DRAINING = "draining"
    """It works, whoever else does: it has waited for long enough."""
    STOPPED = "stopped"


_IDLE, _ACTIVE, _PAUSE, _DRAINING, _STOPPED = HousekeepingState

HOUSEKEEPING: Final = Lifecycle(
    name="housekeeping",
    initial=_IDLE,
    moves=(
        Move(_IDLE, "storage-is-idle", _ACTIVE, by_itself=True),
        Move(_IDLE, "interval-passed", _DRAINING, by_itself=True),
        Move(_ACTIVE, "traffic", _PAUSE, by_itself=True),
        Move(_ACTIVE, "done", _IDLE, by_itself=True),
        Move(_PAUSE, "storage-is-idle", _ACTIVE, by_itself=True),
        Move(_PAUSE, "interval-passed", _DRAINING, by_itself=True),
        Move(_DRAINING, "done", _IDLE, by_itself=True),
        *(Move(state, "stop", _STOPPED) for state in (_IDLE, _ACTIVE, _PAUSE, _DRAINING)),
    ),
)


# What becomes of a remote segment, and of a remote partition that is deleted (KIP-405): two tables nobody asks for.
#
# The embedded cluster keeps no such word anywhere: where an object is named tells its state. A segment that is put and
# named by nobody is a copy begun, one that its manifest names is finished, one among its garbage is being deleted.


class SegmentState(StrEnum):
    """Where a remote segment is. Only a finished copy is ever read."""

    COPY_STARTED = "COPY_SEGMENT_STARTED"
    """Its objects are put, or being put; nothing names them."""
    COPY_FINISHED = "COPY_SEGMENT_FINISHED"
    """Its manifest names it."""
    DELETE_STARTED = "DELETE_SEGMENT_STARTED"
    """It is garbage of its manifest, or nobody will ever name it."""
    DELETE_FINISHED = "DELETE_SEGMENT_FINISHED"
    """Its objects are gone."""


class PartitionDeletion(StrEnum):
    """How far the deletion of a remote partition is."""

    MARKED = "DELETE_PARTITION_MARKED"
    """The catalog says that its topic is to be deleted, and where its objects lie."""
    STARTED = "DELETE_PARTITION_STARTED"
    """All that its manifest named is garbage."""
    FINISHED = "DELETE_PARTITION_FINISHED"
    """Its objects are gone, the manifest with them."""


SEGMENT: Final = Lifecycle(
    name="segment",
    initial=SegmentState.COPY_STARTED,
    moves=(
        Move(SegmentState.COPY_STARTED, "copied", SegmentState.COPY_FINISHED, by_itself=True),
        Move(SegmentState.COPY_STARTED, "abandoned", SegmentState.DELETE_STARTED, by_itself=True),
        Move(SegmentState.COPY_FINISHED, "expired", SegmentState.DELETE_STARTED, by_itself=True),
        Move(SegmentState.DELETE_STARTED, "deleted", SegmentState.DELETE_FINISHED, by_itself=True),
    ),
)

PARTITION_DELETION: Final = Lifecycle(
    name="partition-deletion",
    initial=PartitionDeletion.MARKED,
    moves=(
        Move(PartitionDeletion.MARKED, "begun", PartitionDeletion.STARTED, by_itself=True),
        Move(PartitionDeletion.STARTED, "deleted", PartitionDeletion.FINISHED, by_itself=True),
    ),
)


LIFECYCLES: Final[Mapping[str, Lifecycle[Any]]] = MappingProxyType(
    {
        lifecycle.name: lifecycle
        for lifecycle in (MOUNT, UNMOUNT, MIRROR, LINK, TIERING, SEGMENT, PARTITION_DELETION, HOUSEKEEPING)
    }
)
