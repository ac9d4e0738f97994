"""Files, chunks, limits and eviction of the read cache.

A finished file is renamed to its path, so readers never see a partial file. Readers share a lock on a file; an eviction
locks it exclusively.
"""

from __future__ import annotations

import fcntl
import math
import os
import stat
import struct
import tempfile
import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import xxhash

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.base import create_nonce
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass

PIECE_BYTES: Final = 1 << 20
_FOOTER: Final = struct.Struct("<Q8s")
_MAGIC: Final = b"RECCACH1"
_SUM: Final = struct.Struct("<Q")


class CachedFile:
    """An open cached file, which cannot be evicted before `close`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    @classmethod
    def open(cls, path: str) -> CachedFile | None:
        """Open a file and record its use; return `None` if missing or incomplete."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            with suppress(BlockingIOError):  # A file stays readable during its eviction.
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            length = os.fstat(descriptor).st_size
            size, magic = _FOOTER.unpack(os.pread(descriptor, _FOOTER.size, length - _FOOTER.size))
            if magic == _MAGIC and length == compute_file_size(size):
                with suppress(OSError):
                    os.utime(descriptor)
                return cls(descriptor, size)
        except (OSError, struct.error):
            pass
        os.close(descriptor)
        return None

    def read(self, start: int, length: int) -> memoryview | None:
        """Return bytes of the content; `None` if a checksum is wrong."""
        first, last = start // PIECE_BYTES, -(-(start + length) // PIECE_BYTES)
        begin, end = first * PIECE_BYTES, min(last * PIECE_BYTES, self.size)
        try:
            content = memoryview(os.pread(self._descriptor, end - begin, begin))
            sums = os.pread(self._descriptor, (last - first) * _SUM.size, self.size + first * _SUM.size)
        except OSError:
            return None
        if len(content) != end - begin or sums != b"".join(_compute_checksums(content)):
            return None
        return content[start - begin : start - begin + length]

    def close(self) -> None:
        """Close the file. Repeatable."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_cached_file(folder: str, path: str, pieces: Iterable[bytes | memoryview]) -> CachedFile:
    """Write a file and open it; `folder` is on the same file system.

    Raises:
        OSError: The disk is full or not writable.
    """
    draft = f"{folder}/{create_nonce()}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        sums, rest, size = [], b"", 0
        for piece in pieces:
            _write_all(descriptor, piece)
            size += len(piece)
            rest, done = _checksum_blocks(rest, piece)
            sums += done
        sums += _compute_checksums(memoryview(rest))
        _write_all(descriptor, b"".join(sums) + _FOOTER.pack(size, _MAGIC))
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(draft).rename(path)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            Path(draft).unlink()
        raise
    return CachedFile(descriptor, size)


def evict_file(path: str) -> bool:
    """Remove a file unless a reader has it open; return whether it was removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(path).unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_held(path: str) -> bool:
    """Whether a reader has the file open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _checksum_blocks(rest: bytes, piece: bytes | memoryview) -> tuple[bytes, list[bytes]]:
    whole = memoryview(rest + bytes(piece) if rest else piece)
    cut = len(whole) - len(whole) % PIECE_BYTES
    return bytes(whole[cut:]), list(_compute_checksums(whole[:cut]))


def _compute_checksums(content: memoryview) -> Iterable[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield _SUM.pack(xxhash.xxh3_64_intdigest(content[start : start + PIECE_BYTES]))


def compute_file_size(size: int) -> int:
    """Return the file size, including checksums, of `size` bytes of content."""
    return size + -(-size // PIECE_BYTES) * _SUM.size + _FOOTER.size


def _write_all(descriptor: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


_FOLDER_NAME: Final = "remote-chunks"
DIRECTORY: Final = "cloud_storage_cache_directory"


def find_cache_folder(properties: Mapping[str, str], default: str | None) -> Path | None:
    """Return this machine's cache folder; `None` if none is usable.

    A trim may delete anything in it. Another user's folder is rejected, since that user could replace its content.
    """
    declared = read_property(properties, DIRECTORY)
    if declared is not None:
        check_directory(declared)
        return _make_folder(Path(declared) / _FOLDER_NAME)
    places = [Path(default) / _FOLDER_NAME] if default is not None and Path(default).is_absolute() else []
    with suppress(FileNotFoundError):
        places.append(Path(tempfile.gettempdir()) / f"reconciler-{_FOLDER_NAME}-{os.getuid()}")
    return next((made for place in places if (made := _make_folder(place)) is not None), None)


def check_directory(declared: str) -> None:
    """Reject a relative cache directory (F-R-053)."""
    if not Path(declared).is_absolute():
        message = f"{DIRECTORY} is {declared!r}, which is not a full path"
        raise UserError(message, hint="Write it from the root: /var/cache/reconciler.")


def _make_folder(folder: Path) -> Path | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return folder if is_ours else None


_LOW_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Bytes and number of files of a cache."""

    bytes: int
    objects: int


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Maximum usage, and the usage that starts a trim, as in Redpanda."""

    most: CacheUsage
    trim_at: CacheUsage

    def find_trim_target(self, used: CacheUsage) -> CacheUsage | None:
        """Return the usage to trim to; `None` below all thresholds."""
        is_large, is_many = used.bytes > self.trim_at.bytes, used.objects > self.trim_at.objects
        if not (is_large or is_many):
            return None
        return CacheUsage(
            int(self.trim_at.bytes * _LOW_SHARE) if is_large else used.bytes,
            int(self.trim_at.objects * _LOW_SHARE) if is_many else used.objects,
        )


def read_cache_limits(properties: Mapping[str, str], disk_bytes: int) -> CacheLimits:
    """Return the cache's limits; of bytes and percent, the smaller applies."""
    usable = int(disk_bytes * (1 - _read_number(properties, "disk_reservation_percent") / 100))
    size = int(_read_number(properties, "cloud_storage_cache_size"))
    percent = _read_number(properties, "cloud_storage_cache_size_percent")
    sizes = [min(size, usable)] * (size > 0) + [int(usable * percent / 100)] * (percent > 0)
    if not sizes:
        message = "cloud_storage_cache_size and cloud_storage_cache_size_percent are both 0"
        raise UserError(message, hint="Set one of them: that is how large the cache may become.")
    most = CacheUsage(min(sizes), int(_read_number(properties, "cloud_storage_cache_max_objects")))
    by_size = _read_threshold(properties, "cloud_storage_cache_trim_threshold_percent_size")
    by_objects = _read_threshold(properties, "cloud_storage_cache_trim_threshold_percent_objects")
    return CacheLimits(most, CacheUsage(int(most.bytes * by_size), int(most.objects * by_objects)))


def _read_threshold(properties: Mapping[str, str], name: str) -> float:
    return float(read_property(properties, name) or 100) / 100


def _read_number(properties: Mapping[str, str], name: str) -> float:
    return float(read_property(properties, name) or 0)


class NamedLocks:
    """Locks by name; a second thread waits for a fetch in progress."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wanted: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Lock a name within the block."""
        with self._guard:
            lock, count = self._wanted.get(name, (threading.Lock(), 0))
            self._wanted[name] = lock, count + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, count = self._wanted[name]
                if count == 1:
                    del self._wanted[name]
                else:
                    self._wanted[name] = lock, count - 1


@dataclass(frozen=True, slots=True, order=True)
class ByteSpan:
    """Bytes of an object from `start` to before `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


def divide_into_chunks(borders: Iterable[int], size: int, chunk_bytes: int) -> tuple[ByteSpan, ...]:
    """Divide a segment into chunks of at most `chunk_bytes`.

    Only larger row groups, which end at `borders`, are split.
    """
    cuts = [0]
    for begin, end in pairwise([0, *borders, size]):
        if end - cuts[-1] > chunk_bytes and begin > cuts[-1]:
            cuts.append(begin)
        while end - cuts[-1] > chunk_bytes:
            cuts.append(cuts[-1] + chunk_bytes)
    return tuple(ByteSpan(start, stop) for start, stop in pairwise([*cuts, size]))


def find_overlapping_chunks(chunks: Sequence[ByteSpan], wanted: ByteSpan) -> Sequence[ByteSpan]:
    """Return the chunks that overlap a span."""
    if wanted.length <= 0:
        return ()
    first = bisect_right(chunks, wanted.start, key=lambda chunk: chunk.start) - 1
    last = bisect_right(chunks, wanted.stop - 1, key=lambda chunk: chunk.start)
    return chunks[first:last]


class PendingReaders:
    """Pending readers per segment and chunk. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, segment: str, starts: Iterable[int]) -> None:
        """Register a reader; `starts` are the first bytes of the chunks to read."""
        with self._lock:
            self._counts[segment].update(starts)

    def remove(self, segment: str, starts: Iterable[int]) -> None:
        """Unregister a reader."""
        with self._lock:
            counts = self._counts[segment]
            counts.subtract(starts)
            for start in [start for start, count in counts.items() if count <= 0]:
                del counts[start]
            if not counts:
                del self._counts[segment]

    def count_by_chunk(self, segment: str) -> Mapping[int, int]:
        """Return a segment's pending readers by first byte of the chunk."""
        with self._lock:
            return dict(self._counts[segment]) if segment in self._counts else {}


Strategy: TypeAlias = Literal["eager", "capped", "predictive"]
_STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class HydratedChunk:
    """A cached chunk; `start` is its first byte in the segment."""

    start: int
    used_ns: int
    is_shared: bool = False
    needed_by: int = 0


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """Redpanda's strategy for evicting a segment's chunks."""

    strategy: Strategy = "eager"
    ratio: float = 0.7
    few_chunks: int = 5

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> EvictionRule:
        """Parse the strategy from cluster properties."""
        name = read_property(properties, "cloud_storage_chunk_eviction_strategy")
        strategy = next((known for known in _STRATEGIES if known == name), None)
        if strategy is None:
            raise BrokenInvariantError(f"no strategy of eviction: {name}", hint="Please report it.")
        ratio = float(read_property(properties, "cloud_storage_hydrated_chunks_per_segment_ratio") or 0)
        few = int(read_property(properties, "cloud_storage_min_chunks_per_segment_threshold") or 0)
        return cls(strategy, ratio, few)

    def compute_max_chunks(self, chunks: int) -> int:
        """Return how many of a segment's `chunks` may be cached."""
        return chunks if chunks < self.few_chunks else max(1, math.floor(chunks * self.ratio))

    def select_chunks_to_evict(self, hydrated: Sequence[HydratedChunk], chunks: int) -> list[HydratedChunk]:
        """Return a segment's chunks to evict, in order; those that a reader has open stay.

        `eager` evicts all; `capped` evicts surplus chunks; `predictive` evicts surplus chunks with the fewest pending
        readers first, then the least recently used.
        """
        unshared = [chunk for chunk in hydrated if not chunk.is_shared]
        if self.strategy == "eager":
            return unshared
        surplus = max(0, len(hydrated) - self.compute_max_chunks(chunks))
        if self.strategy == "predictive":
            unshared.sort(key=lambda chunk: (chunk.needed_by, chunk.used_ns, chunk.start))
        return unshared[:surplus]
