"""One remote segment being read: which of its chunks are wanted, which are on their way, and the file they make."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.partfiles import check_part, groups_within
from reconciler.embedded.remote.cache.chunks import Source, name_in
from reconciler.embedded.remote.cache.layout import Span, touched
from reconciler.embedded.remote.manifests.segmentfiles import footer_bytes, footer_of
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from reconciler.embedded.partition.tiers import Piece
    from reconciler.embedded.remote.cache.chunks import Held
    from reconciler.embedded.remote.cache.machine import Machine

_MAGIC: Final = b"PAR1"
_TAIL: Final = 8


class OpenSegment:
    """A segment, as far as one reader wants it. Not shared between threads."""

    def __init__(self, machine: Machine, piece: Piece, on_step: Callable[[], None] = lambda: None) -> None:
        """Nothing is fetched yet but the index, on its way where the segment has several chunks.

        `on_step` is called before a chunk is waited for: then it is time to request others.
        """
        self.piece = piece
        self._machine = machine
        self._on_step = on_step
        self._source = Source(piece.store, piece.entry.key, piece.entry.bytes)
        is_one = piece.entry.bytes <= machine.cache.chunk_bytes
        self._index: Future[bytes] | None = None if is_one else machine.pool.submit(self._fetched_index)
        self._metadata: pq.FileMetaData | None = None
        self._chunks: Sequence[Span] = (Span(0, piece.entry.bytes),) if is_one else ()
        self._coming: dict[Span, Future[Held]] = {}
        self._held: dict[Span, Held] = {}
        self._seen: set[Span] = set()
        self._needed: set[int] = set()
        self._is_closed = False

    @property
    def outstanding(self) -> Iterable[Span]:
        """The chunks that are here, or on their way."""
        return (*self._coming, *self._held)

    def may_want(self, span: Span) -> bool:
        """Tell whether a chunk was never asked for, and may be."""
        return not self._is_closed and span not in self._seen

    def wanted(self) -> Sequence[Span]:
        """Return the chunks that hold what is wanted of it, and tell others that we shall come to them.

        Raises:
            MissingObjectError: The segment is not there.
            UserError: It is damaged.
        """
        chunks = self._laid_out()
        if self._metadata is not None:
            groups = groups_within(self._metadata, self.piece.entry, self.piece.offsets)
            borders = [0, *_borders(self._metadata, self._source.size)]
            wanted = Span(borders[groups[0]], borders[groups[-1] + 1]) if groups else Span(0, 0)
            chunks = touched(chunks, wanted)
        self._needed = {chunk.start for chunk in chunks}
        self._machine.cache.needs.add(self._source.name, self._needed)
        return chunks

    def request(self, span: Span) -> Future[Held]:
        """Let a chunk be fetched, whatever was fetched ahead already: it is wanted now."""
        self._machine.ahead.give(-span.length)
        self._seen.add(span)
        cache, chunks = self._machine.cache, len(self._chunks)
        self._coming[span] = future = self._machine.pool.submit(cache.chunk, self._source, span, chunks)
        return future

    def open(self) -> pq.ParquetFile:
        """Return it as a file of which only what is read is fetched.

        Raises:
            MissingObjectError: It is not there.
            UserError: It is damaged.
        """
        self._laid_out()
        if self._metadata is not None:
            return pq.ParquetFile(pa.PythonFile(_SegmentFile(self), mode="r"), metadata=self._metadata)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._taken(self._chunks[0]))))
        check_part(self._source.store, self.piece.entry, file.metadata)
        return file

    def read(self, start: int, length: int) -> bytes | memoryview:
        """Return bytes of it; chunks that end before them are let go."""
        pieces: list[memoryview] = []
        for span in touched(self._chunks, Span(start, start + length)):
            self._let_go(below=max(start, span.start))
            pieces.append(self._taken(span)[max(start - span.start, 0) : start + length - span.start])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._source.size

    def close(self) -> None:
        """Let everything go, also what is still on its way."""
        self._is_closed = True
        self._machine.cache.needs.remove(self._source.name, self._needed)
        self._needed = set()
        for span, future in self._coming.items():
            self._machine.ahead.give(span.length)
            if not future.cancel():
                future.add_done_callback(_released)
        self._coming.clear()
        self._let_go(below=self.size)

    def _laid_out(self) -> Sequence[Span]:
        if self._index is not None and self._metadata is None:
            self._metadata = self._parsed(self._index.result())
            self._chunks = self._machine.cache.chunks(self.size, _borders(self._metadata, self.size)[:-1])
        return self._chunks

    def _taken(self, span: Span) -> memoryview:
        held = self._held.get(span)
        if held is None:
            self._on_step()
            coming = self._coming.get(span)
            if coming is None:  # It was let go before, and is wanted again.
                coming = self.request(span)
            held = coming.result()
            del self._coming[span]
            self._held[span] = held
        if span.start in self._needed:
            self._needed.remove(span.start)
            self._machine.cache.needs.remove(self._source.name, [span.start])
        return held.content

    def _let_go(self, *, below: int) -> None:
        for span in [span for span in self._held if span.stop <= below]:
            self._held.pop(span).release()
            self._machine.ahead.give(span.length)

    @property
    def _index_name(self) -> str:
        return name_in(self._source.store, index_key(self._source.key))

    def _fetched_index(self) -> bytes:
        return self._machine.cache.small(self._index_name, self._index_object)

    def _index_object(self) -> bytes:
        """Return the index; where it is not there, or none, the segment's own footer does as well."""
        store, key = self._source.store, self._source.key
        stored = store.get(index_key(key))
        if stored is not None and _is_footer(stored.body):
            return stored.body
        return footer_of(store, key, self.size)

    def _parsed(self, footer: bytes) -> pq.FileMetaData:
        """Return what a footer says; one that is not this segment's is forgotten for the segment's own."""
        store, entry = self._source.store, self.piece.entry
        try:
            found = pq.read_metadata(pa.BufferReader(footer))
            check_part(store, entry, found)
        except (UserError, pa.ArrowException, OSError, ValueError):
            self._machine.cache.forget(self._index_name)
            found = pq.read_metadata(pa.BufferReader(footer_of(store, entry.key, self.size)))
            check_part(store, entry, found)
        return found


class _SegmentFile(io.RawIOBase):
    """A segment as Arrow wants it: something to seek in and to read from."""

    def __init__(self, segment: OpenSegment) -> None:
        super().__init__()
        self._segment = segment
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._segment.size}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = self._segment.size - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted <= 0:
            return b""
        found = self._segment.read(self._position, wanted)
        self._position += wanted
        return found  # type: ignore[return-value]  # Arrow takes any buffer, and a view spares a copy


def _borders(found: pq.FileMetaData, size: int) -> list[int]:
    """Return where each row group of a segment ends."""
    begins = [_first_byte(found, group) for group in range(1, found.num_row_groups)]
    return [*begins, size - found.serialized_size - _TAIL]


def _first_byte(found: pq.FileMetaData, group: int) -> int:
    column = found.row_group(group).column(0)
    dictionary = column.dictionary_page_offset
    first: int = column.data_page_offset
    return first if dictionary is None else min(dictionary, first)


def _is_footer(body: bytes) -> bool:
    return body.endswith(_MAGIC) and footer_bytes(body[-_TAIL:]) == len(body)


def _released(future: Future[Held]) -> None:
    """Let a chunk go that came too late."""
    if not future.cancelled() and future.exception() is None:
        future.result().release()
