"""What parts hold, read and compared with what heads say of it: rows, offsets, times and digest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.embedded.checking.findings import Finding, Kind
from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.partfiles import read_part
from reconciler.errors import MissingObjectError, ReconcilerError, UserError
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.checking.findings import Place
    from reconciler.embedded.partition.entries import Entry
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads parts whole; large ones row group by row group."""

    store: ObjectStore
    missing: Kind = Kind.PART_MISSING
    differs: Kind = Kind.PART_DIFFERS

    def __call__(self, entry: Entry, place: Place) -> Iterator[Finding]:
        """Yield how a part differs from what its head says."""
        offsets = OffsetRange(entry.base, entry.last + 1)
        try:
            differences = list(self._differences(entry, offsets))
        except MissingObjectError as error:
            yield Finding(self.missing, error.message, place, (offsets,))
            return
        except UserError as error:
            differences = [error.message]
        except ReconcilerError:
            raise  # A store that does not answer says nothing of the part.
        except Exception as error:  # noqa: BLE001 - a damaged file may break its decoder in any way
            differences = [f"it cannot be read: {type(error).__name__}: {error}"]
        if differences:
            yield Finding(self.differs, "; ".join(differences), place, (offsets,))

    def _differences(self, entry: Entry, offsets: OffsetRange) -> Iterator[str]:
        found, last, times = Digest(), entry.base - 1, [entry.min_ts, entry.max_ts]
        for batch in read_part(self.store, entry, 0, offsets):
            found += digest_of(batch, base=entry.base)
            column = batch.column("offset").to_numpy()
            if column[0] <= last or (np.diff(column) <= 0).any():
                yield "its offsets do not rise"
                return
            last = int(column[-1])
            ends = pc.min_max(batch.column("timestamp_ms")).as_py()
            times = [min(times[0], ends["min"]), max(times[1], ends["max"])]
        if last > entry.last:
            yield f"it goes on to offset {last}"
        if times != [entry.min_ts, entry.max_ts]:
            yield f"its times reach from {times[0]} to {times[1]}, not {entry.min_ts} to {entry.max_ts}"
        if found != entry.digest:
            yield f"its digest is not the one kept when it was written ({found.records:,} records)"


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """Reads remote segments whole, past the cache, and their indexes."""

    storage: ObjectStore

    def __call__(self, entry: Entry, place: Place) -> Iterator[Finding]:
        """Yield how a segment or its index differs from what the manifest says; an index may be gone."""
        yield from PartReader(self.storage, Kind.SEGMENT_MISSING, Kind.SEGMENT_DIFFERS)(entry, place)
        key = index_key(entry.key)
        stored = self.storage.get(key)
        if stored is None:
            return
        try:
            records = pq.read_metadata(pa.BufferReader(stored.body)).num_rows
        except (pa.ArrowException, OSError) as error:
            what = f"it is no index: {error}"
        else:
            what = "" if records == entry.digest.records else f"it tells of {records:,} records, not of these"
        if what:
            yield Finding(Kind.INDEX_DIFFERS, what, replace(place, key=key))
