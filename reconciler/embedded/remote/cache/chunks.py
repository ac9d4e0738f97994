"""The cache: whoever wants bytes of a segment gets them from the disk, else from object storage, and leaves them there.

No fault of the disk is a fault of a read: a folder that is deleted, full, not writable or damaged only costs time.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import xxhash

from reconciler.embedded.remote.cache.files import CachedFile, evict, is_held, stored_bytes, write_cached
from reconciler.embedded.remote.cache.flights import Flights
from reconciler.embedded.remote.cache.folder import usable_folder
from reconciler.embedded.remote.cache.instruments import count_of_cache
from reconciler.embedded.remote.cache.layout import Span, chunks_of
from reconciler.embedded.remote.cache.needs import Needs
from reconciler.embedded.remote.cache.room import Place, Room
from reconciler.embedded.remote.cache.strategies import Hydrated, Rule
from reconciler.embedded.remote.cache.trimming import CHUNKS
from reconciler.noting import note
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reconciler.objectstore.base import ObjectStore

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("reconciler.cache")


@dataclass(frozen=True, slots=True)
class Source:
    """An object of object storage, which never changes under its key."""

    store: ObjectStore
    key: str
    size: int

    @property
    def name(self) -> str:
        """What it is called in the cache: several storages may share one, and have objects of one key."""
        return name_in(self.store, self.key)

    def fetch(self, span: Span) -> bytes:
        """Return bytes of it.

        Raises:
            MissingObjectError: It is not there.
            ValueError: It is shorter than it was.
        """
        found = self.store.get_range(self.key, span.start, span.length)
        if len(found) != span.length:
            message = f"it ends at byte {span.start + len(found)}, not {self.size}"
            raise ValueError(message)
        return found


def name_in(store: ObjectStore, key: str) -> str:
    """Return what an object is called in the cache."""
    return f"{xxhash.xxh3_64_hexdigest(store.url.encode())}/{key}"


class Held:
    """Bytes that were asked for. While they are held, the file they lie in is not evicted."""

    def __init__(self, content: bytes | memoryview, file: CachedFile | None = None) -> None:
        self.content = memoryview(content)
        self._file = file

    def release(self) -> None:
        """Let the file go; the bytes stay. May be called twice."""
        if self._file is not None:
            self._file.close()


class ChunkCache:
    """The cache of one machine, as one process uses it. Safe to share between threads."""

    def __init__(self, properties: Mapping[str, str], default_folder: str | None) -> None:
        """Find a place for it; without one everything is fetched, and nothing kept.

        Raises:
            UserError: The properties declare no full path, or no size.
        """
        self.chunk_bytes = int(property_of(properties, "cloud_storage_cache_chunk_size") or 0)
        self._is_whole = property_of(properties, "cloud_storage_disable_chunk_reads") == "true"
        self._rule = Rule.of(properties)
        self.needs = Needs()
        self._flights = Flights()
        self._room: Room | None = None
        folder = usable_folder(properties, default_folder)
        self._place = None if folder is None else Place(folder)
        if self._place is not None:
            with suppress(OSError):
                self._place.make()
                self._room = Room(self._place, properties, self._needed)

    def chunks(self, size: int, borders: Iterable[int]) -> tuple[Span, ...]:
        """Return the chunks of a segment of so many bytes whose row groups end at `borders`."""
        return chunks_of(borders, size, self.chunk_bytes)

    def chunk(self, source: Source, span: Span, chunks: int) -> Held:
        """Return one of a segment's `chunks`, and hold it.

        Raises:
            MissingObjectError: It has to be fetched, and its object is not there.
            ValueError: Its object is shorter than it was.
        """
        if self._is_whole:
            return self._of_whole(source, span)
        path = self._path(f"{source.name}{CHUNKS}/{span.start}")
        held = self._kept(path, span.length, lambda: source.fetch(span))
        self._keep_few(source.name, chunks)
        return held

    def small(self, name: str, fetch: Callable[[], bytes]) -> bytes:
        """Return an object that is kept whole, whatever its size; `fetch` gets it where it is not here."""
        held = self._kept(self._path(name), None, fetch)
        held.release()
        return bytes(held.content)

    def forget(self, name: str) -> None:
        """Evict an object that was kept whole: what is in it is not what it should be."""
        evict(self._path(name))

    def _kept(self, path: str, size: int | None, fetch: Callable[[], bytes]) -> Held:
        with self._flights.alone(path):
            found = self._opened(path, size)
            held = None if found is None else _held(path, found, Span(0, found.size))
            if held is not None:
                count_of_cache("cache_op_hit")
                return held
            count_of_cache("cache_op_miss")
            body = fetch()
            return Held(body, self._written(path, len(body), lambda: [body]))

    def _of_whole(self, source: Source, span: Span) -> Held:
        """Return bytes of a segment that is kept in one file; fetched in pieces, so that memory stays bounded."""
        path = self._path(source.name)
        with self._flights.alone(path):
            file = self._opened(path, source.size)
            count_of_cache("cache_op_miss" if file is None else "cache_op_hit")
            file = file or self._written(path, source.size, lambda: self._pieces(source))
        held = None if file is None else _held(path, file, span)
        return Held(source.fetch(span)) if held is None else held

    def _pieces(self, source: Source) -> Iterator[bytes]:
        for start in range(0, source.size, self.chunk_bytes):
            yield source.fetch(Span(start, min(start + self.chunk_bytes, source.size)))

    def _opened(self, path: str, size: int | None) -> CachedFile | None:
        file = None if self._room is None else CachedFile.open(path)
        if file is not None and size is not None and file.size != size:
            file.close()  # It was cut by another size of chunks.
            return None
        return file

    def _written(self, path: str, size: int, pieces: Callable[[], Iterable[bytes]]) -> CachedFile | None:
        """Put a file into the cache and hold it; `None`: there is no room for it, or the disk refuses it."""
        room, place = self._room, self._place
        if room is None or place is None:
            return None
        try:
            return _again_in(
                place, lambda: write_cached(place.drafts, path, pieces()) if room.take(stored_bytes(size)) else None
            )
        except OSError as error:
            note(_LOGGER, "not cached", path=path, why=str(error))
            return None

    def _keep_few(self, name: str, chunks: int) -> None:
        """Leave no more of a segment than its strategy has it; `eager` leaves all until the cache is trimmed."""
        most = self._rule.most(chunks)
        if self._rule.strategy == "eager" or self._room is None or most >= chunks:
            return
        folder = Path(self._path(f"{name}{CHUNKS}"))
        with suppress(OSError):
            paths = {int(path.name): path for path in folder.iterdir() if path.name.isdecimal()}
            if len(paths) > most:
                needed = self.needs.of(name)
                hydrated = [_hydrated(path, start, needed) for start, path in sorted(paths.items())]
                for chunk in self._rule.evicted(hydrated, chunks):
                    evict(str(paths[chunk.start]))

    def _needed(self, segment: str) -> Mapping[int, int]:
        """Return who needs what of the segment whose files begin with a path."""
        return self.needs.of(f"{segment.removeprefix(self._path(''))}.parquet")

    def _path(self, name: str) -> str:
        return name if self._place is None else f"{self._place.files}/{name}"


def _held(path: str, file: CachedFile, span: Span) -> Held | None:
    """Return bytes of a file and hold it; `None`: it is damaged, and evicted for that."""
    content = file.read(span.start, span.length)
    if content is not None:
        return Held(content, file)
    file.close()
    note(_LOGGER, "damaged", path=path)
    evict(path)
    return None


def _hydrated(path: Path, start: int, needed: Mapping[int, int]) -> Hydrated:
    return Hydrated(start, path.stat().st_mtime_ns, is_held(str(path)), needed.get(start, 0))


def _again_in(place: Place, do: Callable[[], T]) -> T:
    """Do something in the folder of a cache; where somebody deleted that, once more in a new one."""
    try:
        return do()
    except FileNotFoundError:
        place.make()
        return do()
