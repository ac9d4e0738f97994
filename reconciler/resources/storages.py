"""What topics take, tier by tier: what lies with the cluster, and what lies in object storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from reconciler.resources.address import Address

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError

Mode: TypeAlias = Literal["disabled", "write_only", "read_only", "full"]
"""What tiering does now: nothing, upload, serve what was uploaded, or both. A pause of uploads does not show."""


class Held(NamedTuple):
    """What a tier holds."""

    bytes: int = 0
    segments: int = 0

    @classmethod
    def sum(cls, found: Iterable[Held]) -> Held:
        """Return what several hold together."""
        each = list(found)
        return cls(sum(one.bytes for one in each), sum(one.segments for one in each))


@dataclass(frozen=True, slots=True)
class RemoteHeld:
    """What object storage holds of a partition."""

    start: int
    end: int
    """The next offset to be uploaded."""
    held: Held
    garbage: Held
    """What is marked for deletion and not deleted yet: it is not part of the log any more."""
    uploaded_ms: int | None
    """When a segment was uploaded last; `None`: never."""
    is_ahead: bool
    """Whether it has more than the cluster has taken note of: an upload was cut off there."""


@dataclass(frozen=True, slots=True)
class PartitionStorage:
    """One partition. Offsets from `start` to `local_start` are remote only; `end` is the next to be written."""

    partition: int
    start: int
    local_start: int
    end: int
    local: Held
    remote: RemoteHeld | None
    """`None`: nothing was ever uploaded, or it is not shown."""
    log_bytes: int
    """What the log takes, each record counted once, though it may lie in both tiers."""
    log_records: int
    """Likewise."""
    pending_bytes: int | None
    """What is still to be uploaded, the open segment included; `None`: nothing is uploaded of this topic."""
    problem: ReconcilerError | None = None
    """Why it cannot be told what object storage holds; nothing of that is counted then."""


@dataclass(frozen=True, slots=True)
class TieringShown:
    """What holds for a topic that is, or was, tiered."""

    mode: Mode
    state: str
    epoch: int
    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, for life."""
    url: str
    """`remote://<object storage>`."""
    is_paused: bool
    """Whether uploads pause on the whole cluster."""
    hidden: str | None
    """Why nothing is shown of the remote tier; `None`: it is."""
    problem: ReconcilerError | None = None
    """Where that is no choice: what is wrong with the object storage as a whole."""


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """One topic or mirror."""

    address: Address
    tiering: TieringShown | None
    """`None`: it was never tiered."""
    partitions: tuple[PartitionStorage, ...]

    @property
    def problem(self) -> ReconcilerError | None:
        """Return why it cannot be told what object storage holds of all of it, the first reason; `None`: it can."""
        whole = None if self.tiering is None else self.tiering.problem
        return whole or next((each.problem for each in self.partitions if each.problem is not None), None)

    @property
    def local(self) -> Held:
        """What the cluster holds of all partitions."""
        return Held.sum(partition.local for partition in self.partitions)

    @property
    def remote(self) -> Held:
        """What object storage holds of all partitions, counted once."""
        return Held.sum(partition.remote.held for partition in self.partitions if partition.remote is not None)

    @property
    def garbage(self) -> Held:
        """What is marked for deletion in object storage."""
        return Held.sum(partition.remote.garbage for partition in self.partitions if partition.remote is not None)

    @property
    def log_bytes(self) -> int:
        """What the log takes, each record counted once."""
        return sum(partition.log_bytes for partition in self.partitions)

    @property
    def log_records(self) -> int:
        """How many records the log has."""
        return sum(partition.log_records for partition in self.partitions)

    @property
    def pending_bytes(self) -> int | None:
        """What is still to be uploaded; `None`: nothing is uploaded of this topic."""
        found = [each.pending_bytes for each in self.partitions if each.pending_bytes is not None]
        return sum(found) if found else None

    @property
    def uploaded_ms(self) -> int | None:
        """When a segment was uploaded last."""
        found = [each.remote.uploaded_ms for each in self.partitions if each.remote is not None]
        return max((when for when in found if when is not None), default=None)
