"""The lifecycle of mounts and unmounts.

Both directions walk the same states; what each state does differs. With auto-advance, which every mount and unmount
uses, `prepare`, `execute` and `finish` are asked for by the process that drives the migration.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reconciler.lifecycles.table import Lifecycle, Move


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


_MOVES: Final = (
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

_REFUSALS: Final = (
    (_S.PLANNED, "cancel", "cannot cancel what has not begun: it is only planned; delete it"),
    (_S.CUT_OVER, "cancel", "cannot cancel in cut_over: ownership has moved already"),
    (_S.FINISHED, "cancel", "cannot cancel what is finished; mount or unmount again"),
    (_S.CANCELING, "cancel", "it is being cancelled already"),
    (_S.CANCELLED, "cancel", "it is cancelled already"),
)

MOUNT: Final = Lifecycle("mount", _S.PLANNED, _MOVES, _REFUSALS)
"""Inbound: from object storage onto a cluster."""

UNMOUNT: Final = Lifecycle("unmount", _S.PLANNED, _MOVES, _REFUSALS)
"""Outbound: from a cluster into object storage."""

BY_JOBS: Final = "jobs"
"""Who mounts and unmounts where the platform cannot: the parameter `by` of such a move."""

ADVANCES: Final = {_S.PLANNED: "prepare", _S.PREPARED: "execute", _S.EXECUTED: "finish"}
"""The states that wait to be told, and the verb that leads on."""

BEFORE_EXECUTED: Final = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED, _S.EXECUTING})
"""Where something is still uploaded or looked for, and where a migration may take too long."""
