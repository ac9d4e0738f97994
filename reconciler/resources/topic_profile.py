"""Profile of the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KEY_PREFIX: Final = 256
"""Maximum number of bytes of a key that are shown."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of single records: key, value and headers. Median and p99 are exact up to 0.01 % of the records' ranks."""

    min: int
    median: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a record: from the last record before it to the first one after it."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """Length in ms."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the records of a partition or a topic."""

    records: int = 0
    bytes: int = 0
    """Of keys, values and headers, uncompressed."""
    first_offset: int | None = None
    """Offset of an existing record. Null: there are none."""
    last_offset: int | None = None
    first_ms: int | None = None
    """The earliest timestamp. Null: no record has one."""
    last_ms: int | None = None
    """The latest timestamp."""
    null_keys: int = 0
    null_values: int = 0
    tombstones: int = 0
    """Null values that have a key."""
    old_records: int = 0
    """Records from before the requested time."""
    old_bytes: int = 0
    sizes: Sizes | None = None
    """Null: there are no records."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The keys of a partition, and the records that newer ones of the same key supersede."""

    keys: int = 0
    superseded_records: int = 0
    superseded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """One partition."""

    partition: int
    counts: Counts = Counts()
    keys: KeyCounts = KeyCounts()
    gap: Gap | None = None
    """Longest gap between two records. Null: none is as long as a second."""


@dataclass(frozen=True, slots=True)
class KeyProfile:
    """A key with very many records: one of at most ten."""

    prefix: bytes
    """The first `KEY_PREFIX` bytes."""
    key_bytes: int
    """Length of the whole key."""
    records: int
    bytes: int
    """Of keys, values and headers, uncompressed."""
    partitions: int
    """How many partitions have it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Number of records in equal intervals of time."""

    start_ms: int
    width_ms: int
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a topic up to its last stable offsets."""

    partitions: tuple[PartitionProfile, ...]
    counts: Counts = Counts()
    keys: int = 0
    """Different keys in all partitions."""
    scattered_keys: int = 0
    """Keys in more than one partition."""
    top_keys: tuple[KeyProfile, ...] = ()
    """Keys with the most records, in descending order; at most ten."""
    timeline: Timeline | None = None
    """Null: no record has a timestamp."""

    @property
    def superseded_records(self) -> int:
        """Return the maximum number of records that compaction would remove."""
        return sum(partition.keys.superseded_records for partition in self.partitions)

    @property
    def superseded_bytes(self) -> int:
        """Return the bytes of `superseded_records`."""
        return sum(partition.keys.superseded_bytes for partition in self.partitions)

    @property
    def skew(self) -> float | None:
        """Return the size of the largest partition as a multiple of the average; `None`: no bytes."""
        total = self.counts.bytes
        return (
            max(partition.counts.bytes for partition in self.partitions) * len(self.partitions) / total
            if total
            else None
        )
