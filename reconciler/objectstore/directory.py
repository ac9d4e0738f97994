"""An object store in a directory, safe for several threads and processes, even if they are killed.

Objects are files under their keys. `.store/` contains 64 lock files and unfinished files. A version is the body's
sha256. A swap locks the key's lock file, compares versions, and renames a synced file. A create links a synced file,
without a lock.
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
    ListedObject,
    ObjectStore,
    StoredObject,
    Version,
    check_key,
    create_nonce,
    is_valid_utf8,
    probe_conditions,
    reject_kms_key,
    verify_own_write,
)
from reconciler.runtime.retry import Backoff, Tries

# Paths are strings, because a `Path` takes as long as a system call.


StrPath = str | os.PathLike[str]

_FOLDER_RACES: Final = 100
LOCK_SECONDS: Final = 12.0
"""Maximum wait for a lock: longer than a rename takes, and shorter than the last 15 s of a lease."""
_BACKOFF: Final = Backoff(first_s=0.001, longest_s=0.02)
_COPY_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 8 << 20
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.EBADF})
_NO_KERNEL_COPY: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF, errno.ETXTBSY}
)


@contextmanager
def exclusive_lock(path: StrPath) -> Iterator[None]:
    """Hold a lock on `path` that excludes other threads and processes. The kernel releases it if a process is killed.

    Raises:
        UnansweredError: Another holder kept the lock for `LOCK_SECONDS`.
    """
    descriptor = _open_lock(path)
    try:
        _lock(descriptor, path)
        try:
            yield
        finally:
            # `os.close` does not release the lock while a forked child has the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def supports_exclusive_locks(path: StrPath) -> bool:
    """Return whether a lock on `path` excludes a second holder."""
    with exclusive_lock(path):
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
        if tries.has_ended:
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
def open_temporary(folder: str) -> Iterator[BinaryIO]:
    """Open a new file in `folder`, and remove it on exit unless it was renamed."""
    path = f"{folder}/{create_nonce()}"
    try:
        stream = open(path, "xb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        make_folder(folder)
        stream = open(path, "xb")  # noqa: SIM115 - closed below
    try:
        with stream:
            yield stream
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def sync_file(stream: BinaryIO) -> str:
    """Sync the file to disk and return its path."""
    stream.flush()
    os.fsync(stream.fileno())
    return stream.name


def write_atomically(path: Path, body: bytes, *, mode: int = 0o666) -> None:
    """Replace a file's content atomically and durably, following links. A new file gets `mode`.

    Raises:
        OSError: The file cannot be written, and is unchanged.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(body)
        return
    # The dot hides the unfinished file from programs that read `*.prom`.
    fresh = target.with_name(f".{create_nonce()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as stream:
            stream.write(body)
            sync_file(stream)
        if target.exists():
            fresh.chmod(target.stat().st_mode & 0o7777)
        fresh.replace(target)
        sync_folder(str(target.parent))
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def rename_into_place(finished: str, target: str) -> None:
    """Rename a synced file to `target`, replacing it; durable on return."""
    _retry_creating_folder(target, lambda: os.rename(finished, target))


def link_into_place(finished: str, target: str) -> None:
    """Link a synced file to `target`; durable on return. Raise `FileExistsError` if `target` exists."""
    _retry_creating_folder(target, lambda: _link(finished, target))


def _link(finished: str, target: str) -> None:
    try:
        os.link(finished, target)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise OSError(errno.EOPNOTSUPP, "it has no hard links") from error
        raise


def _retry_creating_folder(target: str, act: Callable[[], object]) -> None:
    for _ in range(_FOLDER_RACES):
        with suppress(FileNotFoundError):
            act()
            break
        make_folder(os.path.dirname(target))
    else:
        act()
    sync_folder(os.path.dirname(target))


def make_folder(folder: str) -> None:
    """Create a folder and its parents durably, even if other processes remove empty folders."""
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
    """Sync a folder, so created, renamed and deleted names are durable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _CANNOT_SYNC:
            raise OSError(errno.EOPNOTSUPP, "it cannot sync folders to disk") from error
        raise
    finally:
        os.close(descriptor)


def remove_empty_folders(folder: str, *, above: str) -> None:
    """Remove `folder` and its parents below `above` while they are empty."""
    while folder.startswith(f"{above}/"):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def copy_contents(source: IO[bytes], sink: IO[bytes]) -> None:
    """Copy a file from its current position, in the kernel if possible."""
    try:
        while os.copy_file_range(source.fileno(), sink.fileno(), _COPY_BYTES):
            pass
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_KERNEL_COPY:
            raise
    # This loop copies what the kernel did not copy.
    while chunk := source.read(_CHUNK_BYTES):
        sink.write(chunk)


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM})
_IN_THE_WAY: Final = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY})
_CANNOT_LOCK: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BAD_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})


@contextmanager
def translate_file_errors(doing: str, path: str) -> Iterator[None]:
    """Translate `OSError` raised inside; `doing` completes "cannot … PATH"."""
    try:
        yield
    except OSError as error:
        raise error_from_os_error(error, doing, path) from error


def error_from_os_error(error: OSError, doing: str, path: str) -> ReconcilerError:
    """Return the error for an `OSError`; `doing` completes "cannot … PATH"."""
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
            f"{where}: a file is where a folder should be, or a folder where a file should be",
            hint="Move it away, or name another place.",
        )
    if code in _CANNOT_LOCK:
        return UserError(
            f"{where}: this file system cannot lock or link files ({_describe_reason(error)})",
            hint="Use a local disk, an NFS mount with locks, or s3://.",
        )
    if code == errno.EXDEV:
        return UserError(
            f"{where}: its folder and its root are on different file systems",
            hint="Mount one file system at the root, and nothing below it: objects are renamed into place.",
        )
    if code in _BAD_NAME:
        return UserError(f"{where}: {_describe_reason(error)}", hint="Use a shorter or simpler path.")
    if code in _TOO_MANY:
        return RetryableError(f"{where}: too many open files", hint="Raise the limit (`ulimit -n`) and run it again.")
    return RetryableError(f"{where}: {_describe_reason(error)}", hint="Check the disk or mount, then run it again.")


def _describe_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


_YOUNG_SECONDS: Final = 2
_NO_OBJECTS: Final = frozenset({RESERVED, "lost+found"})


def walk_files(root: Path, prefix: str) -> Iterator[ListedObject]:
    """Yield files under a key prefix, sorted by key."""
    folder, _, start = prefix.rpartition("/")
    base = f"{folder}/" if folder else ""
    now = time.time()  # noqa: TID251 - compared with the same machine's file times, see above
    yield from _walk(str(root), base, start, now - _YOUNG_SECONDS)


def _walk(root: str, base: str, start: str, young: float) -> Iterator[ListedObject]:
    for name, entry in _list_entries(root, base, start):
        if name.endswith("/"):
            yield from _walk(root, base + name, "", young)
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            continue
        hint = f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}"
        if stat.st_mtime > young:
            hint = f"{hint}-{create_nonce()}"
        yield ListedObject(base + name, stat.st_size, hint, stat.st_mtime_ns // 1_000_000)


def _list_entries(root: str, base: str, start: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Return entries in key order. Folders end with a slash; invalid UTF-8 is left out."""
    try:
        with os.scandir(os.path.join(root, base)) as entries:
            named_entries = [
                (f"{entry.name}/" if entry.is_dir() else entry.name, entry)
                for entry in entries
                if entry.name.startswith(start) and entry.name not in _NO_OBJECTS and is_valid_utf8(entry.name)
            ]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise error_from_os_error(error, "list", os.path.join(root, base)) from error
    except NotADirectoryError:
        if not base:
            raise
        return []
    return sorted(named_entries, key=lambda pair: pair[0])


_STRIPES: Final = 64
_ABANDONED_SECONDS: Final = 86_400
"""Age at which an unfinished file is deleted, because no write takes that long."""


class DirectoryStore:
    """An object store in a directory, which the first write creates."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.abspath(root))  # `Path.resolve` would follow symbolic links.
        self._folder = str(self._root)
        self._unfinished = f"{self._folder}/{RESERVED}/unfinished"
        self._has_swept = False

    def __reduce__(self) -> tuple[type[DirectoryStore], tuple[Path]]:
        return DirectoryStore, (self._root,)

    @property
    def url(self) -> str:
        """URL without secrets."""
        return f"file://{self._root}"

    @property
    def root(self) -> Path:
        """Folder of all objects."""
        return self._root

    def build_path(self, key: str) -> Path:
        """Return the path of an object's file."""
        return self._root / check_key(key)

    @property
    def can_encrypt(self) -> bool:
        """Always false."""
        return False

    def read_clock_ms(self) -> int:
        """Return the file system's time, read from a new file."""
        with translate_file_errors("write", self._unfinished), self._open_temporary() as stream:
            return os.fstat(stream.fileno()).st_mtime_ns // 1_000_000

    def get(self, key: str) -> StoredObject | None:
        """Return the object."""
        path = self._build_checked_path(key)
        with translate_file_errors("read", path):
            try:
                with open(path, "rb", buffering=0) as stream:
                    body = stream.readall()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return StoredObject(body, _compute_version(body))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        path = self._build_checked_path(key)
        with translate_file_errors("read", path), _open_object(path) as source:
            source.seek(start)
            body = source.read(length)
            # A read from a network mount may return fewer bytes than requested.
            while 0 < len(body) < length and (more := source.read(length - len(body))):
                body += more
            return body

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        """Store a new object."""
        path = self._build_checked_path(key)
        reject_kms_key(self.url, kms_key_id)
        with translate_file_errors("write", path), self._open_temporary() as stream:
            stream.write(body)
            rename_into_place(sync_file(stream), path)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        """Store `body` conditionally."""
        path = self._build_checked_path(key)
        with translate_file_errors("write", path), self._open_temporary() as stream:
            stream.write(body)
            finished = sync_file(stream)
            if expected is None:
                with suppress(FileExistsError):
                    link_into_place(finished, path)
                    return _compute_version(body)
                return verify_own_write(key, body, self.get(key))
            with exclusive_lock(self._build_lock_path(key)):
                current = self.get(key)
                if current is None or current.version != expected:
                    return verify_own_write(key, body, current)
                rename_into_place(finished, path)
        return _compute_version(body)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        """Copy an object, not by a hard link, since a copy must survive damage to the original."""
        path = self._build_checked_path(key)
        reject_kms_key(self.url, kms_key_id)
        with translate_file_errors("write", path), self._open_temporary() as stream:
            if isinstance(source, DirectoryStore):
                with _open_object(str(source.build_path(source_key))) as original:
                    copy_contents(original, stream)
            else:
                _copy_ranges(source, source_key, stream)
            rename_into_place(sync_file(stream), path)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield objects, sorted by key.

        The hint is inode, mtime and size. Files younger than 2 s have random hints, because file clocks are coarse.
        """
        with translate_file_errors("list", self._folder):
            yield from walk_files(self._root, prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        for key in keys:
            path = self._build_checked_path(key)
            with translate_file_errors("delete", path):
                self._delete(key, path)

    def find_violated_conditions(self) -> Sequence[str]:
        """Return conditions of locks and writes that the file system ignores."""
        stripe = self._build_lock_path("")
        with translate_file_errors("lock", stripe):
            problems = [] if supports_exclusive_locks(stripe) else ["its file locks do not keep a second holder out"]
        return problems + probe_conditions(self)

    def _build_checked_path(self, key: str) -> str:
        return f"{self._folder}/{check_key(key)}"

    def _delete(self, key: str, path: str) -> None:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        # Without the lock, a concurrent swap could create the object again.
        with exclusive_lock(self._build_lock_path(key)), suppress(FileNotFoundError):
            os.unlink(path)
        remove_empty_folders(os.path.dirname(path), above=self._folder)

    def _build_lock_path(self, key: str) -> str:
        number = sha256(key.encode()).digest()[0] % _STRIPES
        return f"{self._folder}/{RESERVED}/stripes/{number:02}"

    @contextmanager
    def _open_temporary(self) -> Iterator[BinaryIO]:
        with open_temporary(self._unfinished) as stream:
            if not self._has_swept:
                self._has_swept = True
                self._remove_abandoned_files(os.fstat(stream.fileno()).st_mtime)
            yield stream

    def _remove_abandoned_files(self, fresh: float) -> None:
        with os.scandir(self._unfinished) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if fresh - entry.stat().st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)


def _compute_version(body: bytes) -> Version:
    return Version(sha256(body).hexdigest())


@contextmanager
def _open_object(path: str) -> Iterator[IO[bytes]]:
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
