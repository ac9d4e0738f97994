"""The lifecycles of tiering, of remote segments and of remote housekeeping."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reconciler.lifecycles.table import Lifecycle, Move


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
