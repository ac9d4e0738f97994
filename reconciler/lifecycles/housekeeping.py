"""When the remote tier is tidied: while object storage is idle, and now and then whether it is or not."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reconciler.lifecycles.table import Lifecycle, Move


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
