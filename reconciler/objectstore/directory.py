"""An object store in a directory, safe between threads, processes and kills.

Under the root lie the objects, each under its key, and `.store/`: 64 lock stripes and unfinished files. A version is
the sha256 of the content. A swap locks the key's stripe, compares, and renames a synced file into place; a create
links one, which needs no lock. Folders that become empty are removed, as an object store has none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR
from typing import IO, BinaryIO, Final

from reconciler.errors import (
    MendFirstError,
    MissingObjectError,
    ReconcilerError,
    RetryableError,
    StoreRefusedError,
    UnansweredError,
    UserError,
)
from reconciler.objectstore.base import (
    RESERVED,
    Listed,
    ObjectStore,
    Stored,
    Version,
    check_key,
    is_text,
    mine_or_lost,
    nonce,
    probe_conditions,
    refuse_key,
)
from reconciler.runtime.retry import Backoff, Tries

# Files that are whole and durable or not there: what a directory store is made of.
#
# Paths are strings here: an append touches a dozen of them, and a `Path` for each costs as much as the calls
# themselves.


StrPath = str | os.PathLike[str]

_FOLDER_RACES: Final = 100
"""Folders that become empty are removed: whoever is about to put a file into one makes it again, this often."""
LOCK_SECONDS: Final = 12.0
"""Locks are held for as long as a rename takes. A lease of 90 s is given up 15 s before its end: this is less."""
_BACKOFF: Final = Backoff(first_s=0.001, longest_s=0.02)
_COPY_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 8 << 20
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.EBADF})
"""What a file system says that has no fsync for folders."""
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
    tries = Tries(_BACKOFF, within_s=LOCK_SECONDS)
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if tries.is_over:
            message = f"{path} has been locked by another process for more than {LOCK_SECONDS:.0f} s"
            raise UnansweredError(
                message,
                hint="A process may be stopped in the middle of a write (`fuser` names it): continue or end it.",
            )
        tries.wait()


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
    _into_folder(target, lambda: _link(finished, target))


def _link(finished: str, target: str) -> None:
    try:
        os.link(finished, target)
    except OSError as error:
        if error.errno == errno.EPERM:  # link(2): the file system has no hard links, as exFAT or many FUSE mounts
            raise OSError(errno.EOPNOTSUPP, "it has no hard links") from error
        raise


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
    except OSError as error:
        if error.errno in _CANNOT_SYNC:
            raise OSError(errno.EOPNOTSUPP, "it cannot make names durable") from error
        raise
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
    # Also where the kernel says it is done: some file systems say so before the end.
    while chunk := source.read(_CHUNK_BYTES):
        sink.write(chunk)


# What the operating system says about files, in our errors.


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM})
_IN_THE_WAY: Final = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY})
_CANNOT_LOCK: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BAD_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})


@contextmanager
def file_faults(doing: str, path: str) -> Iterator[None]:
    """Raise our error for what goes wrong with files inside; `doing` completes "cannot … PATH"."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, doing, path) from error


def from_os_error(error: OSError, doing: str, path: str) -> ReconcilerError:
    """Return the error that says what to do about `error`, met while `doing` something with `path`."""
    where = f"cannot {doing} {path}"
    code = error.errno
    if code in _FULL:
        return MendFirstError(
            f"{where}: {'the disk is full' if code != errno.EFBIG else 'the file would be too large'}",
            hint="Nothing half-written is left behind. Free some space (or raise a quota) and run it again.",
        )
    if code in _REFUSED:
        return StoreRefusedError(
            f"{where}: permission denied", hint="Give this user the right to it, or run as its owner."
        )
    if code == errno.EROFS:
        return UserError(f"{where}: the file system is read-only", hint="Mount it for writing, or name another place.")
    if code in _IN_THE_WAY:
        return UserError(
            f"{where}: a file stands where a folder should be, or a folder where a file should be",
            hint="Move it away, or name another place.",
        )
    if code in _CANNOT_LOCK:
        return UserError(
            f"{where}: this file system cannot lock or link files ({_reason(error)})",
            hint="Use a local disk, an NFS mount with locks, or s3://.",
        )
    if code == errno.EXDEV:
        return UserError(
            f"{where}: its folder and its root lie on different file systems",
            hint="Mount one file system at the root, and nothing below it: objects are renamed into place.",
        )
    if code in _BAD_NAME:
        return UserError(f"{where}: {_reason(error)}", hint="Use a shorter or simpler path.")
    if code in _TOO_MANY:
        return RetryableError(f"{where}: too many open files", hint="Raise the limit (`ulimit -n`) and run it again.")
    return RetryableError(f"{where}: {_reason(error)}", hint="Check the disk or mount, then run it again.")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# List the files of a directory in the order an object store lists its keys.


_YOUNG_SECONDS: Final = 2
_NO_OBJECTS: Final = frozenset({RESERVED, "lost+found"})
"""Folders without objects: our own, and that of the file system where the root is a whole volume."""


def walk(root: Path, prefix: str) -> Iterator[Listed]:
    """Yield every file whose key begins with `prefix`, sorted by key; a missing folder is empty."""
    folder, _, start = prefix.rpartition("/")
    base = f"{folder}/" if folder else ""
    # Read once: only to tell which modification times are too young to be trusted, never to decide anything else.
    now = time.time()  # noqa: TID251 - compared with the same machine's file times, see above
    yield from _walk(str(root), base, start, now - _YOUNG_SECONDS)


def _walk(root: str, base: str, start: str, young: float) -> Iterator[Listed]:
    for name, entry in _entries(root, base, start):
        if name.endswith("/"):
            yield from _walk(root, base + name, "", young)
            continue
        try:
            found = entry.stat()
        except FileNotFoundError:  # deleted since the folder was read
            continue
        hint = f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
        if found.st_mtime > young:
            hint = f"{hint}-{nonce()}"
        yield Listed(base + name, found.st_size, hint, found.st_mtime_ns // 1_000_000)


def _entries(root: str, base: str, start: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Return a folder's entries in the order of their keys: a folder sorts as its name and a slash.

    What has a name that is not UTF-8 is no object: no key is like that.
    """
    try:
        with os.scandir(os.path.join(root, base)) as entries:
            found = [
                (f"{entry.name}/" if entry.is_dir() else entry.name, entry)
                for entry in entries
                if entry.name.startswith(start) and entry.name not in _NO_OBJECTS and is_text(entry.name)
            ]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise from_os_error(error, "list", os.path.join(root, base)) from error
    except NotADirectoryError:
        if not base:
            raise  # The root itself is a file: nothing can ever lie there.
        return []
    return sorted(found, key=lambda pair: pair[0])


_STRIPES: Final = 64
_ABANDONED_SECONDS: Final = 86_400
"""An unfinished file untouched for this long belongs to a writer that was killed."""


class DirectoryStore:
    """An object store in a directory, which is made at the first write."""

    def __init__(self, root: Path) -> None:
        """Open the store under `root`, absolute from here on: it may travel to where the current folder differs."""
        self._root = Path(os.path.abspath(root))  # Path.resolve would also follow links
        self._folder = str(self._root)
        self._unfinished = f"{self._folder}/{RESERVED}/unfinished"
        self._has_swept = False

    def __reduce__(self) -> tuple[type[DirectoryStore], tuple[Path]]:
        """Travel as the path of the root."""
        return DirectoryStore, (self._root,)

    @property
    def url(self) -> str:
        """Where this store is."""
        return f"file://{self._root}"

    @property
    def root(self) -> Path:
        """The folder all keys lie under."""
        return self._root

    def path_of(self, key: str) -> Path:
        """Return the file an object is, whether or not it exists."""
        return self._root / check_key(key)

    @property
    def encrypts(self) -> bool:
        """A directory has no keys; its disk may."""
        return False

    def clock_ms(self) -> int:
        """Return what time the file system has: that of a file just made."""
        with file_faults("write", self._unfinished), self._writing() as stream:
            return os.fstat(stream.fileno()).st_mtime_ns // 1_000_000

    def get(self, key: str) -> Stored | None:
        """Return the object, or `None` where there is none."""
        path = self._file(key)
        with file_faults("read", path):
            try:
                with open(path, "rb", buffering=0) as stream:
                    body = stream.readall()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return Stored(body, _version(body))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`."""
        path = self._file(key)
        with file_faults("read", path), _opened(path) as source:
            source.seek(start)
            body = source.read(length)
            # Some network mounts return less than is asked for; the file ends where a read returns nothing.
            while 0 < len(body) < length and (more := source.read(length - len(body))):
                body += more
            return body

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store under a fresh name, unconditionally. Durable when it returns."""
        path = self._file(key)
        refuse_key(self.url, kms_key_id)
        with file_faults("write", path), self._writing() as stream:
            stream.write(body)
            put_in_place(seal(stream), path)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` if `key` is still at `expected` (`None`: if it does not exist). Durable when it returns."""
        path = self._file(key)
        with file_faults("write", path), self._writing() as stream:
            stream.write(body)
            finished = seal(stream)
            if expected is None:
                with suppress(FileExistsError):
                    create_in_place(finished, path)
                    return _version(body)
                return mine_or_lost(key, body, self.get(key))
            with locked(self._stripe(key)):
                found = self.get(key)
                if found is None or found.version != expected:
                    return mine_or_lost(key, body, found)
                put_in_place(finished, path)
        return _version(body)

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Store a copy of another store's object under a fresh name; between directories the kernel copies.

        Never a hard link: a mirror exists so that what damages one file, a bad block or a hand, leaves the other.
        """
        path = self._file(key)
        refuse_key(self.url, kms_key_id)
        with file_faults("write", path), self._writing() as stream:
            if isinstance(source, DirectoryStore):
                with _opened(str(source.path_of(source_key))) as found:
                    copy_contents(found, stream)
            else:
                _copy_ranges(source, source_key, stream)
            put_in_place(seal(stream), path)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield what lies under `prefix`, sorted by key.

        The hint is (inode, mtime, size); younger than 2 s it never equals another, for clocks of files are coarse.
        """
        with file_faults("list", self._folder):
            yield from walk(self._root, prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally; a key that is not there is no error."""
        for key in keys:
            path = self._file(key)
            with file_faults("delete", path):
                self._delete(key, path)

    def probe(self) -> Sequence[str]:
        """Return what this directory does not honour of the conditions; empty when it may be trusted."""
        stripe = self._stripe("")
        with file_faults("lock", stripe):
            problems = [] if is_exclusive(stripe) else ["its file locks do not keep a second holder out"]
        return problems + probe_conditions(self)

    def _file(self, key: str) -> str:
        return f"{self._folder}/{check_key(key)}"

    def _delete(self, key: str, path: str) -> None:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        # Under the stripe's lock, so that a swap that has compared does not bring the object back.
        with locked(self._stripe(key)), suppress(FileNotFoundError):
            os.unlink(path)
        remove_empty(os.path.dirname(path), above=self._folder)

    def _stripe(self, key: str) -> str:
        number = sha256(key.encode()).digest()[0] % _STRIPES
        return f"{self._folder}/{RESERVED}/stripes/{number:02}"

    @contextmanager
    def _writing(self) -> Iterator[BinaryIO]:
        with unfinished(self._unfinished) as stream:
            if not self._has_swept:
                self._has_swept = True
                self._sweep(os.fstat(stream.fileno()).st_mtime)
            yield stream

    def _sweep(self, fresh: float) -> None:
        """Remove what killed writers left; age is told by the file system's own clock, of a file just made."""
        with os.scandir(self._unfinished) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if fresh - entry.stat().st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)


def _version(body: bytes) -> Version:
    return Version(sha256(body).hexdigest())


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        stream = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        message = f"there is no object {path}"
        raise MissingObjectError(message, hint="Something else removed it; check the folder.") from error
    with stream:
        yield stream


def _copy_ranges(source: ObjectStore, source_key: str, sink: BinaryIO) -> None:
    at = 0
    while chunk := source.get_range(source_key, at, _CHUNK_BYTES):
        sink.write(chunk)
        at += len(chunk)
        if len(chunk) < _CHUNK_BYTES:
            return
