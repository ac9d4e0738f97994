"""Read remote segments, or both tiers in one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.archives.keys import build_index_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import Manifest, read_manifest, remote_partition
from reconciler.archives.objects import missing_offsets_error
from reconciler.archives.pages import PagedEntries, iter_entries_within
from reconciler.archives.storage import check_storage
from reconciler.embedded.catalog.tables import Catalog, find_current_name
from reconciler.embedded.catalog.tiering_state import find_read_location, hides_remote_records
from reconciler.embedded.segments.head import REPLICA, Head, read_head
from reconciler.embedded.segments.parts import (
    EVERYTHING,
    RangedFile,
    check_part,
    find_offset_in_file,
    find_offset_since,
    find_row_groups_within,
    read_open_part,
    read_part,
    translate_damage,
)
from reconciler.embedded.tiered.cache import CacheSource, HeldBytes, MachineCache, build_cache_name, get_machine_cache
from reconciler.embedded.tiered.cache_files import ByteSpan, find_overlapping_chunks
from reconciler.embedded.tiered.object_rewrites import parse_footer_length, read_footer
from reconciler.embedded.tiered.remote_tier import RemoteTier, find_same_log_end, has_dropped_remote
from reconciler.errors import DamagedObjectError, ReconcilerError, UserError
from reconciler.records.log import Bounds, Isolation, OffsetRange, Selection
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Future

    from reconciler.archives.entries import Entry
    from reconciler.objectstore.base import ObjectStore


_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_FOLLOW_HINT: Final = "`reconciler run --once --only replicas` follows it; then read again."


class OpenSegment:
    """A remote segment opened by one reader. Not thread-safe."""

    def __init__(
        self, machine: MachineCache, part_range: PartRange, on_step: Callable[[], None] = lambda: None
    ) -> None:
        """`on_step` is called before each wait for a chunk."""
        self.part_range = part_range
        self._machine = machine
        self._on_step = on_step
        self._source = CacheSource(part_range.store, part_range.entry.key, part_range.entry.bytes)
        is_one = part_range.entry.bytes <= machine.cache.chunk_bytes
        self._index: Future[bytes] | None = None if is_one else machine.pool.submit(self._fetch_index)
        self._metadata: pq.FileMetaData | None = None
        self._chunks: Sequence[ByteSpan] = (ByteSpan(0, part_range.entry.bytes),) if is_one else ()
        self._coming: dict[ByteSpan, Future[HeldBytes]] = {}
        self._held: dict[ByteSpan, HeldBytes] = {}
        self._seen: set[ByteSpan] = set()
        self._needed_offsets: set[int] = set()
        self._is_closed = False

    @property
    def outstanding(self) -> Iterable[ByteSpan]:
        """Chunks in memory or being fetched."""
        return (*self._coming, *self._held)

    def is_unrequested(self, span: ByteSpan) -> bool:
        """Whether a chunk was never requested and the segment is open."""
        return not self._is_closed and span not in self._seen

    def register_wanted(self) -> Sequence[ByteSpan]:
        """Register as reader of the chunks with wanted records; return them."""
        chunks = self._locate_chunks()
        if self._metadata is not None:
            groups = find_row_groups_within(self._metadata, self.part_range.entry, self.part_range.offsets)
            borders = [0, *_list_borders(self._metadata, self._source.size)]
            wanted = ByteSpan(borders[groups[0]], borders[groups[-1] + 1]) if groups else ByteSpan(0, 0)
            chunks = find_overlapping_chunks(chunks, wanted)
        self._needed_offsets = {chunk.start for chunk in chunks}
        self._machine.cache.needs.add(self._source.name, self._needed_offsets)
        return chunks

    def fetch_chunk(self, span: ByteSpan) -> Future[HeldBytes]:
        """Start to fetch a chunk, even beyond the prefetch budget."""
        self._machine.ahead.add(-span.length)
        self._seen.add(span)
        cache, chunks = self._machine.cache, len(self._chunks)
        self._coming[span] = future = self._machine.pool.submit(cache.hold_chunk, self._source, span, chunks)
        return future

    def open_file(self) -> pq.ParquetFile:
        """Open the file for Arrow; only the bytes read are fetched."""
        self._locate_chunks()
        if self._metadata is not None:
            return pq.ParquetFile(
                pa.PythonFile(RangedFile(self.read_bytes, self.size), mode="r"), metadata=self._metadata
            )
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._load_chunk(self._chunks[0]))))
        check_part(self._source.store, self.part_range.entry, file.metadata)
        return file

    def read_bytes(self, start: int, length: int) -> bytes | memoryview:
        """Return bytes; release the chunks before them."""
        part_ranges: list[memoryview] = []
        for span in find_overlapping_chunks(self._chunks, ByteSpan(start, start + length)):
            self._release_chunks(below=max(start, span.start))
            part_ranges.append(self._load_chunk(span)[max(start - span.start, 0) : start + length - span.start])
        return part_ranges[0] if len(part_ranges) == 1 else b"".join(part_ranges)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._source.size

    def close(self) -> None:
        """Release all chunks."""
        self._is_closed = True
        self._machine.cache.needs.remove(self._source.name, self._needed_offsets)
        self._needed_offsets = set()
        for span, future in self._coming.items():
            self._machine.ahead.add(span.length)
            if not future.cancel():
                future.add_done_callback(_release_result)
        self._coming.clear()
        self._release_chunks(below=self.size)

    def evict_cached(self) -> None:
        """Evict the segment's cached copy."""
        self.close()
        self._machine.cache.evict_object(self._source.name)
        self._machine.cache.evict_object(self._build_index_name)

    def _locate_chunks(self) -> Sequence[ByteSpan]:
        if self._index is not None and self._metadata is None:
            self._metadata = self._parse_footer(self._index.result())
            self._chunks = self._machine.cache.divide_segment(self.size, _list_borders(self._metadata, self.size)[:-1])
        return self._chunks

    def _load_chunk(self, span: ByteSpan) -> memoryview:
        held = self._held.get(span)
        if held is None:
            self._on_step()
            coming = self._coming.get(span)
            if coming is None:  # Arrow reads a released chunk again.
                coming = self.fetch_chunk(span)
            held = coming.result()
            del self._coming[span]
            self._held[span] = held
        if span.start in self._needed_offsets:
            self._needed_offsets.remove(span.start)
            self._machine.cache.needs.remove(self._source.name, [span.start])
        return held.content

    def _release_chunks(self, *, below: int) -> None:
        for span in [span for span in self._held if span.stop <= below]:
            self._held.pop(span).release()
            self._machine.ahead.add(span.length)

    @property
    def _build_index_name(self) -> str:
        return build_cache_name(self._source.store, build_index_key(self._source.key))

    def _fetch_index(self) -> bytes:
        return self._machine.cache.get_whole_object(self._build_index_name, self._read_index)

    def _read_index(self) -> bytes:
        """Return the footer if the index is missing or invalid."""
        store, key = self._source.store, self._source.key
        stored = store.get(build_index_key(key))
        if stored is not None and _is_footer(stored.body):
            return stored.body
        return read_footer(store, key, self.size)

    def _parse_footer(self, footer: bytes) -> pq.FileMetaData:
        store, entry = self._source.store, self.part_range.entry
        try:
            metadata = pq.read_metadata(pa.BufferReader(footer))
            check_part(store, entry, metadata)
        except (UserError, pa.ArrowException, OSError, ValueError):
            self._machine.cache.evict_object(self._build_index_name)
            metadata = pq.read_metadata(pa.BufferReader(read_footer(store, entry.key, self.size)))
            check_part(store, entry, metadata)
        return metadata


def _list_borders(metadata: pq.FileMetaData, size: int) -> list[int]:
    begins = [_find_first_byte(metadata, group) for group in range(1, metadata.num_row_groups)]
    return [*begins, size - metadata.serialized_size - _TAIL_BYTES]


def _find_first_byte(metadata: pq.FileMetaData, group: int) -> int:
    column = metadata.row_group(group).column(0)
    dictionary = column.dictionary_page_offset
    first: int = column.data_page_offset
    return first if dictionary is None else min(dictionary, first)


def _is_footer(body: bytes) -> bool:
    return body.endswith(_MAGIC) and parse_footer_length(body[-_TAIL_BYTES:]) == len(body)


def _release_result(future: Future[HeldBytes]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().release()


_READ_AHEAD: Final = 4
"""Chunks, or as many bytes, that a reader fetches ahead."""
_SMALL_READ_AHEAD: Final = 32
"""Maximum one-chunk segments fetched concurrently."""


def read_part_ranges(
    tier: RemoteTier | None, part_ranges: Iterable[PartRange], partition: int, selection: Selection = EVERYTHING
) -> Generator[pa.RecordBatch]:
    """Yield the selected records in order.

    Prefetching grows while the reader continues; a single old record costs one chunk.
    """
    reader = _PrefetchingReader(
        None if tier is None else get_machine_cache(tier.properties, tier.cache_folder), part_ranges
    )
    try:
        for item in reader:
            if isinstance(item, OpenSegment):
                yield from _read_segment(item, partition, selection)
            else:
                yield from read_part(item.store, item.entry, partition, item.offsets, selection)
    finally:
        reader.close()


def find_offset_in_part_since(tier: RemoteTier | None, part_range: PartRange, since_ms: int) -> int | None:
    """Return the first offset whose record is not older than a time in ms, or `None`."""
    if tier is None or not part_range.is_remote:
        return find_offset_since(part_range.store, part_range.entry, since_ms, part_range.offsets)
    segment = OpenSegment(get_machine_cache(tier.properties, tier.cache_folder), part_range)
    try:
        with translate_damage(part_range.store, part_range.entry):
            return find_offset_in_file(segment.open_file(), part_range.entry, since_ms, part_range.offsets)
    except DamagedObjectError:
        segment.evict_cached()
        return find_offset_since(part_range.store, part_range.entry, since_ms, part_range.offsets)
    finally:
        segment.close()


def _read_segment(segment: OpenSegment, partition: int, selection: Selection) -> Iterator[pa.RecordBatch]:
    part_range = segment.part_range
    rest = part_range.offsets
    try:
        with translate_damage(part_range.store, part_range.entry):
            for batch in read_open_part(
                segment.open_file(), part_range.entry, partition, part_range.offsets, selection
            ):
                rest = OffsetRange(batch.column("offset")[-1].as_py() + 1, rest.stop)
                yield batch
            return
    except DamagedObjectError as error:
        segment.evict_cached()
        damage = error
    try:
        yield from read_part(part_range.store, part_range.entry, partition, rest, selection)
    except DamagedObjectError:
        raise damage from None  # The object itself is damaged, not only its cached copy.


class _PrefetchingReader:
    """Iterates over remote segments, which it prefetches, and local parts."""

    def __init__(self, machine: MachineCache | None, part_ranges: Iterable[PartRange]) -> None:
        self._machine = machine
        self._part_ranges = iter(part_ranges)
        self._open: deque[OpenSegment] = deque()
        self._following: PartRange | None = None
        self._failed: Exception | None = None
        """Error of the iterator, raised after all earlier segments and parts."""
        self._chunks = self._iter_wanted_chunks()
        self._next: tuple[OpenSegment, ByteSpan] | None = None
        self._depth = 0

    def __iter__(self) -> Iterator[OpenSegment | PartRange]:
        self._request_more()
        while self._open:
            yield self._open[0]
            self._open.popleft().close()
            if not self._open:
                self._request_more()
        if self._failed is not None:
            raise self._failed
        if self._following is not None:
            yield self._following
        yield from self._part_ranges

    def close(self) -> None:
        while self._open:
            self._open.popleft().close()

    def _request_more(self) -> None:
        self._depth = min(2 * self._depth or 1, _SMALL_READ_AHEAD)
        while True:
            self._next = self._next or next(self._chunks, None)
            if self._next is None:
                return
            segment, span = self._next
            if segment.is_unrequested(span):
                if not self._may_request(span):
                    return
                segment.fetch_chunk(span)
            self._next = None

    def _may_request(self, span: ByteSpan) -> bool:
        outstanding = [chunk for segment in self._open for chunk in segment.outstanding]
        if self._machine is None or not outstanding:
            return True
        held = sum(chunk.length for chunk in outstanding) + span.length
        is_little = held <= _READ_AHEAD * self._machine.cache.chunk_bytes
        return is_little and len(outstanding) < self._depth and self._machine.ahead.has_left(span.length)

    def _iter_wanted_chunks(self) -> Iterator[tuple[OpenSegment, ByteSpan]]:
        segment = self._open_next()
        while segment is not None:
            following = self._open_next()  # The next segment's index is fetched while this one's chunks are.
            for span in _find_wanted_chunks(segment):
                if segment.is_unrequested(span):
                    yield segment, span
            segment = following

    def _open_next(self) -> OpenSegment | None:
        if self._machine is None or self._following is not None or self._failed is not None:
            return None
        try:
            part_range = next(self._part_ranges, None)
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            self._failed = error
            return None
        if part_range is None or not part_range.is_remote:
            self._following = part_range
            return None
        segment = OpenSegment(self._machine, part_range, self._request_more)
        self._open.append(segment)
        return segment


def _find_wanted_chunks(segment: OpenSegment) -> Iterable[ByteSpan]:
    try:
        return segment.register_wanted()
    except (ReconcilerError, pa.ArrowException, OSError, ValueError):
        return ()


@dataclass(frozen=True, slots=True)
class PartRange:
    """The offsets to read of one part or remote segment."""

    entry: Entry
    offsets: OffsetRange
    store: ObjectStore
    is_remote: bool


def _accept_any(_head: Head | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class TopicTiers:
    """Locations of a topic's records, from one read of the catalog.

    Offsets below the head's local start are read remotely.
    """

    store: ObjectStore
    topic_id: str
    remote: RemoteTier | None
    location: TopicLocation | None
    """Remote location; `None` if the topic was deleted."""
    is_hiding: bool
    """Whether readers see only the local tier."""
    storage_id: str | None
    check_open: Callable[[Head | None], None] = _accept_any
    """Raises if the head is closed; gets `None` if missing."""

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        catalog: Catalog,
        topic: tuple[str, str],
        remote: RemoteTier | None,
        check_open: Callable[[Head | None], None] = _accept_any,
    ) -> TopicTiers:
        """Find a topic by id and last known name."""
        full_name, topic_id = topic
        name = find_current_name(catalog, topic_id, full_name)
        entry = catalog.topics.get(name)
        location = None if entry is None or remote is None else find_read_location(name, entry, remote.cluster_id)
        is_hiding, storage_id = hides_remote_records(catalog, name), catalog.cluster.storage_id
        return cls(store, topic_id, remote, location, is_hiding, storage_id, check_open)

    def limit_bounds(self, bounds: Bounds) -> Bounds:
        """Return a partition's bounds without hidden records."""
        return bounds.limit_to_local() if self.is_hiding else bounds

    def iter_part_ranges(
        self, partition: int, offsets: OffsetRange, isolation: Isolation, *, since_ms: int | None = None
    ) -> Iterator[PartRange]:
        """Yield the parts and segments with readable records of a range, oldest first."""
        head = read_head(self.store, self.topic_id, partition)
        self.check_open(head)
        if head is None:
            return
        bounds = self.limit_bounds(head.bounds)
        wanted = OffsetRange(max(offsets.start, bounds.start), min(offsets.stop, bounds.find_readable_end(isolation)))
        below = OffsetRange(wanted.start, min(wanted.stop, head.local_start))
        if below.length:
            storage, manifest = self._read_manifest(partition, below, head)
            # A replica's source may have deleted records below the manifest's start.
            below = OffsetRange(max(below.start, min(below.stop, manifest.start)), below.stop)
            yield from _iter_part_ranges(storage, manifest, below, since_ms, is_remote=True)
            self._check_end(partition, manifest, below, head)
        above = OffsetRange(max(wanted.start, head.local_start), wanted.stop)
        if above.length:
            yield from _iter_part_ranges(self.store, head, above, since_ms, is_remote=False)

    def _check_end(self, partition: int, manifest: Manifest, wanted: OffsetRange, head: Head) -> None:
        if manifest.end >= wanted.stop or self.remote is None or self.location is None:
            return
        if head.writer == REPLICA and has_dropped_remote(head, manifest):
            message = (
                f"partition {partition}: its source {self.location} deleted its records in object storage (onDisable: "
                f"delete), and this read replica still shows {head.end} offsets of it"
            )
            raise UserError(message, hint=_FOLLOW_HINT)
        key = remote_partition(self.location, partition).key
        first = max(wanted.start, manifest.end)
        raise missing_offsets_error(self.remote.storage, key, first, wanted.stop - 1, end=manifest.end)

    def _read_manifest(self, partition: int, wanted: OffsetRange, head: Head) -> tuple[ObjectStore, Manifest]:
        if self.remote is None or self.location is None:
            message = f"offsets {wanted.start} to {wanted.stop - 1} are in object storage, which is not configured here"
            raise UserError(message, hint="Open the cluster with its object storage (spec.objectStorage).")
        storage, place = self.remote.storage, remote_partition(self.location, partition)
        manifest = read_manifest(storage, place)
        if manifest is None:
            check_storage(storage, self.storage_id)
        if manifest is not None and head.writer == REPLICA:
            self._check_source(manifest, head, partition)
            return storage, manifest
        if manifest is None and head.writer == REPLICA:
            error = missing_offsets_error(storage, place.key, wanted.start, wanted.stop - 1)
            error.hint = f"The source {self.location} of this read replica was deleted, or its manifest is lost."
            raise error
        if manifest is None or manifest.start > wanted.start:
            stop = wanted.stop if manifest is None else min(wanted.stop, manifest.start)
            raise missing_offsets_error(storage, place.key, wanted.start, stop - 1)
        return storage, manifest

    def _check_source(self, manifest: Manifest, head: Head, partition: int) -> None:
        agreed = find_same_log_end(head, manifest)
        if agreed < head.end:
            message = (
                f"partition {partition}: the source {self.location} was cut at offset {agreed} and continues with "
                f"other records; this read replica still shows {head.end} offsets of it"
            )
            raise UserError(message, hint=_FOLLOW_HINT)


def _iter_part_ranges(
    store: ObjectStore, held: PagedEntries, offsets: OffsetRange, since_ms: int | None, *, is_remote: bool
) -> Iterator[PartRange]:
    for entry in iter_entries_within(store, held, offsets, since_ms=since_ms):
        cut = OffsetRange(max(entry.base, offsets.start), min(entry.last + 1, offsets.stop))
        yield PartRange(entry, cut, store, is_remote)
