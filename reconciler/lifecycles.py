"""State machines of mounts, mirrors, links and tiering, and how to reach a mirror role."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from reconciler.errors import UserError
from reconciler.runtime.dataclass import dataclass

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[State]):
    """A legal move between states. If `is_automatic`, the platform makes it without a request."""

    start: State
    verb: str
    end: State
    is_automatic: bool = False
    condition: str = ""
    """Distinguishes moves with the same start and verb but different ends."""


@dataclass(frozen=True)
class Lifecycle(Generic[State]):
    """All legal moves of a state machine. `refusals` are (state, verb, message) for frequent illegal requests."""

    name: str
    initial: State
    moves: tuple[Move[State], ...]
    refusals: tuple[tuple[State, str, str], ...] = ()

    @cached_property
    def states(self) -> tuple[State, ...]:
        """All states in enum order."""
        return tuple(type(self.initial))

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """All verbs that a caller can request, in the order of `moves`."""
        return tuple(dict.fromkeys(move.verb for move in self.moves if not move.is_automatic))

    def list_legal_verbs(self, state: State) -> tuple[str, ...]:
        """Return the verbs that a caller can request in `state`."""
        return tuple(dict.fromkeys(move.verb for move in self._moves_from.get(state, ()) if not move.is_automatic))

    def list_automatic_states(self, state: State) -> tuple[State, ...]:
        """Return the states that the platform can enter without a request."""
        return tuple(dict.fromkeys(move.end for move in self._moves_from.get(state, ()) if move.is_automatic))

    def apply_verb(self, state: State, verb: str, *, condition: str = "", subject: str = "") -> State:
        """Return the state after `verb`; raise `UserError` about `subject` if it is illegal."""
        ends = [
            move.end
            for move in self._moves_from.get(state, ())
            if move.verb == verb and not move.is_automatic and move.condition == condition
        ]
        if not ends:
            raise UserError(self.explain_refusal(state, verb, subject), hint=self._build_hint(state))
        return ends[0]

    def follow_automatic_move(self, state: State, end: State) -> State:
        """Return `end` if the platform makes this move; raise `UserError` otherwise."""
        if end not in self.list_automatic_states(state):
            raise UserError(f"{self.name}: {state} does not become {end} by itself", hint=self._build_hint(state))
        return end

    def find_path(self, start: State, end: State) -> tuple[Move[State], ...] | None:
        """Return the shortest path of moves, including automatic ones; `None` if no moves lead there."""
        paths: dict[State, tuple[Move[State], ...]] = {start: ()}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            if state == end:
                return paths[state]
            for move in self._moves_from.get(state, ()):
                if move.end not in paths:
                    paths[move.end] = (*paths[state], move)
                    queue.append(move.end)
        return None

    def explain_refusal(self, state: State, verb: str, subject: str = "") -> str:
        """Return the error message for an illegal `verb` in `state`."""
        known = {(start, word): text for start, word, text in self.refusals}
        refusal = known.get((state, verb))
        if refusal is not None:
            return f"{subject}: {refusal}" if subject else refusal
        return f"{subject or self.name}: cannot {verb} while {state}"

    @cached_property
    def _moves_from(self) -> Mapping[State, tuple[Move[State], ...]]:
        table: dict[State, list[Move[State]]] = {}
        for move in self.moves:
            table.setdefault(move.start, []).append(move)
        return {state: tuple(moves) for state, moves in table.items()}

    def _build_hint(self, state: State) -> str:
        legal = self.list_legal_verbs(state)
        itself = self.list_automatic_states(state)
        ways = f"Possible in this state: {', '.join(legal)}." if legal else "Nothing can be asked for there."
        return f"{ways} It becomes {' or '.join(itself)} by itself." if itself and not legal else ways


class MigrationState(StrEnum):
    """State of a mount or unmount, advanced by `prepare`, `execute` and `finish`."""

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


_Migration = MigrationState
_ENDED_MIGRATION: Final[frozenset[str]] = frozenset({_Migration.FINISHED, _Migration.CANCELLED, _Migration.GONE})


def is_in_progress(state: str | None) -> bool:
    """Return whether a migration exists and is neither finished nor cancelled."""
    return state is not None and state not in _ENDED_MIGRATION


_MIGRATION_MOVES: Final = (
    Move(_Migration.PLANNED, "prepare", _Migration.PREPARING),
    Move(_Migration.PLANNED, "delete", _Migration.GONE),
    Move(_Migration.PREPARING, "cancel", _Migration.CANCELING),
    Move(_Migration.PREPARING, "prepared", _Migration.PREPARED, is_automatic=True),
    Move(_Migration.PREPARED, "execute", _Migration.EXECUTING),
    Move(_Migration.PREPARED, "cancel", _Migration.CANCELING),
    Move(_Migration.EXECUTING, "cancel", _Migration.CANCELING),
    Move(_Migration.EXECUTING, "executed", _Migration.EXECUTED, is_automatic=True),
    Move(_Migration.EXECUTED, "finish", _Migration.CUT_OVER),
    Move(_Migration.EXECUTED, "cancel", _Migration.CANCELING),
    Move(_Migration.CUT_OVER, "finished", _Migration.FINISHED, is_automatic=True),
    Move(_Migration.FINISHED, "delete", _Migration.GONE),
    Move(_Migration.FINISHED, "removed", _Migration.GONE, is_automatic=True),
    Move(_Migration.CANCELING, "cancelled", _Migration.CANCELLED, is_automatic=True),
    Move(_Migration.CANCELLED, "delete", _Migration.GONE),
)

_MIGRATION_REFUSALS: Final = (
    (_Migration.PLANNED, "cancel", "cannot cancel what has not begun: it is only planned; delete it"),
    (_Migration.CUT_OVER, "cancel", "cannot cancel in cut_over: ownership has moved already"),
    (_Migration.FINISHED, "cancel", "cannot cancel what is finished; mount or unmount again"),
    (_Migration.CANCELING, "cancel", "it is being cancelled already"),
    (_Migration.CANCELLED, "cancel", "it is cancelled already"),
)

MOUNT: Final = Lifecycle("mount", _Migration.PLANNED, _MIGRATION_MOVES, _MIGRATION_REFUSALS)
"""A mount moves a topic from object storage to a cluster."""

UNMOUNT: Final = Lifecycle("unmount", _Migration.PLANNED, _MIGRATION_MOVES, _MIGRATION_REFUSALS)
"""An unmount moves a topic from a cluster to object storage."""

BY_JOBS: Final = "jobs"
"""Parameter `by` of a mount that copies records with jobs."""

BY_PLATFORM: Final = "platform"
"""Parameter `by` of a role change made by the platform."""

NEXT_VERBS: Final = {_Migration.PLANNED: "prepare", _Migration.PREPARED: "execute", _Migration.EXECUTED: "finish"}
"""State → the verb that continues the migration from this state."""

BEFORE_EXECUTED: Final = frozenset(
    {_Migration.PLANNED, _Migration.PREPARING, _Migration.PREPARED, _Migration.EXECUTING}
)
"""States from PLANNED to EXECUTING."""


class MirrorStatus(StrEnum):
    """The status that a cluster reports for a mirror; REGULAR is an ordinary topic."""

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


_Mirror = MirrorStatus

REVERSAL_SUSPENDED: Final = "a reversal is suspended"
LINK_IS_PAUSED: Final = "the link is paused"

TWO_SIDED_VERBS: Final = frozenset({"promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"})
"""Verbs that need both clusters of a link."""

_FAILOVER_STARTS: Final = (
    _Mirror.ACTIVE,
    _Mirror.PAUSED,
    _Mirror.LINK_PAUSED,
    _Mirror.PENDING_SYNCHRONIZE,
    _Mirror.PENDING_MIRROR,
    _Mirror.PENDING_SETUP_FOR_RESTORE,
    _Mirror.PENDING_RESTORE,
    _Mirror.PENDING_STOPPED,
    _Mirror.SOURCE_UNAVAILABLE,
    _Mirror.LINK_FAILED,
    _Mirror.FAILED,
)
_DELETABLE: Final = (
    _Mirror.REGULAR,
    _Mirror.ACTIVE,
    _Mirror.PAUSED,
    _Mirror.LINK_PAUSED,
    _Mirror.STOPPED,
    _Mirror.SOURCE_UNAVAILABLE,
    _Mirror.LINK_FAILED,
    _Mirror.FAILED,
)
_PLATFORM_MOVES: Final = (
    (_Mirror.REGULAR, _Mirror.PENDING_MIRROR),
    (_Mirror.ACTIVE, _Mirror.SOURCE_UNAVAILABLE),
    (_Mirror.ACTIVE, _Mirror.LINK_PAUSED),
    (_Mirror.ACTIVE, _Mirror.LINK_FAILED),
    (_Mirror.ACTIVE, _Mirror.FAILED),
    (_Mirror.PAUSED, _Mirror.LINK_FAILED),
    (_Mirror.PAUSED, _Mirror.FAILED),
    (_Mirror.LINK_PAUSED, _Mirror.ACTIVE),
    (_Mirror.LINK_PAUSED, _Mirror.PAUSED),
    (_Mirror.PENDING_SYNCHRONIZE, _Mirror.PENDING_STOPPED),
    (_Mirror.PENDING_SYNCHRONIZE, _Mirror.ACTIVE),
    (_Mirror.PENDING_MIRROR, _Mirror.ACTIVE),
    (_Mirror.PENDING_MIRROR, _Mirror.PAUSED),
    (_Mirror.PENDING_SETUP_FOR_RESTORE, _Mirror.PENDING_RESTORE),
    (_Mirror.PENDING_RESTORE, _Mirror.ACTIVE),
    (_Mirror.PENDING_STOPPED, _Mirror.STOPPED),
    (_Mirror.STOPPED, _Mirror.PENDING_MIRROR),
    (_Mirror.SOURCE_UNAVAILABLE, _Mirror.ACTIVE),
    (_Mirror.SOURCE_UNAVAILABLE, _Mirror.FAILED),
    (_Mirror.LINK_FAILED, _Mirror.ACTIVE),
)

MIRROR: Final = Lifecycle(
    name="mirror",
    initial=_Mirror.ABSENT,
    moves=(
        Move(_Mirror.ABSENT, "create", _Mirror.ACTIVE),
        Move(_Mirror.ABSENT, "create", _Mirror.LINK_PAUSED, condition=LINK_IS_PAUSED),
        Move(_Mirror.ACTIVE, "pause", _Mirror.PAUSED),
        Move(_Mirror.PENDING_SYNCHRONIZE, "pause", _Mirror.PAUSED),
        Move(_Mirror.PAUSED, "resume", _Mirror.ACTIVE),
        Move(_Mirror.PAUSED, "resume", _Mirror.PENDING_SYNCHRONIZE, condition=REVERSAL_SUSPENDED),
        Move(_Mirror.ACTIVE, "promote", _Mirror.PENDING_STOPPED),
        Move(_Mirror.PAUSED, "promote", _Mirror.PENDING_STOPPED),
        *(Move(state, "failover", _Mirror.STOPPED) for state in _FAILOVER_STARTS),
        Move(_Mirror.ACTIVE, "reverse-and-start", _Mirror.PENDING_SYNCHRONIZE),
        Move(_Mirror.ACTIVE, "reverse-and-pause", _Mirror.PENDING_SYNCHRONIZE),
        Move(_Mirror.REGULAR, "truncate-and-restore", _Mirror.PENDING_SETUP_FOR_RESTORE),
        Move(_Mirror.STOPPED, "truncate-and-restore", _Mirror.PENDING_SETUP_FOR_RESTORE),
        *(Move(state, "delete", _Mirror.ABSENT) for state in _DELETABLE),
        *(Move(start, "", end, is_automatic=True) for start, end in _PLATFORM_MOVES),
    ),
    refusals=(
        (_Mirror.STOPPED, "promote", "it is already stopped"),
        (_Mirror.STOPPED, "failover", "it is already stopped"),
        (_Mirror.LINK_PAUSED, "resume", "its link is paused: resume the link"),
        (_Mirror.SOURCE_UNAVAILABLE, "promote", "its source must be online to promote; failover works without"),
    ),
)


class LinkStatus(StrEnum):
    """The status that a cluster reports for a link."""

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
        Move(LinkStatus.ACTIVE, "", LinkStatus.UNAVAILABLE, is_automatic=True),
        Move(LinkStatus.UNAVAILABLE, "", LinkStatus.ACTIVE, is_automatic=True),
        *(
            Move(state, "", LinkStatus.FAILED, is_automatic=True)
            for state in (LinkStatus.ACTIVE, LinkStatus.PAUSED, LinkStatus.UNAVAILABLE)
        ),
        Move(LinkStatus.FAILED, "reconfigure", LinkStatus.ACTIVE),
    ),
)


Role: TypeAlias = Literal["mirroring", "paused", "promoted", "failed-over", "reversed"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """Verbs to request, in order."""

    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleReached:
    """The mirror has the role."""


@dataclass(frozen=True, slots=True)
class RolePending:
    """The mirror is in a transition that must end first."""


@dataclass(frozen=True, slots=True)
class UnreachableRole:
    """The mirror cannot reach the role; `hint` names an alternative."""

    hint: str


RoleVerdict: TypeAlias = VerbRequest | RoleReached | RolePending | UnreachableRole

_PENDING: Final = (
    _Mirror.PENDING_SYNCHRONIZE,
    _Mirror.PENDING_MIRROR,
    _Mirror.PENDING_SETUP_FOR_RESTORE,
    _Mirror.PENDING_RESTORE,
    _Mirror.PENDING_STOPPED,
)
_REFUSE_SUSPENDED: Final = UnreachableRole(
    "A reversal of it is suspended: end it with state reversed, or abandon it with failed-over."
)
_REFUSE_UNREACHABLE: Final = UnreachableRole("Its source cannot be asked: use state failed-over.")
_REFUSE_PENDING: Final = UnreachableRole("Wait until it is ACTIVE or PAUSED.")
_REFUSE_REGULAR: Final = UnreachableRole("It is an ordinary topic: remove the entry, or delete the topic first.")
_REFUSE_STOPPED: Final = UnreachableRole(
    "Restore it on the original source over a bidirectional link, or delete it and mirror again."
)

_VERDICTS: Final[dict[Role, dict[MirrorStatus, RoleVerdict]]] = {
    "mirroring": {
        _Mirror.ACTIVE: RoleReached(),
        _Mirror.PAUSED: VerbRequest(("resume",)),
        _Mirror.LINK_PAUSED: RoleReached(),
        _Mirror.SOURCE_UNAVAILABLE: RoleReached(),
        _Mirror.LINK_FAILED: RoleReached(),
        _Mirror.FAILED: UnreachableRole("It will not recover: allow its deletion; then it is mirrored again."),
        **dict.fromkeys(_PENDING, RolePending()),
        _Mirror.STOPPED: _REFUSE_STOPPED,
    },
    "paused": {
        _Mirror.ACTIVE: VerbRequest(("pause",)),
        _Mirror.PAUSED: RoleReached(),
        _Mirror.LINK_PAUSED: RoleReached(),  # A paused link hides the mirror's own status.
        _Mirror.SOURCE_UNAVAILABLE: UnreachableRole("Its source is unreachable; pause it when it is ACTIVE again."),
        _Mirror.LINK_FAILED: UnreachableRole("Mend its link first."),
        _Mirror.FAILED: UnreachableRole("It has failed permanently and mirrors nothing."),
        **dict.fromkeys(_PENDING, RolePending()),
        _Mirror.PENDING_SYNCHRONIZE: VerbRequest(("pause",)),
        _Mirror.STOPPED: _REFUSE_STOPPED,
    },
    "promoted": {
        _Mirror.ACTIVE: VerbRequest(("promote",)),
        _Mirror.PAUSED: VerbRequest(("promote",)),
        _Mirror.LINK_PAUSED: UnreachableRole("Resume its link first, or use state failed-over."),
        _Mirror.SOURCE_UNAVAILABLE: _REFUSE_UNREACHABLE,
        _Mirror.LINK_FAILED: _REFUSE_UNREACHABLE,
        _Mirror.FAILED: _REFUSE_UNREACHABLE,
        **dict.fromkeys(_PENDING, _REFUSE_PENDING),
        _Mirror.PENDING_STOPPED: RolePending(),
        _Mirror.STOPPED: RoleReached(),
    },
    "failed-over": {
        **dict.fromkeys((_Mirror.ACTIVE, _Mirror.PAUSED, _Mirror.LINK_PAUSED, *_PENDING), VerbRequest(("failover",))),
        **dict.fromkeys((_Mirror.SOURCE_UNAVAILABLE, _Mirror.LINK_FAILED, _Mirror.FAILED), VerbRequest(("failover",))),
        _Mirror.STOPPED: RoleReached(),
    },
    "reversed": {
        _Mirror.ACTIVE: VerbRequest(("reverse-and-start",)),
        _Mirror.PAUSED: VerbRequest(("resume", "reverse-and-start")),
        _Mirror.LINK_PAUSED: UnreachableRole("Resume its link first."),
        _Mirror.SOURCE_UNAVAILABLE: UnreachableRole("Both sides are needed to reverse; its source is unreachable."),
        _Mirror.LINK_FAILED: UnreachableRole("Both sides are needed to reverse; mend its link first."),
        _Mirror.FAILED: UnreachableRole("It has failed permanently; fail over, then restore."),
        **dict.fromkeys(_PENDING, _REFUSE_PENDING),
        _Mirror.PENDING_SYNCHRONIZE: RolePending(),
        _Mirror.PENDING_STOPPED: RolePending(),
        _Mirror.STOPPED: VerbRequest(("truncate-and-restore",)),
    },
}

_SUSPENDED_VERDICTS: Final[dict[Role, RoleVerdict]] = {
    "mirroring": _REFUSE_SUSPENDED,
    "paused": RoleReached(),
    "promoted": _REFUSE_SUSPENDED,
    "failed-over": VerbRequest(("failover",)),
    "reversed": VerbRequest(("resume",)),
}


def plan_role_change(role: Role, state: MirrorStatus, *, is_suspended: bool = False) -> RoleVerdict:
    """Decide how a mirror in `state` reaches `role`; `is_suspended` means paused during a reversal."""
    if is_suspended and state is _Mirror.PAUSED:
        return _SUSPENDED_VERDICTS[role]
    return _VERDICTS[role].get(state, _REFUSE_REGULAR)


class TieringState(StrEnum):
    """The state of a topic's tiering."""

    ENABLED = "ENABLED"
    DISABLING = "DISABLING"
    DISABLED = "DISABLED"


TIERING: Final = Lifecycle(
    name="tiering",
    initial=TieringState.ENABLED,
    moves=(
        Move(TieringState.ENABLED, "disable-tiering", TieringState.DISABLING),
        Move(TieringState.DISABLING, "disabled", TieringState.DISABLED, is_automatic=True),
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


class HousekeepingState(StrEnum):
    """The state of the remote tier's background cleanup."""

    IDLE = "idle"
    ACTIVE = "active"
    PAUSE = "pause"
    """Other traffic interrupted the cleanup before its end."""
    DRAINING = "draining"
    """The interval has passed, so cleanup runs despite other traffic."""
    STOPPED = "stopped"


_IDLE, _ACTIVE, _PAUSE, _DRAINING, _STOPPED = HousekeepingState

HOUSEKEEPING: Final = Lifecycle(
    name="housekeeping",
    initial=_IDLE,
    moves=(
        Move(_IDLE, "storage-is-idle", _ACTIVE, is_automatic=True),
        Move(_IDLE, "interval-passed", _DRAINING, is_automatic=True),
        Move(_ACTIVE, "traffic", _PAUSE, is_automatic=True),
        Move(_ACTIVE, "done", _IDLE, is_automatic=True),
        Move(_PAUSE, "storage-is-idle", _ACTIVE, is_automatic=True),
        Move(_PAUSE, "interval-passed", _DRAINING, is_automatic=True),
        Move(_DRAINING, "done", _IDLE, is_automatic=True),
        *(Move(state, "stop", _STOPPED) for state in (_IDLE, _ACTIVE, _PAUSE, _DRAINING)),
    ),
)


# States of KIP-405. A segment is being copied until a manifest lists it. While it is being deleted, the manifest lists
# it as garbage.


class SegmentState(StrEnum):
    """The state of a remote segment; only COPY_FINISHED can be read."""

    COPY_STARTED = "COPY_SEGMENT_STARTED"
    COPY_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_FINISHED = "DELETE_SEGMENT_FINISHED"


class PartitionDeletion(StrEnum):
    """Progress of the deletion of a remote partition."""

    MARKED = "DELETE_PARTITION_MARKED"
    STARTED = "DELETE_PARTITION_STARTED"
    FINISHED = "DELETE_PARTITION_FINISHED"


SEGMENT: Final = Lifecycle(
    name="segment",
    initial=SegmentState.COPY_STARTED,
    moves=(
        Move(SegmentState.COPY_STARTED, "copied", SegmentState.COPY_FINISHED, is_automatic=True),
        Move(SegmentState.COPY_STARTED, "abandoned", SegmentState.DELETE_STARTED, is_automatic=True),
        Move(SegmentState.COPY_FINISHED, "expired", SegmentState.DELETE_STARTED, is_automatic=True),
        Move(SegmentState.DELETE_STARTED, "deleted", SegmentState.DELETE_FINISHED, is_automatic=True),
    ),
)

PARTITION_DELETION: Final = Lifecycle(
    name="partition-deletion",
    initial=PartitionDeletion.MARKED,
    moves=(
        Move(PartitionDeletion.MARKED, "begun", PartitionDeletion.STARTED, is_automatic=True),
        Move(PartitionDeletion.STARTED, "deleted", PartitionDeletion.FINISHED, is_automatic=True),
    ),
)


LIFECYCLES: Final[Mapping[str, Lifecycle[Any]]] = MappingProxyType(
    {
        lifecycle.name: lifecycle
        for lifecycle in (MOUNT, UNMOUNT, MIRROR, LINK, TIERING, SEGMENT, PARTITION_DELETION, HOUSEKEEPING)
    }
)
