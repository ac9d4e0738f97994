"""Profile of the records of a topic."""

from __future__ import annotations

from typing import Final

from reconciler.runtime.dataclass import dataclass

KEY_PREFIX: Final = 256
"""Maximum shown bytes of a key."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Record sizes in bytes, of key, value and headers. Median and p99 are exact to 0.01 % of the ranks."""

    min: int
    median: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Time without records, between the timestamps of two records."""

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
    """Uncompressed size of keys, values and headers in bytes."""
    first_offset: int | None = None
    """First offset. Null without records."""
    last_offset: int | None = None
    first_ms: int | None = None
    """Earliest timestamp in ms. Null if no record has one."""
    last_ms: int | None = None
    """Latest timestamp in ms."""
    null_keys: int = 0
    null_values: int = 0
    tombstones: int = 0
    """Number of null values with a key."""
    old_records: int = 0
    """Number of records before the requested time."""
    old_bytes: int = 0
    sizes: Sizes | None = None
    """Null without records."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Keys of a partition, and records that newer records with the same key supersede."""

    keys: int = 0
    superseded_records: int = 0
    superseded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """Profile of one partition."""

    partition: int
    counts: Counts = Counts()
    keys: KeyCounts = KeyCounts()
    gap: Gap | None = None
    """Longest gap between two records. Null if all are shorter than a second."""


@dataclass(frozen=True, slots=True)
class KeyProfile:
    """One of at most ten keys with the most records."""

    prefix: bytes
    """First `KEY_PREFIX` bytes of the key."""
    key_bytes: int
    """Length of the whole key in bytes."""
    records: int
    bytes: int
    """Uncompressed size of keys, values and headers in bytes."""
    partitions: int
    """Number of partitions that contain the key."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Number of records per interval of equal width."""

    start_ms: int
    width_ms: int
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a topic up to its last stable offsets."""

    partitions: tuple[PartitionProfile, ...]
    counts: Counts = Counts()
    keys: int = 0
    """Number of distinct keys in all partitions."""
    scattered_keys: int = 0
    """Number of keys in more than one partition."""
    top_keys: tuple[KeyProfile, ...] = ()
    """At most ten keys with the most records, in descending order."""
    timeline: Timeline | None = None
    """Null if no record has a timestamp."""

    @property
    def superseded_records(self) -> int:
        """Return the largest number of records that compaction can remove."""
        return sum(partition.keys.superseded_records for partition in self.partitions)

    @property
    def superseded_bytes(self) -> int:
        """Return the largest number of bytes that compaction can remove."""
        return sum(partition.keys.superseded_bytes for partition in self.partitions)

    @property
    def skew(self) -> float | None:
        """Return the largest partition's size divided by the average; `None` if the topic has no bytes."""
        total = self.counts.bytes
        return (
            max(partition.counts.bytes for partition in self.partitions) * len(self.partitions) / total
            if total
            else None
        )
