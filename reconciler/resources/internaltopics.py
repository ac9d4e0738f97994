"""Topics that Kafka and its tools keep for themselves: nobody declares them, and nothing of them is managed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def is_internal(name: str, patterns: Iterable[str] = KAFKA_INTERNAL) -> bool:
    """Tell whether a physical name is one that a platform or its tools use for themselves."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
