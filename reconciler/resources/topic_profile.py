"""What a profile found in the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KEY_PREFIX: Final = 256
"""Bytes that are shown of a key."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of single records: key, value and headers. Median and p99 are exact up to 0.01 % of the records' ranks."""

    min: int
    median: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a record, from the last one before it to the first one after it."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """Return how long it is."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class Counts:
    """What some records are, a partition's or a topic's. Bytes are those of keys, values and headers, uncompressed."""

    records: int = 0
    bytes: int = 0
    """Of keys, values and headers, uncompressed."""
    first_offset: int | None = None
    """Of a record that is there. Null: there is none."""
    last_offset: int | None = None
    first_ms: int | None = None
    """The earliest time of a record. Null: none has one."""
    last_ms: int | None = None
    """The latest."""
    null_keys: int = 0
    null_values: int = 0
    tombstones: int = 0
    """Null values that have a key."""
    old_records: int = 0
    """From before the time that was asked for."""
    old_bytes: int = 0
    sizes: Sizes | None = None
    """Null: there are no records."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The keys of a partition, and what newer records of the same key supersede there."""

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
    """Between two records. Null: none is as long as a second."""


@dataclass(frozen=True, slots=True)
class KeyProfile:
    """One of the keys with the most records."""

    prefix: bytes
    """The first `KEY_PREFIX` bytes."""
    key_bytes: int
    """How long it is."""
    records: int
    bytes: int
    """Of keys, values and headers, uncompressed."""
    partitions: int
    """How many have it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """How many records there are in each of many equal stretches of time."""

    start_ms: int
    width_ms: int
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a topic holds, up to its last stable offsets."""

    partitions: tuple[PartitionProfile, ...]
    counts: Counts = Counts()
    keys: int = 0
    """Different ones, in all partitions together."""
    scattered_keys: int = 0
    """Those that more than one partition has."""
    top_keys: tuple[KeyProfile, ...] = ()
    """With the most records first; at most ten."""
    timeline: Timeline | None = None
    """Null: no record has a time."""

    @property
    def superseded_records(self) -> int:
        """Return how many records compaction would remove at most."""
        return sum(partition.keys.superseded_records for partition in self.partitions)

    @property
    def superseded_bytes(self) -> int:
        """As `superseded_records`."""
        return sum(partition.keys.superseded_bytes for partition in self.partitions)

    @property
    def skew(self) -> float | None:
        """Return how many times the average the largest partition has, by bytes; `None` where there are none."""
        total = self.counts.bytes
        return (
            max(partition.counts.bytes for partition in self.partitions) * len(self.partitions) / total
            if total
            else None
        )
