"""The read cache of remote segments: chunks, room and trimming."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

import xxhash

from reconciler.embedded.tiered.cache_files import (
    CachedFile,
    Flights,
    Hydrated,
    Limits,
    Needs,
    Rule,
    Span,
    Usage,
    chunks_of,
    evict,
    is_held,
    limits_of,
    stored_bytes,
    usable_folder,
    write_cached,
)
from reconciler.resources.cluster_properties import property_of
from reconciler.runtime.effects import note

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


CHUNKS: Final = "_chunks"
"""Ends the name of the folder a segment's chunks lie in."""
_BYTES_IN_NAME: Final = 2
"""Which part of a segment's name says how many bytes it has."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the cache."""

    path: str
    bytes: int
    used_ns: int

    @property
    def segment(self) -> str:
        """The path that all files of its segment share."""
        folder = self.path.rpartition("/")[0]
        stem = folder.removesuffix(CHUNKS) if folder.endswith(CHUNKS) else self.path
        return stem.removesuffix(".parquet").removesuffix(".index")


@dataclass(slots=True)
class Trim:
    """One trim, to a target; `left` is what the cache takes then."""

    rule: Rule
    chunk_bytes: int
    target: Usage
    left: Usage
    needs: Callable[[str], Mapping[int, int]]
    """Path of a segment → first byte of a chunk → how many readers of this process will come to it."""
    evicted: list[str] = field(default_factory=list)

    def run(self, lying: list[ListedFile]) -> None:
        """Let the strategy have its part of each segment, the one used longest ago first; then whatever is oldest."""
        segments: defaultdict[str, list[ListedFile]] = defaultdict(list)
        for each in lying:
            segments[each.segment].append(each)
        by_age = sorted(segments, key=lambda name: (max(each.used_ns for each in segments[name]), name))
        for name in by_age:
            if self.is_done:
                return
            for each in self._chosen(name, segments[name]):
                self._evict(each)
            self._forget_index(segments[name])
        gone = set(self.evicted)
        for each in sorted(lying, key=lambda each: (each.used_ns, each.path)):
            if self.is_done:
                return
            if each.path not in gone:
                self._evict(each)

    def _chosen(self, segment: str, files: list[ListedFile]) -> Iterator[ListedFile]:
        """Yield what the strategy takes of a segment's chunks."""
        chunks = {int(name): each for each in files if (name := Path(each.path).name).isdecimal()}
        needed = self.needs(segment)
        hydrated = [
            Hydrated(start, each.used_ns, is_held(each.path), needed.get(start, 0))
            for start, each in sorted(chunks.items())
        ]
        total = max(len(hydrated), -(-stored_bytes_in(segment) // self.chunk_bytes))
        yield from (chunks[each.start] for each in self.rule.evicted(hydrated, total))

    def _forget_index(self, files: list[ListedFile]) -> None:
        """Evict what stands beside a segment of which nothing is left."""
        gone = set(self.evicted)
        rest = [each for each in files if each.path not in gone]
        if files and len(rest) < len(files) and all(each.path.endswith(".index") for each in rest):
            for each in rest:
                self._evict(each)

    def _evict(self, each: ListedFile) -> None:
        if evict(each.path):
            self.evicted.append(each.path)
            self.left = Usage(self.left.bytes - each.bytes, self.left.objects - 1)
            with suppress(OSError):  # It is not empty, or gone.
                Path(each.path).parent.rmdir()

    @property
    def is_done(self) -> bool:
        """Whether no more than the target is left."""
        return self.left.bytes <= self.target.bytes and self.left.objects <= self.target.objects


def stored_bytes_in(segment: str) -> int:
    """Return how many bytes a segment has, by its name; 0 where the name does not say."""
    pieces = Path(segment).name.split("-")
    is_named = len(pieces) > _BYTES_IN_NAME and pieces[_BYTES_IN_NAME].isdecimal()
    return int(pieces[_BYTES_IN_NAME]) if is_named else 0


def walk(folder: str, at_once: int = 1) -> list[ListedFile]:
    """Return every file of a cache; so many folders are listed at once."""
    found: list[ListedFile] = []
    folders = [folder]
    with ThreadPoolExecutor(at_once, thread_name_prefix="walk") as pool:
        while folders:
            listed = list(map(_listed, folders) if at_once == 1 else pool.map(_listed, folders))
            folders = [each for below, _ in listed for each in below]
            found += (each for _, files in listed for each in files)
    return found


def _listed(folder: str) -> tuple[list[str], list[ListedFile]]:
    """Return the folders and the files in a folder; neither where it is gone."""
    folders: list[str] = []
    files: list[ListedFile] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                with suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    files.append(ListedFile(entry.path, seen.st_size, seen.st_mtime_ns))
    return folders, files


def usage_of(lying: list[ListedFile]) -> Usage:
    """Sum up what files take."""
    return Usage(sum(each.bytes for each in lying), len(lying))


# Room in the cache: what it takes is known from the last walk and what was added since. When full it is trimmed.
#
# How old that knowledge is the file system's own clock says. Several processes share one folder: each knows what it
# added itself, and learns the rest from its next walk.


_NS_PER_MS: Final = 1_000_000
_WALKERS: Final = "cloud_storage_cache_trim_walk_concurrency"
_LOGGER: Final = logging.getLogger("reconciler.cache")


@dataclass(frozen=True, slots=True)
class Place:
    """A cache folder, and below it: what is cached, what is being written, and who trims."""

    folder: Path

    @property
    def files(self) -> str:
        """Below it lies what is cached, under the keys of object storage."""
        return f"{self.folder}/files"

    @property
    def drafts(self) -> str:
        """What is being written."""
        return f"{self.folder}/drafts"

    def make(self) -> None:
        """Make the folder, or make it anew.

        Raises:
            OSError: The disk refuses it.
        """
        Path(self.drafts).mkdir(mode=0o700, parents=True, exist_ok=True)


class Room:
    """Keeps a cache within its limits. Safe to share between threads."""

    def __init__(self, place: Place, properties: Mapping[str, str], needs: Callable[[str], Mapping[int, int]]) -> None:
        self._place = place
        self._limits = limits_of(properties, shutil.disk_usage(place.folder).total)
        self._rule = Rule.of(properties)
        self._chunk_bytes = int(property_of(properties, "cloud_storage_cache_chunk_size") or 0)
        self._interval_ns = int(property_of(properties, "cloud_storage_cache_check_interval_ms") or 0) * _NS_PER_MS
        self._at_once = int(property_of(properties, _WALKERS) or 1)
        self._most_carried = int(property_of(properties, "cloud_storage_cache_trim_carryover_bytes") or 0)
        self._needs = needs
        self._lock = threading.Lock()
        self._used: Usage | None = None
        self._walked_ns = 0
        self._carried: list[ListedFile] = []
        """What the last walk listed and its trim left, those first that were used longest ago."""

    @property
    def limits(self) -> Limits:
        """What the cache may take."""
        return self._limits

    def take(self, size: int) -> bool:
        """Say that a file of so many bytes is about to be written; tell whether there is room for it.

        Raises:
            OSError: The folder cannot be looked at.
        """
        with self._lock:
            used = self._used
            if used is None or self._is_old():
                used = usage_of(self._walked())
            wanted = Usage(used.bytes + size, used.objects + 1)
            if self._limits.target(wanted) is not None:
                used = self._trimmed(size, used)
                wanted = Usage(used.bytes + size, used.objects + 1)
            fits = wanted.bytes <= self._limits.most.bytes and wanted.objects <= self._limits.most.objects
            self._used = wanted if fits else used
            return fits

    def _is_old(self) -> bool:
        """Tell whether the last walk is longer ago than the interval of checks; the last write says what time it is."""
        return self._written_ns() - self._walked_ns >= self._interval_ns

    def _written_ns(self) -> int:
        return Path(self._place.drafts).stat().st_mtime_ns

    def _walked(self) -> list[ListedFile]:
        self._walked_ns = self._written_ns()
        return walk(str(self._place.folder), self._at_once)

    def _trimmed(self, size: int, used: Usage) -> Usage:
        """Trim so that a file of so many bytes has room, and return what is left.

        What an earlier walk listed goes first; only where that is not enough, everything is listed anew.
        """
        if self._carried:
            carried, self._carried = self._carried, []
            trim = self._trim(self._target(size, used) or used, used)
            trim.run([each for each in carried if _is_as_listed(each)])
            if self._target(size, trim.left) is None:
                self._end(trim, "cache_trim_carryover_trims", used)
                self._carry(carried, trim)
                return trim.left
        lying = self._walked()
        used = usage_of(lying)
        target = self._target(size, used)
        if target is None:
            return used
        trim = self._trim(target, used)
        trim.run(lying)
        self._end(trim, "cache_trim_exhaustive_trims", used)
        if not trim.is_done:
            count_of_cache("cache_trim_failed_trims")
        self._carry(sorted(lying, key=lambda each: (each.used_ns, each.path)), trim)
        return trim.left

    def _trim(self, target: Usage, used: Usage) -> Trim:
        return Trim(self._rule, self._chunk_bytes, target, used, self._needs)

    def _target(self, size: int, used: Usage) -> Usage | None:
        """Return what may stay so that a file of so many bytes has room; `None`: it has."""
        target = self._limits.target(Usage(used.bytes + size, used.objects + 1))
        return None if target is None else Usage(target.bytes - size, target.objects - 1)

    def _end(self, trim: Trim, name: str, used: Usage) -> None:
        count_of_cache(name)
        note(_LOGGER, "trimmed", evicted=len(trim.evicted), bytes=used.bytes - trim.left.bytes, left=trim.left.bytes)

    def _carry(self, listed: list[ListedFile], trim: Trim) -> None:
        """Keep what is left of a listing for the next trim, as far as its memory goes."""
        gone, room = set(trim.evicted), self._most_carried
        for each in listed:
            room -= sys.getsizeof(each) + sys.getsizeof(each.path)
            if room < 0:
                return
            if each.path not in gone:
                self._carried.append(each)


def _is_as_listed(each: ListedFile) -> bool:
    """Tell whether a file is still as it was listed: nobody has used it since."""
    try:
        return Path(each.path).stat(follow_symlinks=False).st_mtime_ns == each.used_ns
    except OSError:
        return False


# What the caches tell a monitoring system: what this process asked of them, and what they take on this machine.


_ANOMALIES: Final = "cache_anomalies"
_LOCK: Final = Lock()
_COUNTS: Final[Counter[str]] = Counter()
"""Of this process: the caches of a machine are one for everybody, as `machine` has them."""


def count_of_cache(name: str) -> None:
    """Count what a cache did, by the names of `resources.vitals.COUNTED`. Safe from any thread."""
    with _LOCK:
        _COUNTS[name] += 1


def taken_of_caches() -> Mapping[str, int]:
    """Return what was counted since this was last asked."""
    with _LOCK:
        counts = dict(_COUNTS)
        _COUNTS.clear()
    return counts


def cache_levels(properties: Mapping[str, str], default_folder: str | None) -> Mapping[str, float]:
    """Return what the cache takes on this machine, by the names of `resources.vitals.LEVELS`: one walk of its folder.

    Raises:
        UserError: The properties declare no full path.
    """
    folder = usable_folder(properties, default_folder)
    if folder is None:
        return {}
    lying = walk(str(folder), int(property_of(properties, _WALKERS) or 1))
    used = usage_of(lying)
    segments = {each.segment for each in lying}
    return {
        "active_segments": len(segments),
        "cache_space_size_bytes": used.bytes,
        "cache_space_files": used.objects,
        "readers": sum(is_held(each.path) for each in lying),
    }


# The cache: whoever wants bytes of a segment gets them from the disk, else from object storage, and leaves them there.
#
# No fault of the disk is a fault of a read: a folder that is deleted, full, not writable or damaged only costs time.


T = TypeVar("T")


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


class HeldBytes:
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

    def chunk(self, source: Source, span: Span, chunks: int) -> HeldBytes:
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
        """Evict an object, whole and in chunks: what is in it is not what it should be."""
        if self._place is None:
            return
        evict(self._path(name))
        with suppress(OSError):  # It has no chunks here.
            for path in Path(self._path(f"{name}{CHUNKS}")).iterdir():
                evict(str(path))

    def _kept(self, path: str, size: int | None, fetch: Callable[[], bytes]) -> HeldBytes:
        with self._flights.alone(path):
            found = self._opened(path, size)
            held = None if found is None else _held(path, found, Span(0, found.size))
            if held is not None:
                count_of_cache("cache_op_hit")
                return held
            count_of_cache("cache_op_miss")
            body = fetch()
            return HeldBytes(body, self._written(path, len(body), lambda: [body]))

    def _of_whole(self, source: Source, span: Span) -> HeldBytes:
        """Return bytes of a segment that is kept in one file; fetched in pieces, so that memory stays bounded."""
        path = self._path(source.name)
        with self._flights.alone(path):
            file = self._opened(path, source.size)
            count_of_cache("cache_op_miss" if file is None else "cache_op_hit")
            file = file or self._written(path, source.size, lambda: self._pieces(source))
        held = None if file is None else _held(path, file, span)
        return HeldBytes(source.fetch(span)) if held is None else held

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
            count_of_cache(_ANOMALIES)
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


def _held(path: str, file: CachedFile, span: Span) -> HeldBytes | None:
    """Return bytes of a file and hold it; `None`: it is damaged, and evicted for that."""
    content = file.read(span.start, span.length)
    if content is not None:
        return HeldBytes(content, file)
    file.close()
    note(_LOGGER, "damaged", path=path)
    count_of_cache(_ANOMALIES)
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


# The caches of this process: one for each place and set of properties, with the threads that fetch for it.


_MOST_THREADS: Final = 8
_AHEAD_CHUNKS: Final = 16
"""What all readers of a process may have fetched ahead, in chunks."""


@dataclass(slots=True)
class Allowance:
    """Bytes that may be fetched ahead. Safe to share between threads."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, count: int) -> bool:
        """Tell whether there are so many left."""
        return self.left >= count

    def give(self, count: int) -> None:
        """Give bytes back, or (a negative count) take them: what is wanted now is taken also where none are left."""
        with self._lock:
            self.left += count


@dataclass(frozen=True, slots=True)
class Machine:
    """A cache as one process uses it."""

    cache: ChunkCache
    pool: ThreadPoolExecutor
    ahead: Allowance


_MACHINES: Final[dict[tuple[object, ...], Machine]] = {}
_CACHES_LOCK: Final = threading.Lock()


def machine_of(properties: Mapping[str, str], folder: str | None) -> Machine:
    """Return the cache that properties ask for, in this process: a fork must not share its parent's threads.

    Raises:
        UserError: The properties cannot be.
    """
    key = (os.getpid(), folder, *sorted(properties.items()))
    with _CACHES_LOCK:
        found = _MACHINES.get(key)
        if found is None:
            cache = ChunkCache(properties, folder)
            threads = min(_MOST_THREADS, int(property_of(properties, "cloud_storage_max_connections") or 1))
            pool = ThreadPoolExecutor(threads, thread_name_prefix="chunks")
            found = _MACHINES[key] = Machine(cache, pool, Allowance(_AHEAD_CHUNKS * cache.chunk_bytes))
        return found
