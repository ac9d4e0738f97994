"""Entries of a partition: references to parts (Parquet files of records) and to pages of older entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from reconciler.objectstore.base import check_numbers, check_shape, check_texts
from reconciler.records.log import Digest, OffsetRange
from reconciler.runtime.dataclass import dataclass, replace

Json = dict[str, Any]

STALE_MS: Final = 60 * 60 * 1000
"""Age above which unreferenced objects are stored again, since a sweep may delete them."""
STALE_REWRITE_MS: Final = 12 * STALE_MS
"""`STALE_MS` for rolls, compactions and merges, which may rewrite whole partitions."""


_REQUIRED_FIELDS: Final = 10
_OPTIONAL_FIELDS: Final = {"is_segment?": bool, "kms_key_id?": str, "horizon_ms?": int}


@dataclass(frozen=True, slots=True)
class Entry:
    """A part with offsets `base` to `last`, inclusive. In its `digest`, `base` is offset 0."""

    base: int
    last: int
    min_ts: int
    max_ts: int
    bytes: int
    epoch: int
    key: str
    digest: Digest
    producer: Json | None = None
    """`{id, epoch, first, last}`; `first` and `last` are sequence numbers."""
    txn: str | None = None
    is_segment: bool = False
    kms_key_id: str | None = None
    """Encryption key; `None` uses the store's own."""
    horizon_ms: int | None = None
    """Time after which tombstones of a compacted part may be removed."""

    @property
    def is_dense(self) -> bool:
        """Whether every offset has a record."""
        return self.digest.records == self.last - self.base + 1

    def as_segment(self, parts: Iterable[Entry], epoch: int) -> Entry:
        """Return the entry as a segment made of `parts`, in leader epoch `epoch`."""
        horizon_ms = max((part.horizon_ms for part in parts if part.horizon_ms is not None), default=None)
        return replace(self, epoch=epoch, is_segment=True, horizon_ms=horizon_ms)

    def is_within(self, offsets: OffsetRange) -> bool:
        """Return whether all offsets of the entry are in a range."""
        return offsets.start <= self.base and self.last < offsets.stop

    def shift(self, start: int, epoch: int) -> Entry:
        """Return the entry with offsets increased by `start`, in leader epoch `epoch`."""
        return replace(self, base=self.base + start, last=self.last + start, epoch=epoch)

    def to_json(self) -> Json:
        """Convert to JSON."""
        values: Json = {
            "base": self.base,
            "last": self.last,
            "min_ts": self.min_ts,
            "max_ts": self.max_ts,
            "bytes": self.bytes,
            "epoch": self.epoch,
            "producer": self.producer,
            "txn": self.txn,
            "key": self.key,
            "digest": [self.digest.records, f"{self.digest.total:032x}", f"{self.digest.weighted:032x}"],
        }
        if self.is_segment:
            values["is_segment"] = True
        if self.kms_key_id is not None:
            values["kms_key_id"] = self.kms_key_id
        if self.horizon_ms is not None:
            values["horizon_ms"] = self.horizon_ms
        return values

    @classmethod
    def from_json(cls, values: Json) -> Entry:
        """Parse JSON."""
        records, total, weighted = values["digest"]
        who, txn = values["producer"], values["txn"]
        numbers = [
            values["base"],
            values["last"],
            values["min_ts"],
            values["max_ts"],
            values["bytes"],
            values["epoch"],
            records,
        ]
        texts = [values["key"]] if txn is None else [values["key"], txn]
        if who is not None:
            numbers += who["epoch"], who["first"], who["last"]
            texts.append(who["id"])
        check_numbers(*numbers)
        check_texts(*texts)
        if len(values) > _REQUIRED_FIELDS:
            check_shape(values, _OPTIONAL_FIELDS)
        return cls(
            values["base"],
            values["last"],
            values["min_ts"],
            values["max_ts"],
            values["bytes"],
            values["epoch"],
            values["key"],
            Digest(records, int(total, 16), int(weighted, 16)),
            values["producer"],
            values["txn"],
            values.get("is_segment", False),
            values.get("kms_key_id"),
            values.get("horizon_ms"),
        )


@dataclass(frozen=True, slots=True)
class PageRef:
    """Reference to a page, with the totals of its entries."""

    key: str
    base: int
    last: int
    min_ts: int
    max_ts: int
    bytes: int
    records: int
    entries: int
    level: int = 0
    """0 for a page of entries; n for a page that references pages of level n - 1."""

    def to_json(self) -> Json:
        """Convert to JSON."""
        values: Json = {
            "key": self.key,
            "base": self.base,
            "last": self.last,
            "min_ts": self.min_ts,
            "max_ts": self.max_ts,
            "bytes": self.bytes,
            "records": self.records,
            "entries": self.entries,
        }
        if self.level:
            values["level"] = self.level
        return values

    @classmethod
    def from_json(cls, values: Json) -> PageRef:
        """Parse JSON."""
        page = cls(**values)
        check_texts(page.key)
        check_numbers(
            page.base, page.last, page.min_ts, page.max_ts, page.bytes, page.records, page.entries, page.level
        )
        return page

    @classmethod
    def from_entries(cls, key: str, entries: Sequence[Entry]) -> PageRef:
        """Return the reference to a page of entries, oldest first."""
        return cls._sum_entries(key, entries, sum(entry.digest.records for entry in entries), len(entries))

    @classmethod
    def from_pages(cls, key: str, pages: Sequence[PageRef]) -> PageRef:
        """Return the reference to a page of pages, oldest first."""
        summed = cls._sum_entries(key, pages, sum(page.records for page in pages), sum(page.entries for page in pages))
        return replace(summed, level=1 + max(page.level for page in pages))

    @classmethod
    def _sum_entries(cls, key: str, below: Sequence[Entry | PageRef], records: int, entries: int) -> PageRef:
        return cls(
            key,
            below[0].base,
            below[-1].last,
            min(item.min_ts for item in below),
            max(item.max_ts for item in below),
            sum(item.bytes for item in below),
            records,
            entries,
        )
