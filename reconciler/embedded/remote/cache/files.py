"""Cached files: bytes of an object, their checksums behind them. Who reads one holds it; what is damaged is no file.

A file is written beside its place and renamed into it, so it is whole or not there; nothing is synced, for it can be
fetched again. Readers hold a shared lock, and whoever evicts takes an exclusive one: the kernel keeps them apart, also
between processes, and forgets the locks of those that died.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import xxhash

from reconciler.objectstore.nonces import nonce

if TYPE_CHECKING:
    from collections.abc import Iterable

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
