"""The read cache of remote segments."""

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
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

import xxhash

from reconciler.embedded.tiered.cache_files import (
    ByteSpan,
    CachedFile,
    CacheLimits,
    CacheUsage,
    EvictionRule,
    HydratedChunk,
    NamedLocks,
    PendingReaders,
    compute_file_size,
    divide_into_chunks,
    evict_file,
    find_cache_folder,
    is_held,
    read_cache_limits,
    write_cached_file,
)
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.effects import log_debug

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


CHUNKS_SUFFIX: Final = "_chunks"
_SIZE_FIELD: Final = 2


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file listed in the cache folder."""

    path: str
    bytes: int
    used_ns: int

    @property
    def segment(self) -> str:
        """Path prefix of the segment's files."""
        folder = self.path.rpartition("/")[0]
        stem = folder.removesuffix(CHUNKS_SUFFIX) if folder.endswith(CHUNKS_SUFFIX) else self.path
        return stem.removesuffix(".parquet").removesuffix(".index")


@dataclass(slots=True)
class CacheTrim:
    """Evicts cached files down to a target usage; `left` is the current usage."""

    rule: EvictionRule
    chunk_bytes: int
    target: CacheUsage
    left: CacheUsage
    needs: Callable[[str], Mapping[int, int]]
    """Returns pending readers of a segment in this process, by first byte of a chunk."""
    evicted: list[str] = field(default_factory=list)

    def run(self, files: list[ListedFile]) -> None:
        """Evict chunks by the eviction strategy, then the least recently used files."""
        segments: defaultdict[str, list[ListedFile]] = defaultdict(list)
        for file in files:
            segments[file.segment].append(file)
        by_age = sorted(segments, key=lambda name: (max(file.used_ns for file in segments[name]), name))
        for name in by_age:
            if self.is_done:
                return
            for file in self._select_chunks_to_evict(name, segments[name]):
                self._evict(file)
            self._evict_orphaned_index(segments[name])
        gone = set(self.evicted)
        for file in sorted(files, key=lambda file: (file.used_ns, file.path)):
            if self.is_done:
                return
            if file.path not in gone:
                self._evict(file)

    def _select_chunks_to_evict(self, segment: str, files: list[ListedFile]) -> Iterator[ListedFile]:
        chunks = {int(name): file for file in files if (name := Path(file.path).name).isdecimal()}
        needed = self.needs(segment)
        hydrated = [
            HydratedChunk(start, file.used_ns, is_held(file.path), needed.get(start, 0))
            for start, file in sorted(chunks.items())
        ]
        total = max(len(hydrated), -(-parse_stored_bytes(segment) // self.chunk_bytes))
        yield from (chunks[file.start] for file in self.rule.select_chunks_to_evict(hydrated, total))

    def _evict_orphaned_index(self, files: list[ListedFile]) -> None:
        gone = set(self.evicted)
        rest = [file for file in files if file.path not in gone]
        if files and len(rest) < len(files) and all(file.path.endswith(".index") for file in rest):
            for file in rest:
                self._evict(file)

    def _evict(self, file: ListedFile) -> None:
        if evict_file(file.path):
            self.evicted.append(file.path)
            self.left = CacheUsage(self.left.bytes - file.bytes, self.left.objects - 1)
            with suppress(OSError):
                Path(file.path).parent.rmdir()

    @property
    def is_done(self) -> bool:
        """Whether the target is reached."""
        return self.left.bytes <= self.target.bytes and self.left.objects <= self.target.objects


def parse_stored_bytes(segment: str) -> int:
    """Return the bytes stated in a segment's name, or 0."""
    pieces = Path(segment).name.split("-")
    is_named = len(pieces) > _SIZE_FIELD and pieces[_SIZE_FIELD].isdecimal()
    return int(pieces[_SIZE_FIELD]) if is_named else 0


def list_cache_files(folder: str, at_once: int = 1) -> list[ListedFile]:
    """List a cache's files, `at_once` folders in parallel."""
    all_files: list[ListedFile] = []
    folders = [folder]
    with ThreadPoolExecutor(at_once, thread_name_prefix="walk") as pool:
        while folders:
            listed = list(map(_list_folder, folders) if at_once == 1 else pool.map(_list_folder, folders))
            folders = [item for below, _ in listed for item in below]
            all_files += (item for _, files in listed for item in files)
    return all_files


def _list_folder(folder: str) -> tuple[list[str], list[ListedFile]]:
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


def sum_usage(files: list[ListedFile]) -> CacheUsage:
    """Return total bytes and number of files."""
    return CacheUsage(sum(file.bytes for file in files), len(files))


_NS_PER_MS: Final = 1_000_000
_WALKERS: Final = "cloud_storage_cache_trim_walk_concurrency"
_LOGGER: Final = logging.getLogger("reconciler.cache")


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A cache folder's paths."""

    folder: Path

    @property
    def files_path(self) -> str:
        """Folder of cached files, by object key."""
        return f"{self.folder}/files"

    @property
    def drafts_path(self) -> str:
        """Folder of incomplete files."""
        return f"{self.folder}/drafts"

    def create(self) -> None:
        """Create the folder if missing."""
        Path(self.drafts_path).mkdir(mode=0o700, parents=True, exist_ok=True)


class CacheSpace:
    """Keeps a cache within its limits. Thread-safe.

    Other processes' writes count once the folder is listed again.
    """

    def __init__(
        self, place: CacheFolder, properties: Mapping[str, str], needs: Callable[[str], Mapping[int, int]]
    ) -> None:
        self._place = place
        self._limits = read_cache_limits(properties, shutil.disk_usage(place.folder).total)
        self._rule = EvictionRule.of(properties)
        self._chunk_bytes = int(read_property(properties, "cloud_storage_cache_chunk_size") or 0)
        self._interval_ns = int(read_property(properties, "cloud_storage_cache_check_interval_ms") or 0) * _NS_PER_MS
        self._at_once = int(read_property(properties, _WALKERS) or 1)
        self._most_carried = int(read_property(properties, "cloud_storage_cache_trim_carryover_bytes") or 0)
        self._needs = needs
        self._lock = threading.Lock()
        self._used: CacheUsage | None = None
        self._walked_ns = 0
        self._carried: list[ListedFile] = []
        """Files that the last trim left, least recently used first."""

    @property
    def limits(self) -> CacheLimits:
        """Maximum usage and trim thresholds."""
        return self._limits

    def reserve(self, size: int) -> bool:
        """Reserve space for a file; return whether it fits."""
        with self._lock:
            used = self._used
            if used is None or self._is_listing_old():
                used = sum_usage(self._list_files())
            wanted = CacheUsage(used.bytes + size, used.objects + 1)
            if self._limits.find_trim_target(wanted) is not None:
                used = self._make_room(size, used)
                wanted = CacheUsage(used.bytes + size, used.objects + 1)
            fits = wanted.bytes <= self._limits.most.bytes and wanted.objects <= self._limits.most.objects
            self._used = wanted if fits else used
            return fits

    def _is_listing_old(self) -> bool:
        return self._read_last_write_ns() - self._walked_ns >= self._interval_ns

    def _read_last_write_ns(self) -> int:
        return Path(self._place.drafts_path).stat().st_mtime_ns

    def _list_files(self) -> list[ListedFile]:
        self._walked_ns = self._read_last_write_ns()
        return list_cache_files(str(self._place.folder), self._at_once)

    def _make_room(self, size: int, used: CacheUsage) -> CacheUsage:
        if self._carried:
            carried, self._carried = self._carried, []
            trim = self._make_trim(self._find_target(size, used) or used, used)
            trim.run([file for file in carried if _is_unused_since(file)])
            if self._find_target(size, trim.left) is None:
                self._end_trim(trim, "cache_trim_carryover_trims", used)
                self._keep_listing(carried, trim)
                return trim.left
        files = self._list_files()
        used = sum_usage(files)
        target = self._find_target(size, used)
        if target is None:
            return used
        trim = self._make_trim(target, used)
        trim.run(files)
        self._end_trim(trim, "cache_trim_exhaustive_trims", used)
        if not trim.is_done:
            count_cache_event("cache_trim_failed_trims")
        self._keep_listing(sorted(files, key=lambda file: (file.used_ns, file.path)), trim)
        return trim.left

    def _make_trim(self, target: CacheUsage, used: CacheUsage) -> CacheTrim:
        return CacheTrim(self._rule, self._chunk_bytes, target, used, self._needs)

    def _find_target(self, size: int, used: CacheUsage) -> CacheUsage | None:
        target = self._limits.find_trim_target(CacheUsage(used.bytes + size, used.objects + 1))
        return None if target is None else CacheUsage(target.bytes - size, target.objects - 1)

    def _end_trim(self, trim: CacheTrim, name: str, used: CacheUsage) -> None:
        count_cache_event(name)
        log_debug(
            _LOGGER, "trimmed", evicted=len(trim.evicted), bytes=used.bytes - trim.left.bytes, left=trim.left.bytes
        )

    def _keep_listing(self, listed: list[ListedFile], trim: CacheTrim) -> None:
        gone, room = set(trim.evicted), self._most_carried
        for file in listed:
            room -= sys.getsizeof(file) + sys.getsizeof(file.path)
            if room < 0:
                return
            if file.path not in gone:
                self._carried.append(file)


def _is_unused_since(file: ListedFile) -> bool:
    try:
        return Path(file.path).stat(follow_symlinks=False).st_mtime_ns == file.used_ns
    except OSError:
        return False


_ANOMALIES: Final = "cache_anomalies"
_LOCK: Final = Lock()
_COUNTS: Final[Counter[str]] = Counter()


def count_cache_event(name: str) -> None:
    """Count a cache event of `resources.vitals.COUNTER_HELP`. Thread-safe."""
    with _LOCK:
        _COUNTS[name] += 1


def pop_cache_counts() -> Mapping[str, int]:
    """Return and reset the counters of cache events."""
    with _LOCK:
        counts = dict(_COUNTS)
        _COUNTS.clear()
    return counts


def measure_cache_levels(properties: Mapping[str, str], default_folder: str | None) -> Mapping[str, float]:
    """Return this machine's cache gauges, by names in `resources.vitals.LEVELS`."""
    folder = find_cache_folder(properties, default_folder)
    if folder is None:
        return {}
    files = list_cache_files(str(folder), int(read_property(properties, _WALKERS) or 1))
    used = sum_usage(files)
    segments = {file.segment for file in files}
    return {
        "active_segments": len(segments),
        "cache_space_size_bytes": used.bytes,
        "cache_space_files": used.objects,
        "readers": sum(is_held(file.path) for file in files),
    }


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheSource:
    """An immutable object that can be cached."""

    store: ObjectStore
    key: str
    size: int

    @property
    def name(self) -> str:
        """Path of the object in the cache."""
        return build_cache_name(self.store, self.key)

    def fetch(self, span: ByteSpan) -> bytes:
        """Return a range of the object.

        Raises:
            ValueError: The object is too short.
        """
        content = self.store.get_range(self.key, span.start, span.length)
        if len(content) != span.length:
            message = f"it ends at byte {span.start + len(content)}, not {self.size}"
            raise ValueError(message)
        return content


def build_cache_name(store: ObjectStore, key: str) -> str:
    """Return an object's path in the cache."""
    return f"{xxhash.xxh3_64_hexdigest(store.url.encode())}/{key}"


class HeldBytes:
    """Bytes of a cached file, which cannot be evicted before `release`."""

    def __init__(self, content: bytes | memoryview, file: CachedFile | None = None) -> None:
        self.content = memoryview(content)
        self._file = file

    def release(self) -> None:
        """Allow eviction of the file; the bytes stay valid."""
        if self._file is not None:
            self._file.close()


class ChunkCache:
    """This process's access to the machine's cache. Thread-safe.

    Disk errors never fail a read.
    """

    def __init__(self, properties: Mapping[str, str], default_folder: str | None) -> None:
        self.chunk_bytes = int(read_property(properties, "cloud_storage_cache_chunk_size") or 0)
        self._is_whole = read_property(properties, "cloud_storage_disable_chunk_reads") == "true"
        self._rule = EvictionRule.of(properties)
        self.needs = PendingReaders()
        self._flights = NamedLocks()
        self._room: CacheSpace | None = None
        folder = find_cache_folder(properties, default_folder)
        self._place = None if folder is None else CacheFolder(folder)
        if self._place is not None:
            with suppress(OSError):
                self._place.create()
                self._room = CacheSpace(self._place, properties, self._get_pending_readers)

    def divide_segment(self, size: int, borders: Iterable[int]) -> tuple[ByteSpan, ...]:
        """Divide a segment into chunks; `borders` are the ends of its row groups."""
        return divide_into_chunks(borders, size, self.chunk_bytes)

    def hold_chunk(self, source: CacheSource, span: ByteSpan, chunks: int) -> HeldBytes:
        """Return one of a segment's `chunks` chunks, which stays cached until its release."""
        if self._is_whole:
            return self._hold_whole_object(source, span)
        path = self._build_path(f"{source.name}{CHUNKS_SUFFIX}/{span.start}")
        held = self._get_or_fetch(path, span.length, lambda: source.fetch(span))
        self._evict_surplus(source.name, chunks)
        return held

    def get_whole_object(self, name: str, fetch: Callable[[], bytes]) -> bytes:
        """Return an object cached as one file; `fetch` loads a missing one."""
        held = self._get_or_fetch(self._build_path(name), None, fetch)
        held.release()
        return bytes(held.content)

    def evict_object(self, name: str) -> None:
        """Evict a damaged object and its chunks."""
        if self._place is None:
            return
        evict_file(self._build_path(name))
        with suppress(OSError):
            for path in Path(self._build_path(f"{name}{CHUNKS_SUFFIX}")).iterdir():
                evict_file(str(path))

    def _get_or_fetch(self, path: str, size: int | None, fetch: Callable[[], bytes]) -> HeldBytes:
        with self._flights.hold(path):
            file = self._open_cached(path, size)
            held = None if file is None else _hold_range(path, file, ByteSpan(0, file.size))
            if held is not None:
                count_cache_event("cache_op_hit")
                return held
            count_cache_event("cache_op_miss")
            body = fetch()
            return HeldBytes(body, self._write_file(path, len(body), lambda: [body]))

    def _hold_whole_object(self, source: CacheSource, span: ByteSpan) -> HeldBytes:
        path = self._build_path(source.name)
        with self._flights.hold(path):
            file = self._open_cached(path, source.size)
            count_cache_event("cache_op_miss" if file is None else "cache_op_hit")
            file = file or self._write_file(path, source.size, lambda: self._fetch_pieces(source))
        held = None if file is None else _hold_range(path, file, span)
        return HeldBytes(source.fetch(span)) if held is None else held

    def _fetch_pieces(self, source: CacheSource) -> Iterator[bytes]:
        for start in range(0, source.size, self.chunk_bytes):
            yield source.fetch(ByteSpan(start, min(start + self.chunk_bytes, source.size)))

    def _open_cached(self, path: str, size: int | None) -> CachedFile | None:
        file = None if self._room is None else CachedFile.open(path)
        if file is not None and size is not None and file.size != size:
            file.close()  # The chunk was cached under another chunk size.
            return None
        return file

    def _write_file(self, path: str, size: int, pieces: Callable[[], Iterable[bytes]]) -> CachedFile | None:
        room, place = self._room, self._place
        if room is None or place is None:
            return None
        try:
            return _retry_in_new_folder(
                place,
                lambda: (
                    write_cached_file(place.drafts_path, path, pieces())
                    if room.reserve(compute_file_size(size))
                    else None
                ),
            )
        except OSError as error:
            log_debug(_LOGGER, "not cached", path=path, why=str(error))
            count_cache_event(_ANOMALIES)
            return None

    def _evict_surplus(self, name: str, chunks: int) -> None:
        """Evict surplus chunks now; the `eager` strategy evicts during trims."""
        most = self._rule.compute_max_chunks(chunks)
        if self._rule.strategy == "eager" or self._room is None or most >= chunks:
            return
        folder = Path(self._build_path(f"{name}{CHUNKS_SUFFIX}"))
        with suppress(OSError):
            paths = {int(path.name): path for path in folder.iterdir() if path.name.isdecimal()}
            if len(paths) > most:
                needed = self.needs.count_by_chunk(name)
                hydrated = [_describe_chunk(path, start, needed) for start, path in sorted(paths.items())]
                for chunk in self._rule.select_chunks_to_evict(hydrated, chunks):
                    evict_file(str(paths[chunk.start]))

    def _get_pending_readers(self, segment: str) -> Mapping[int, int]:
        return self.needs.count_by_chunk(f"{segment.removeprefix(self._build_path(''))}.parquet")

    def _build_path(self, name: str) -> str:
        return name if self._place is None else f"{self._place.files_path}/{name}"


def _hold_range(path: str, file: CachedFile, span: ByteSpan) -> HeldBytes | None:
    content = file.read(span.start, span.length)
    if content is not None:
        return HeldBytes(content, file)
    file.close()
    log_debug(_LOGGER, "damaged", path=path)
    count_cache_event(_ANOMALIES)
    evict_file(path)
    return None


def _describe_chunk(path: Path, start: int, needed: Mapping[int, int]) -> HydratedChunk:
    return HydratedChunk(start, path.stat().st_mtime_ns, is_held(str(path)), needed.get(start, 0))


def _retry_in_new_folder(place: CacheFolder, do: Callable[[], T]) -> T:
    try:
        return do()
    except FileNotFoundError:
        place.create()
        return do()


_MOST_THREADS: Final = 8
_PREFETCHED_CHUNKS: Final = 16


@dataclass(slots=True)
class PrefetchBudget:
    """Bytes that may be prefetched. Thread-safe."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has_left(self, count: int) -> bool:
        """Whether `count` bytes are left."""
        return self.left >= count

    def add(self, count: int) -> None:
        """Add bytes; a negative `count` uses them. Urgent reads may exceed the budget."""
        with self._lock:
            self.left += count


@dataclass(frozen=True, slots=True)
class MachineCache:
    """The machine's cache, with this process's threads and prefetch budget."""

    cache: ChunkCache
    pool: ThreadPoolExecutor
    ahead: PrefetchBudget


_MACHINES: Final[dict[tuple[object, ...], MachineCache]] = {}
_CACHES_LOCK: Final = threading.Lock()


def get_machine_cache(properties: Mapping[str, str], folder: str | None) -> MachineCache:
    """Return this process's cache; a forked process creates its own."""
    key = (os.getpid(), folder, *sorted(properties.items()))
    with _CACHES_LOCK:
        machine = _MACHINES.get(key)
        if machine is None:
            cache = ChunkCache(properties, folder)
            threads = min(_MOST_THREADS, int(read_property(properties, "cloud_storage_max_connections") or 1))
            pool = ThreadPoolExecutor(threads, thread_name_prefix="chunks")
            machine = _MACHINES[key] = MachineCache(cache, pool, PrefetchBudget(_PREFETCHED_CHUNKS * cache.chunk_bytes))
        return machine
