"""Partitions to be written anew or uploaded: what the driver hands out, and what it gets back where that is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.errors import ReconcilerError
    from reconciler.records.log import OffsetRange

Job: TypeAlias = Literal["roll", "upload", "reupload", "compact", "merge"]

_COST: Final = 256 * 1024
_LITTLE: Final = 64 * 1024 * 1024
_FEW: Final = 4_000
"""Partitions: of those that are only marked, or are tiny, so many take threads no longer than Spark takes to begin."""


@dataclass(frozen=True, slots=True)
class Chore:
    """One partition that is to be rolled, uploaded, compacted or merged, and about how many stored bytes that reads."""

    partition: Partition
    bytes: int
    offsets: OffsetRange | None = None
    """Of an upload and of a merge: what of the partition."""

    @property
    def cost(self) -> int:
        """How much of a round it takes, in bytes: its own, and a few requests and a swap."""
        return self.bytes + _COST


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition that could not be written anew; the others stand for themselves."""

    partition: Partition
    error: ReconcilerError


def is_little(chores: Sequence[Chore]) -> bool:
    """Tell whether it is done here before executors would begin."""
    return len(chores) <= _FEW and sum(chore.bytes for chore in chores) <= _LITTLE
