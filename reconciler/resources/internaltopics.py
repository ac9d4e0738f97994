"""Topics that Kafka and its tools keep for themselves: nobody declares them, and nothing of them is managed."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from typing import Final

LEDGER: Final = "__reconciler"
"""Where our links keep the states and offset maps of their mirrors, on the cluster they copy to."""

KAFKA_INTERNAL: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__remote_log_metadata",
    LEDGER,
    "mm2-*",
    "heartbeats",
    "*.heartbeats",
    "*.checkpoints.internal",
)
"""Names of Kafka's own topics, of MirrorMaker's, and of ours; `*` stands for anything."""


def is_internal(name: str, patterns: tuple[str, ...] = KAFKA_INTERNAL) -> bool:
    """Tell whether a physical name is one that a platform or its tools use for themselves."""
    return bool(patterns) and _matching(patterns).match(name) is not None


@lru_cache(maxsize=8)
def _matching(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
