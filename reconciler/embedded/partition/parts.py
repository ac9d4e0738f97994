"""Parts: Parquet files that hold what one append wrote, under fresh names, with offsets counted from their base."""

from __future__ import annotations

import tempfile
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.embedded.keys import part_key
from reconciler.embedded.partition.entries import Entry
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.producing.admission import Rules
    from reconciler.objectstore.base import ObjectStore

PART_BYTES: Final = 64 * 1024 * 1024
"""A larger append is cut into several parts: a part must fit into memory, a few times over."""
GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_ROWS: Final = 1 << 17

PART_SCHEMA: Final = pa.schema(
    [
        pa.field("offset_delta", pa.int64(), nullable=False),
        *[RECORD_SCHEMA.field(name) for name in ("timestamp_ms", "timestamp_type", "key", "value", "headers")],
    ]
)

# Measured on JSON and on random bytes, 500,000 records: dictionaries of keys and values cost twice the time of
# everything else; delta encoding makes offsets and times nearly free; zstd at level 1 writes JSON as fast as lz4 and
# five times smaller.
_LAYOUT: Final[dict[str, Any]] = {
    "use_dictionary": ["timestamp_type"],
    "write_statistics": ["offset_delta", "timestamp_ms"],
    "column_encoding": {"offset_delta": "DELTA_BINARY_PACKED", "timestamp_ms": "DELTA_BINARY_PACKED"},
}
_CODECS: Final[dict[str, dict[str, Any]]] = {
    "producer": {"compression": "zstd", "compression_level": 1},
    "zstd": {"compression": "zstd", "compression_level": 3},
    "uncompressed": {"compression": "none"},
    "gzip": {"compression": "gzip"},
    "snappy": {"compression": "snappy"},
    "lz4": {"compression": "lz4"},
}
"""By the topic's `compression.type`; what a producer chose is not told to us, so `producer` is ours to choose."""


class PartWriter:
    """Writes records of one partition as parts; nothing of them is readable until a head names them."""

    def __init__(
        self,
        store: ObjectStore,
        full_name: str,
        partition: int,
        *,
        compression: str,
        limit: int,
        kms_key_id: str | None = None,
    ) -> None:
        """Name where they go; a part is closed when it holds `limit` stored bytes, or `PART_BYTES`."""
        self._store = store
        self._place = full_name, partition
        self._codec = _CODECS[compression]
        self._limit = min(limit, PART_BYTES)
        self._kms_key_id = kms_key_id

    @classmethod
    def of(cls, store: ObjectStore, rules: Rules, partition: int) -> PartWriter:
        """Return what writes records of a topic as its configs and its key have them."""
        return cls(
            store,
            rules.full_name,
            partition,
            compression=rules.compression,
            limit=rules.segment_bytes,
            kms_key_id=rules.kms_key_id,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
        """Store batches of `RECORD_SCHEMA`, in offset order, and yield each part once it is durable."""
        part: _OpenPart | None = None
        memory = pa.BufferOutputStream()
        for group in row_groups(batches):
            if part is None:
                memory = pa.BufferOutputStream()
                part = _OpenPart(self._codec, group, memory)
            part.add(group)
            if part.stored_bytes >= self._limit:
                part.close()
                yield self._put(part, memoryview(memory.getvalue()))
                part = None
        if part is not None:
            part.close()
            yield self._put(part, memoryview(memory.getvalue()))

    def write_one(self, batches: Iterable[pa.RecordBatch]) -> Entry | None:
        """Store all batches as one part, put together on disk, so of any size; `None`: there are no records."""
        part: _OpenPart | None = None
        with tempfile.TemporaryFile(prefix="reconciler-") as file:
            for group in row_groups(batches):
                part = part or _OpenPart(self._codec, group, pa.PythonFile(file, mode="w"))
                part.add(group)
            if part is None:
                return None
            part.close()
            file.flush()
            with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped, memoryview(mapped) as body:
                return self._put(part, body)

    def _put(self, part: _OpenPart, body: memoryview) -> Entry:
        key = self._key((part.base, part.last), body.nbytes)
        self._put_file(key, body)
        return Entry(
            part.base,
            part.last,
            part.min_ts,
            part.max_ts,
            body.nbytes,
            0,
            key,
            part.digest,
            kms_key_id=self._kms_key_id,
        )

    def _key(self, _offsets: tuple[int, int], _stored_bytes: int) -> str:
        return part_key(*self._place)

    def _put_file(self, key: str, body: memoryview) -> None:
        self._store.put(key, body, kms_key_id=self._kms_key_id)


class _OpenPart:
    """A part that is still growing, already compressed."""

    def __init__(self, codec: dict[str, Any], first: pa.RecordBatch, body: pa.NativeFile) -> None:
        self.base = self.last = _int(first.column("offset")[0])
        self.min_ts = self.max_ts = _int(first.column("timestamp_ms")[0])
        self.digest = Digest()
        self._body = body
        self._writer = pq.ParquetWriter(self._body, PART_SCHEMA, **codec, **_LAYOUT)

    @property
    def stored_bytes(self) -> int:
        position: int = self._body.tell()
        return position

    def add(self, group: pa.RecordBatch) -> None:
        offsets = group.column("offset")
        times = pc.min_max(group.column("timestamp_ms"))
        self.last = _int(offsets[-1])
        self.min_ts = min(self.min_ts, _int(times["min"]))
        self.max_ts = max(self.max_ts, _int(times["max"]))
        self.digest += digest_of(group, base=self.base)
        columns = [pc.subtract(offsets, self.base), *[group.column(name) for name in PART_SCHEMA.names[1:]]]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=PART_SCHEMA), group.num_rows)

    def close(self) -> None:
        self._writer.close()


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same records in batches the size of a row group: small ones joined, large ones cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch):
            if waiting and (rows + piece.num_rows > GROUP_ROWS or size + piece.nbytes > GROUP_BYTES):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if waiting:
        yield _joined(waiting)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    groups = max(-(-batch.num_rows // GROUP_ROWS), -(-batch.nbytes // GROUP_BYTES))
    rows = -(-batch.num_rows // groups)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _int(scalar: pa.Scalar[Any]) -> int:
    return int(scalar.as_py())
