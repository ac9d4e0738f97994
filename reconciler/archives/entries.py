"""Entries of a partition: parts of the log, and pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.objectstore.base import check_numbers, check_shape, check_texts
from reconciler.records.log import Digest, OffsetRange

Json = dict[str, Any]

STALE_MS: Final = 60 * 60 * 1000
"""What was put longer ago is not named any more, but put again: what no head names is swept after a day."""
STALE_REWRITE_MS: Final = 12 * STALE_MS
"""The same for rolls, compactions and merges: all of a large partition may be written before any of it is named."""


_USUAL: Final = 10
"""Fields that every entry has."""
_RARE: Final = {"is_segment?": bool, "kms_key_id?": str, "horizon_ms?": int}


@dataclass(frozen=True, slots=True)
class Entry:
    """One part of the log: offsets `base` to `last`, both records that are there. `digest` counts from `base`."""

    base: int
    last: int
    min_ts: int
    max_ts: int
    bytes: int
    epoch: int
    key: str
    digest: Digest
    producer: Json | None = None
    """Who appended it: `{id, epoch, first, last}`, the sequence numbers of its records."""
    txn: str | None = None
    """The transaction it belongs to while that is open: `<transactional id>/<producer epoch>`."""
    is_segment: bool = False
    """Whether it is a whole closed segment in one file."""
    kms_key_id: str | None = None
    """The key its object was encrypted under, where it was not the store's own."""
    horizon_ms: int | None = None
    """Of a compacted part: when the tombstones in it may go."""

    @property
    def is_dense(self) -> bool:
        """Tell whether every offset between its ends has a record."""
        return self.digest.records == self.last - self.base + 1

    def as_segment(self, parts: Iterable[Entry], epoch: int) -> Entry:
        """Return it, written of other parts, as a closed segment: its tombstones may go once the last of theirs may."""
        horizon_ms = max((each.horizon_ms for each in parts if each.horizon_ms is not None), default=None)
        return replace(self, epoch=epoch, is_segment=True, horizon_ms=horizon_ms)

    def is_within(self, offsets: OffsetRange) -> bool:
        """Tell whether all of it lies in a range."""
        return offsets.start <= self.base and self.last < offsets.stop

    def placed(self, start: int, epoch: int) -> Entry:
        """Return it as it stands in a log, offset 0 at `start`; the digest counts from the base and stays."""
        return replace(self, base=self.base + start, last=self.last + start, epoch=epoch)

    def to_json(self) -> Json:
        """Return what heads and pages keep."""
        kept: Json = {
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
            kept["is_segment"] = True
        if self.kms_key_id is not None:
            kept["kms_key_id"] = self.kms_key_id
        if self.horizon_ms is not None:
            kept["horizon_ms"] = self.horizon_ms
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> Entry:
        """Read it back."""
        records, total, weighted = kept["digest"]
        who, txn = kept["producer"], kept["txn"]
        numbers = [kept["base"], kept["last"], kept["min_ts"], kept["max_ts"], kept["bytes"], kept["epoch"], records]
        texts = [kept["key"]] if txn is None else [kept["key"], txn]
        if who is not None:
            numbers += who["epoch"], who["first"], who["last"]
            texts.append(who["id"])
        check_numbers(*numbers)
        check_texts(*texts)
        if len(kept) > _USUAL:
            check_shape(kept, _RARE)
        return cls(
            kept["base"],
            kept["last"],
            kept["min_ts"],
            kept["max_ts"],
            kept["bytes"],
            kept["epoch"],
            kept["key"],
            Digest(records, int(total, 16), int(weighted, 16)),
            kept["producer"],
            kept["txn"],
            kept.get("is_segment", False),
            kept.get("kms_key_id"),
            kept.get("horizon_ms"),
        )


@dataclass(frozen=True, slots=True)
class PageRef:
    """What is known of a page without reading it: sums over its entries."""

    key: str
    base: int
    last: int
    min_ts: int
    max_ts: int
    bytes: int
    records: int
    entries: int
    level: int = 0
    """0: it holds entries; above: it holds references to pages, all of lower levels."""

    def to_json(self) -> Json:
        """Return what heads and pages of pages keep."""
        kept: Json = {
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
            kept["level"] = self.level
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> PageRef:
        """Read it back."""
        page = cls(**kept)
        check_texts(page.key)
        check_numbers(
            page.base, page.last, page.min_ts, page.max_ts, page.bytes, page.records, page.entries, page.level
        )
        return page

    @classmethod
    def of(cls, key: str, entries: Sequence[Entry]) -> PageRef:
        """Sum up entries, oldest first."""
        return cls._sum(key, entries, sum(entry.digest.records for entry in entries), len(entries))

    @classmethod
    def over(cls, key: str, pages: Sequence[PageRef]) -> PageRef:
        """Sum up pages, oldest first."""
        summed = cls._sum(key, pages, sum(page.records for page in pages), sum(page.entries for page in pages))
        return replace(summed, level=1 + max(page.level for page in pages))

    @classmethod
    def _sum(cls, key: str, below: Sequence[Entry | PageRef], records: int, entries: int) -> PageRef:
        return cls(
            key,
            below[0].base,
            below[-1].last,
            min(each.min_ts for each in below),
            max(each.max_ts for each in below),
            sum(each.bytes for each in below),
            records,
            entries,
        )
