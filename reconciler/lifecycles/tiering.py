"""Turning tiered storage off and on again (KIP-950): four moves, ordered by the tiered epoch."""

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
