"""Parts: Parquet files with the records of one append."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from mmap import ACCESS_READ, mmap
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.archives.entries import Entry
from reconciler.archives.objects import RESTORE_HINT, missing_offsets_error
from reconciler.embedded.keys import part_key
from reconciler.errors import DamagedObjectError, MissingObjectError, UserError
from reconciler.objectstore.directory import translate_file_errors
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange, Selection
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.objectstore.base import ObjectStore


PART_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a part, which must fit into memory several times."""
GROUP_BYTES: Final = 16 * 1024 * 1024
GROUP_ROWS: Final = 1 << 17
_GROUPS_PER_PART: Final = 4
"""Row groups per full part; with equal records they fill three quarters."""
_MIN_GROUP_BYTES: Final = 1024
_FRAME_BYTES: Final = 1024
"""Upper bound for the overhead of a file and of each row group, measured over all codecs."""

PART_SCHEMA: Final = pa.schema(
    [
        pa.field("offset_delta", pa.int64(), nullable=False),
        *[RECORD_SCHEMA.field(name) for name in ("timestamp_ms", "timestamp_type", "key", "value", "headers")],
    ]
)

# Measured with 500,000 records: dictionary encoding doubles the time to write, and delta encoding of offsets and times
# takes almost none. For JSON, zstd 1 is as fast as lz4, and files are five times smaller.
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
"""Parquet codec by `compression.type`; `producer` becomes zstd."""


class PartWriter:
    """Writes a partition's records as parts, which are visible once a head references them."""

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
        """Write parts of at most `limit` bytes; only a single record may be larger."""
        self._store = store
        self._place = full_name, partition
        self._codec = _CODECS[compression]
        self._limit = min(limit, PART_BYTES)
        self._kms_key_id = kms_key_id

    @classmethod
    def of(cls, store: ObjectStore, rules: AppendRules, partition: int) -> PartWriter:
        """Return a writer with a topic's codec, size limit and KMS key."""
        return cls(
            store,
            rules.full_name,
            partition,
            compression=rules.compression,
            limit=rules.segment_bytes,
            kms_key_id=rules.kms_key_id,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
        """Store batches of `RECORD_SCHEMA`; yield each part once it is durable."""
        for part, body in self._fill_parts(batches):
            yield self._put_part(part, body)

    def begin_writing(
        self, batches: Iterable[pa.RecordBatch], threads: Executor
    ) -> Iterator[tuple[Entry, Future[None]]]:
        """Store parts on `threads`; yield each with a future that is done once it is durable."""
        for part, body in self._fill_parts(batches):
            key = self._choose_key((part.base, part.last), body.nbytes)
            put = threads.submit(self._put_file, key, body)
            yield self._build_entry(part, key, body.nbytes), put

    def _fill_parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[_PartBuilder, memoryview]]:
        part: _PartBuilder | None = None
        memory = pa.BufferOutputStream()
        size = max(min(self._limit // _GROUPS_PER_PART, GROUP_BYTES), _MIN_GROUP_BYTES)
        for group in split_row_groups(batches, size):
            if part is not None and part.max_bytes_with(group) > self._limit:
                part.close()
                yield part, memoryview(memory.getvalue())
                part = None
            if part is None:
                memory = pa.BufferOutputStream()
                part = _PartBuilder(self._codec, group, memory)
            part.add(group)
        if part is not None:
            part.close()
            yield part, memoryview(memory.getvalue())

    def write_one(self, batches: Iterable[pa.RecordBatch]) -> Entry | None:
        """Store all batches as one part of any size; return `None` without records.

        Raises:
            MendFirstError: The temporary disk is full.
        """
        part: _PartBuilder | None = None
        with _temporary_file() as file:
            for group in split_row_groups(batches, GROUP_BYTES):
                part = part or _PartBuilder(self._codec, group, pa.PythonFile(file, mode="w"))
                part.add(group)
            if part is None:
                return None
            part.close()
            file.flush()
            with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped, memoryview(mapped) as body:
                return self._put_part(part, body)

    def _put_part(self, part: _PartBuilder, body: memoryview) -> Entry:
        key = self._choose_key((part.base, part.last), body.nbytes)
        self._put_file(key, body)
        return self._build_entry(part, key, body.nbytes)

    def _build_entry(self, part: _PartBuilder, key: str, stored_bytes: int) -> Entry:
        ends = part.base, part.last, part.min_ts, part.max_ts
        return Entry(*ends, stored_bytes, 0, key, part.finish_digest(), kms_key_id=self._kms_key_id)

    def _choose_key(self, _offsets: tuple[int, int], _stored_bytes: int) -> str:
        return part_key(*self._place)

    def _put_file(self, key: str, body: memoryview) -> None:
        self._store.put(key, body, kms_key_id=self._kms_key_id)


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    try:
        where = tempfile.gettempdir()
    except FileNotFoundError as error:
        message = "there is no folder for temporary files that can be written to"
        hint = "Name one with room for a segment: TMPDIR=/var/tmp. In a container, mount a volume there."
        raise UserError(message, hint=hint) from error
    with (
        translate_file_errors("write a temporary file in", f"{where} (TMPDIR names another folder)"),
        tempfile.TemporaryFile(prefix="reconciler-", dir=where) as file,
    ):
        yield file


class _PartBuilder:
    def __init__(self, codec: dict[str, Any], first: pa.RecordBatch, body: pa.NativeFile) -> None:
        self.base = self.last = _to_int(first.column("offset")[0])
        self.min_ts = self.max_ts = _to_int(first.column("timestamp_ms")[0])
        self._digest = Digest()
        self._unhashed: pa.RecordBatch | None = None
        self._groups = 0
        self._body = body
        self._writer = pq.ParquetWriter(self._body, PART_SCHEMA, **codec, **_LAYOUT)

    def max_bytes_with(self, group: pa.RecordBatch) -> int:
        most: int = self._body.tell() + group.nbytes + group.nbytes // 64 + (self._groups + 2) * _FRAME_BYTES
        return most

    def add(self, group: pa.RecordBatch) -> None:
        offsets = group.column("offset")
        times = pc.min_max(group.column("timestamp_ms"))
        self.last = _to_int(offsets[-1])
        self.min_ts = min(self.min_ts, _to_int(times["min"]))
        self.max_ts = max(self.max_ts, _to_int(times["max"]))
        self.finish_digest()
        self._unhashed = group
        columns = [pc.subtract(offsets, self.base), *[group.column(name) for name in PART_SCHEMA.names[1:]]]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=PART_SCHEMA), group.num_rows)
        self._groups += 1

    def finish_digest(self) -> Digest:
        if self._unhashed is not None:
            self._digest += compute_digest(self._unhashed, base=self.base)
            self._unhashed = None
        return self._digest

    def close(self) -> None:
        self._writer.close()


def split_row_groups(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Yield records in batches of about `size` bytes.

    A batch has at most `GROUP_ROWS` rows; only a single record may exceed twice the size.
    """
    waiting: list[pa.RecordBatch] = []
    rows = taken = 0
    for batch in batches:
        for piece in _split_batch(batch, size):
            if waiting and (rows + piece.num_rows > GROUP_ROWS or taken + piece.nbytes > size):
                yield _concat_batches(waiting)
                waiting, rows, taken = [], 0, 0
            waiting.append(piece)
            rows += piece.num_rows
            taken += piece.nbytes
    if waiting:
        yield _concat_batches(waiting)


def _split_batch(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    groups = max(-(-batch.num_rows // GROUP_ROWS), -(-batch.nbytes // size))
    rows = -(-batch.num_rows // groups)
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        # Halves with equal row counts may differ in size.
        if piece.num_rows > 1 and piece.nbytes > 2 * size:
            yield from _split_batch(piece, size)
        else:
            yield piece


def _concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _to_int(scalar: pa.Scalar[Any]) -> int:
    return int(scalar.as_py())


_BATCH_ROWS: Final = 1 << 16
_WHOLE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of parts that one request fetches whole; a further request takes longer."""
EVERYTHING: Final = Selection(frozenset(RECORD_SCHEMA.names))


def read_part(
    store: ObjectStore, entry: Entry, partition: int, offsets: OffsetRange, selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """Yield a part's selected records of a range."""
    is_fetched = selection == EVERYTHING and entry.is_within(offsets) and entry.bytes <= PART_BYTES
    with translate_damage(store, entry):
        file = _open_part(store, entry, is_fetched=is_fetched)
        yield from read_open_part(file, entry, partition, offsets, selection)


def read_open_part(
    file: pq.ParquetFile, entry: Entry, partition: int, offsets: OffsetRange, selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """Yield an open part's selected records of a range."""
    is_whole = entry.is_within(offsets)
    wanted = [name for name in RECORD_SCHEMA.names if name == "offset" or name in selection.columns]
    stored = ["offset_delta", *[name for name in PART_SCHEMA.names[1:] if name in wanted]]
    schema = pa.schema([RECORD_SCHEMA.field(name) for name in wanted])
    for batch in _iter_batches(file, entry, offsets, stored, selection):
        records = _build_records(batch, entry.base, partition, schema)
        if not is_whole:
            records = select_range(records, offsets)
        if records.num_rows:
            yield records


def find_offset_since(store: ObjectStore, entry: Entry, since_ms: int, offsets: OffsetRange) -> int | None:
    """Return the first offset of a range whose record is not older than a time in ms, or `None`."""
    with translate_damage(store, entry):
        return find_offset_in_file(_open_part(store, entry, is_fetched=False), entry, since_ms, offsets)


def find_offset_in_file(file: pq.ParquetFile, entry: Entry, since_ms: int, offsets: OffsetRange) -> int | None:
    """Find an offset like `find_offset_since`, in an open part."""
    for group in find_row_groups_within(file.metadata, entry, offsets):
        newest = file.metadata.row_group(group).column(1).statistics
        if newest is not None and newest.has_min_max and newest.max < since_ms:
            continue
        times = file.read_row_group(group, ["offset_delta", "timestamp_ms"], use_threads=False)
        part_offsets = times.column("offset_delta").to_numpy() + entry.base
        is_late = times.column("timestamp_ms").to_numpy() >= since_ms
        later = part_offsets[is_late & (part_offsets >= offsets.start) & (part_offsets < offsets.stop)]
        if len(later):
            return int(later[0])
    return None


def read_keys(store: ObjectStore, entry: Entry, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield `offset` and `key` of a part's records, for compaction."""
    with translate_damage(store, entry):
        file = _open_part(store, entry, is_fetched=False)
        for batch in _iter_batches(file, entry, offsets, ["offset_delta", "key"]):
            columns = [pc.add(batch.column("offset_delta"), entry.base), batch.column("key")]
            records = select_range(pa.RecordBatch.from_arrays(columns, names=["offset", "key"]), offsets)
            if records.num_rows:
                yield records


def select_range(records: pa.RecordBatch, offsets: OffsetRange) -> pa.RecordBatch:
    """Return records of a range; the batch must be in offset order."""
    column = records.column("offset").to_numpy()
    start, stop = column.searchsorted([offsets.start, offsets.stop]).tolist()
    return records.slice(start, stop - start)


def _open_part(store: ObjectStore, entry: Entry, *, is_fetched: bool) -> pq.ParquetFile:
    if is_fetched or entry.bytes <= _WHOLE_BYTES:
        source: pa.NativeFile = pa.BufferReader(store.get_range(entry.key, 0, entry.bytes))
    else:
        source = pa.PythonFile(RangedFile(partial(store.get_range, entry.key), entry.bytes), mode="r")
    # Without buffering, Arrow would send one request per column.
    file = pq.ParquetFile(source, pre_buffer=isinstance(source, pa.PythonFile))
    check_part(store, entry, file.metadata)
    return file


def check_part(store: ObjectStore, entry: Entry, metadata: pq.FileMetaData) -> None:
    """Reject a file that does not match its entry."""
    if metadata.schema.to_arrow_schema().names != PART_SCHEMA.names or metadata.num_rows != entry.digest.records:
        raise damaged_part_error(store, entry, "its columns or the number of its rows are not what the head says")


@contextmanager
def translate_damage(store: ObjectStore, entry: Entry) -> Iterator[None]:
    """Translate errors about damaged or missing objects into errors that name the lost offsets."""
    try:
        yield
    except MissingObjectError as error:
        raise missing_offsets_error(store, entry.key, entry.base, entry.last) from error
    except DamagedObjectError as error:
        raise error if error.offsets else damaged_part_error(store, entry, error.why) from error
    # Arrow raises `OSError` only for damaged Thrift data or compression.
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged_part_error(store, entry, str(error) or type(error).__name__) from error


def damaged_part_error(store: ObjectStore, entry: Entry, why: str) -> DamagedObjectError:
    """Return the error for a damaged part, with its offsets."""
    reason = " ".join(why.split()).rstrip(". ")
    lost = f"the records at offsets {entry.base} to {entry.last} cannot be read"
    error = DamagedObjectError(f"{lost}: {store.url}: object {entry.key} is damaged: {reason}", hint=RESTORE_HINT)
    error.key, error.url, error.offsets, error.why = entry.key, store.url, (entry.base, entry.last), reason
    return error


def _iter_batches(
    file: pq.ParquetFile, entry: Entry, offsets: OffsetRange, columns: list[str], selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    for group in find_row_groups_within(file.metadata, entry, offsets):
        times = file.metadata.row_group(group).column(1).statistics
        if times is not None and times.has_min_max and not selection.may_contain(times.min, times.max):
            continue
        yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False)


def find_row_groups_within(metadata: pq.FileMetaData, entry: Entry, offsets: OffsetRange) -> list[int]:
    """Return the row groups that may hold records of a range."""
    wanted: list[int] = []
    for group in range(metadata.num_row_groups):
        first, last = _find_group_range(metadata, group, entry)
        if first < offsets.stop and offsets.start <= last:
            wanted.append(group)
    return wanted


def _find_group_range(metadata: pq.FileMetaData, group: int, entry: Entry) -> tuple[int, int]:
    statistics = metadata.row_group(group).column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return entry.base, entry.last
    return entry.base + statistics.min, entry.base + statistics.max


def _build_records(batch: pa.RecordBatch, base: int, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = []
    for name in schema.names:
        if name == "partition":
            columns.append(pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
        elif name == "offset":
            columns.append(pc.add(batch.column("offset_delta"), base))
        else:
            columns.append(batch.column(name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class RangedFile(io.RawIOBase):
    """A seekable file over an object, which fetches only the bytes that Arrow reads."""

    def __init__(self, fetch: Callable[[int, int], bytes | memoryview], size: int) -> None:
        """Read by `fetch`, which gets a start and a length."""
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return `True`."""
        return True

    def seekable(self) -> bool:
        """Return `True`."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position and return it."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; at the end there may be fewer."""
        left = self._size - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted <= 0:
            return b""
        content = self._fetch(self._position, wanted)
        self._position += len(content)
        return content  # type: ignore[return-value]  # Arrow accepts any buffer, and a view avoids a copy.
