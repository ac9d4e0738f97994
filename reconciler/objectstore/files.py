"""Files that are whole and durable or not there: what a directory store is made of.

Paths are strings here: an append touches a dozen of them, and a `Path` for each costs as much as the calls themselves.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from stat import S_ISDIR
from typing import TYPE_CHECKING, Final

from reconciler.errors import UnansweredError
from reconciler.objectstore.nonces import jitter, nonce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO, BinaryIO

    StrPath = str | os.PathLike[str]

_FOLDER_RACES: Final = 100
"""Folders that become empty are removed: whoever is about to put a file into one makes it again, this often."""
LOCK_SECONDS: Final = 12.0
"""Locks are held for as long as a rename takes. A lease of 90 s is given up 15 s before its end: this is less."""
_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.02
_COPY_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 8 << 20
_NO_KERNEL_COPY: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF, errno.ETXTBSY}
)


@contextmanager
def locked(path: StrPath) -> Iterator[None]:
    """Hold `path` (made when missing) exclusively, between threads and processes; the kernel frees it on a kill.

    Raises:
        UnansweredError: Somebody holds it for so long that they must have been stopped in the middle.
    """
    descriptor = _open_lock(path)
    try:
        _lock(descriptor, path)
        try:
            yield
        finally:
            # A forked child may hold a copy of the descriptor: closing ours alone would not unlock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_exclusive(path: StrPath) -> bool:
    """Tell whether a lock on `path` keeps a second holder out."""
    with locked(path):
        descriptor = _open_lock(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _lock(descriptor: int, path: StrPath) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    pause = _PAUSE_SECONDS
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            message = f"{path} has been locked by another process for more than {LOCK_SECONDS:.0f} s"
            raise UnansweredError(
                message,
                hint="A process may be stopped in the middle of a write (`fuser` names it): continue or end it.",
            )
        time.sleep(pause * jitter())  # noqa: TID251 - a blocking call below Effects; correctness never rests on it
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _open_lock(path: StrPath) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


@contextmanager
def unfinished(folder: str) -> Iterator[BinaryIO]:
    """Open a fresh file in `folder`; it is removed at the end unless it was renamed away."""
    path = f"{folder}/{nonce()}"
    try:
        stream = open(path, "xb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        make_folder(folder)
        stream = open(path, "xb")  # noqa: SIM115 - as above
    try:
        with stream:
            yield stream
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def seal(stream: BinaryIO) -> str:
    """Make what was written durable and return where it stands."""
    stream.flush()
    os.fsync(stream.fileno())
    return stream.name


def write_whole(path: Path, body: bytes, *, mode: int = 0o666) -> None:
    """Put `body` in place of what a file holds: at every moment one of the two is there, whole; durable in the end.

    Through a link the file it names is replaced. A file that is there keeps its rights; a new one gets `mode`.

    Raises:
        OSError: It cannot be written; what was there is still there.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(body)  # A device or a pipe: nothing can be put in its place.
        return
    fresh = target.with_name(f".{nonce()}")  # hidden and without its ending: who reads all `*.prom` takes no half ones
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as stream:
            stream.write(body)
            seal(stream)
        if target.exists():
            fresh.chmod(target.stat().st_mode & 0o7777)
        fresh.replace(target)
        sync_folder(str(target.parent))
    finally:
        with suppress(OSError):  # renamed away; or the folder cannot be changed, and that is the error that is told
            fresh.unlink(missing_ok=True)


def put_in_place(finished: str, target: str) -> None:
    """Rename a sealed file to its name, replacing what is there; durable when it returns."""
    _into_folder(target, lambda: os.rename(finished, target))


def create_in_place(finished: str, target: str) -> None:
    """Give a sealed file its name if that is free; durable when it returns.

    Raises:
        FileExistsError: The name is taken.
    """
    _into_folder(target, lambda: os.link(finished, target))


def _into_folder(target: str, act: Callable[[], object]) -> None:
    for _ in range(_FOLDER_RACES):
        with suppress(FileNotFoundError):
            act()
            break
        make_folder(os.path.dirname(target))
    else:
        act()
    sync_folder(os.path.dirname(target))


def make_folder(folder: str) -> None:
    """Make a folder and those above it, durably, also while others remove them for being empty."""
    for _ in range(_FOLDER_RACES):
        with suppress(FileNotFoundError, FileExistsError):
            os.mkdir(folder)
            sync_folder(os.path.dirname(folder))
            return
        with suppress(FileNotFoundError):
            if S_ISDIR(os.stat(folder).st_mode):
                return
            break
        make_folder(os.path.dirname(folder))
    os.mkdir(folder)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable; a folder that was removed meanwhile has none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_empty(folder: str, *, above: str) -> None:
    """Remove `folder` and what lies between it and `above`, as long as nothing is in it."""
    while folder.startswith(f"{above}/"):
        try:
            os.rmdir(folder)
        except OSError:  # not empty, or gone already: either way there is nothing left to do
            return
        folder = os.path.dirname(folder)


def copy_contents(source: IO[bytes], sink: IO[bytes]) -> None:
    """Copy a file from where it stands, inside the kernel where it can (sharing blocks on file systems that do)."""
    try:
        while os.copy_file_range(source.fileno(), sink.fileno(), _COPY_BYTES):
            pass
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_KERNEL_COPY:
            raise
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
