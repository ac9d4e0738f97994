"""Files, chunks, limits and eviction strategies of the read cache.

A file is written beside its place and renamed into it, so it is whole or not there; nothing is synced, for it can be
fetched again. Readers hold a shared lock, and whoever evicts takes an exclusive one: the kernel keeps them apart, also
between processes, and forgets the locks of those that died.
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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import xxhash

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.base import nonce
from reconciler.resources.cluster_properties import property_of

PIECE_BYTES: Final = 1 << 20
"""One checksum stands for so many bytes."""
_FOOTER: Final = struct.Struct("<Q8s")
_MAGIC: Final = b"RECCACH1"
_SUM: Final = struct.Struct("<Q")


class CachedFile:
    """A cached file that is open and held: nobody evicts it before `close`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size
        """How many bytes it has of its object."""

    @classmethod
    def open(cls, path: str) -> CachedFile | None:
        """Open a file and note that it was used; `None`: there is none, or it is not whole."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            with suppress(BlockingIOError):  # Somebody is evicting it: what is open can be read all the same.
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            length = os.fstat(descriptor).st_size
            size, magic = _FOOTER.unpack(os.pread(descriptor, _FOOTER.size, length - _FOOTER.size))
            if magic == _MAGIC and length == stored_bytes(size):
                with suppress(OSError):  # A disk that cannot be written can be read.
                    os.utime(descriptor)
                return cls(descriptor, size)
        except (OSError, struct.error):
            pass  # It is cut short, or the disk cannot be read: as if it were not there.
        os.close(descriptor)
        return None

    def read(self, start: int, length: int) -> memoryview | None:
        """Return bytes of it; `None`: they are not those that were written."""
        first, last = start // PIECE_BYTES, -(-(start + length) // PIECE_BYTES)
        begin, end = first * PIECE_BYTES, min(last * PIECE_BYTES, self.size)
        try:
            found = memoryview(os.pread(self._descriptor, end - begin, begin))
            sums = os.pread(self._descriptor, (last - first) * _SUM.size, self.size + first * _SUM.size)
        except OSError:
            return None
        if len(found) != end - begin or sums != b"".join(_sums(found)):
            return None
        return found[start - begin : start - begin + length]

    def close(self) -> None:
        """Let it go. May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_cached(folder: str, path: str, pieces: Iterable[bytes | memoryview]) -> CachedFile:
    """Store what pieces make together as the file at `path`, and hold it. `folder` is one on the same file system.

    Raises:
        OSError: The disk is full, or cannot be written.
    """
    draft = f"{folder}/{nonce()}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        sums, rest, size = [], b"", 0
        for piece in pieces:
            _write(descriptor, piece)
            size += len(piece)
            rest, done = _split(rest, piece)
            sums += done
        sums += _sums(memoryview(rest))
        _write(descriptor, b"".join(sums) + _FOOTER.pack(size, _MAGIC))
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(draft).rename(path)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            Path(draft).unlink()
        raise
    return CachedFile(descriptor, size)


def evict(path: str) -> bool:
    """Remove a file unless somebody holds it; say whether it is gone."""
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
    """Tell whether a reader holds a file."""
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


def _split(rest: bytes, piece: bytes | memoryview) -> tuple[bytes, list[bytes]]:
    """Return what is left of bytes that end in the middle of a piece of a checksum, and the sums of those before."""
    whole = memoryview(rest + bytes(piece) if rest else piece)
    cut = len(whole) - len(whole) % PIECE_BYTES
    return bytes(whole[cut:]), list(_sums(whole[:cut]))


def _sums(content: memoryview) -> Iterable[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield _SUM.pack(xxhash.xxh3_64_intdigest(content[start : start + PIECE_BYTES]))


def stored_bytes(size: int) -> int:
    """Return what a file takes that has so many bytes of its object."""
    return size + -(-size // PIECE_BYTES) * _SUM.size + _FOOTER.size


def _write(descriptor: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


# Where the cache lies: a folder of its own within the one that is given, or a private one among temporary files.
#
# Everything in it may be deleted by the process that trims, so nothing else ever lies there.


_OURS: Final = "remote-chunks"
DIRECTORY: Final = "cloud_storage_cache_directory"


def usable_folder(properties: Mapping[str, str], default: str | None) -> Path | None:
    """Return the folder of the cache on this machine, made where it is missing; `None`: there is no place for one.

    It is within the declared directory, else within `default`, else among temporary files. What another user owns is
    not used: they could put there what we would read.

    Raises:
        UserError: The declared directory is not a full path.
    """
    declared = property_of(properties, DIRECTORY)
    if declared is not None:
        check_directory(declared)
        return _made(Path(declared) / _OURS)
    places = [Path(default) / _OURS] if default is not None and Path(default).is_absolute() else []
    with suppress(FileNotFoundError):  # No folder for temporary files can be written to.
        places.append(Path(tempfile.gettempdir()) / f"reconciler-{_OURS}-{os.getuid()}")
    return next((made for place in places if (made := _made(place)) is not None), None)


def check_directory(declared: str) -> None:
    """Refuse a directory that means another place in every process (F-R-053).

    Raises:
        UserError: It is no full path.
    """
    if not Path(declared).is_absolute():
        message = f"{DIRECTORY} is {declared!r}, which is no full path"
        raise UserError(message, hint="Write it from the root: /var/cache/reconciler.")


def _made(folder: Path) -> Path | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if is_ours else None


# How much may be cached, and when and how far the cache is trimmed: Redpanda's rules as arithmetic. Pure.


_LOW_SHARE: Final = 0.8
"""Of the limit that was exceeded: so far it is trimmed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a cache takes, or may take."""

    bytes: int
    objects: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cache may take, and from what on it is trimmed: the same, or less where a threshold is set."""

    most: Usage
    trim_at: Usage

    def target(self, used: Usage) -> Usage | None:
        """Return what may stay where a limit or threshold is exceeded, each dimension for itself; `None`: none is."""
        is_large, is_many = used.bytes > self.trim_at.bytes, used.objects > self.trim_at.objects
        if not (is_large or is_many):
            return None
        return Usage(
            int(self.trim_at.bytes * _LOW_SHARE) if is_large else used.bytes,
            int(self.trim_at.objects * _LOW_SHARE) if is_many else used.objects,
        )


def limits_of(properties: Mapping[str, str], disk_bytes: int) -> Limits:
    """Return the limits on a disk of so many bytes: bytes or percent of it, the smaller, and the number of files.

    Raises:
        UserError: Neither bytes nor percent is set: nothing could be cached, or everything.
    """
    usable = int(disk_bytes * (1 - _number(properties, "disk_reservation_percent") / 100))
    size = int(_number(properties, "cloud_storage_cache_size"))
    percent = _number(properties, "cloud_storage_cache_size_percent")
    given = [min(size, usable)] * (size > 0) + [int(usable * percent / 100)] * (percent > 0)
    if not given:
        message = "cloud_storage_cache_size and cloud_storage_cache_size_percent are both 0"
        raise UserError(message, hint="Set one of them: that is how large the cache may become.")
    most = Usage(min(given), int(_number(properties, "cloud_storage_cache_max_objects")))
    by_size = _threshold(properties, "cloud_storage_cache_trim_threshold_percent_size")
    by_objects = _threshold(properties, "cloud_storage_cache_trim_threshold_percent_objects")
    return Limits(most, Usage(int(most.bytes * by_size), int(most.objects * by_objects)))


def _threshold(properties: Mapping[str, str], name: str) -> float:
    return float(property_of(properties, name) or 100) / 100


def _number(properties: Mapping[str, str], name: str) -> float:
    return float(property_of(properties, name) or 0)


# One at a time: who wants what another thread is fetching waits for it, and finds it there.


class Flights:
    """Locks by name, each there for as long as somebody wants it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wanted: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Be the only thread of this process that is about something."""
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


# How a remote segment is cut into chunks: at row groups, so that what lies together is fetched together. Pure.


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes of an object, from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many bytes it has."""
        return self.stop - self.start


def chunks_of(borders: Iterable[int], size: int, chunk_bytes: int) -> tuple[Span, ...]:
    """Return the chunks of a segment of `size` bytes, side by side: none is larger than `chunk_bytes`.

    `borders` are where row groups end, first to last: what lies between two stays together as far as it fits. A
    segment that is no larger than a chunk is one.
    """
    cuts = [0]
    for begin, end in pairwise([0, *borders, size]):
        if end - cuts[-1] > chunk_bytes and begin > cuts[-1]:
            cuts.append(begin)
        while end - cuts[-1] > chunk_bytes:
            cuts.append(cuts[-1] + chunk_bytes)
    return tuple(Span(start, stop) for start, stop in pairwise([*cuts, size]))


def touched(chunks: Sequence[Span], wanted: Span) -> Sequence[Span]:
    """Return the chunks that hold bytes of a span; `chunks` lie side by side."""
    if wanted.length <= 0:
        return ()
    first = bisect_right(chunks, wanted.start, key=lambda chunk: chunk.start) - 1
    last = bisect_right(chunks, wanted.stop - 1, key=lambda chunk: chunk.start)
    return chunks[first:last]


# Who will come to which chunk: the readers of this process say it, and `predictive` eviction asks.


class Needs:
    """Counts readers by segment and chunk. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, segment: str, starts: Iterable[int]) -> None:
        """Say that a reader will come to these chunks."""
        with self._lock:
            self._counts[segment].update(starts)

    def remove(self, segment: str, starts: Iterable[int]) -> None:
        """Say that a reader has been there, or will not come."""
        with self._lock:
            counts = self._counts[segment]
            counts.subtract(starts)
            for start in [start for start, count in counts.items() if count <= 0]:
                del counts[start]
            if not counts:
                del self._counts[segment]

    def of(self, segment: str) -> Mapping[int, int]:
        """Return how many readers will come to each chunk of a segment."""
        with self._lock:
            return dict(self._counts[segment]) if segment in self._counts else {}


# Which chunks of a segment are evicted: Redpanda's three strategies. Never one that a reader shares. Pure.


Strategy: TypeAlias = Literal["eager", "capped", "predictive"]
_STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class Hydrated:
    """A chunk that is cached. `start` is its first byte in the segment."""

    start: int
    used_ns: int
    """When it was used last, by the clock of the file system."""
    is_shared: bool = False
    """Whether a reader holds it."""
    needed_by: int = 0
    """How many readers will come to it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The strategy of a cluster, and how much of a segment it leaves."""

    strategy: Strategy = "eager"
    ratio: float = 0.7
    few_chunks: int = 5

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Rule:
        """Read it from cluster properties."""
        name = property_of(properties, "cloud_storage_chunk_eviction_strategy")
        strategy = next((each for each in _STRATEGIES if each == name), None)
        if strategy is None:
            raise BrokenInvariantError(f"no strategy of eviction: {name}", hint="Please report it.")
        ratio = float(property_of(properties, "cloud_storage_hydrated_chunks_per_segment_ratio") or 0)
        few = int(property_of(properties, "cloud_storage_min_chunks_per_segment_threshold") or 0)
        return cls(strategy, ratio, few)

    def most(self, chunks: int) -> int:
        """Return how many of a segment's chunks may be cached; all, where it has few."""
        return chunks if chunks < self.few_chunks else max(1, math.floor(chunks * self.ratio))

    def evicted(self, hydrated: Sequence[Hydrated], chunks: int) -> list[Hydrated]:
        """Return what goes of a segment of so many chunks, in that order.

        `eager`: all that nobody shares. `capped`: so many that no more are left than may be, whichever. `predictive`:
        as many, those first that the fewest readers will come to, of those the one that was used longest ago.
        """
        unshared = [chunk for chunk in hydrated if not chunk.is_shared]
        if self.strategy == "eager":
            return unshared
        surplus = max(0, len(hydrated) - self.most(chunks))
        if self.strategy == "predictive":
            unshared.sort(key=lambda chunk: (chunk.needed_by, chunk.used_ns, chunk.start))
        return unshared[:surplus]
