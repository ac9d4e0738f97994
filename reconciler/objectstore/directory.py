"""Objects as files of a directory, safe between threads, processes and kills.

Under the root lie the objects, each under its key, and `.store/`: 64 lock stripes and unfinished files. A version is
the sha256 of the content. A swap locks the key's stripe, compares, and renames a synced file into place; a create
links one, which needs no lock. Folders that become empty are removed, as an object store has none.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import MissingObjectError
from reconciler.objectstore.answers import mine_or_lost
from reconciler.objectstore.base import Stored, Version
from reconciler.objectstore.encryption import refuse_key
from reconciler.objectstore.faults import file_faults
from reconciler.objectstore.files import (
    copy_contents,
    create_in_place,
    is_exclusive,
    locked,
    put_in_place,
    remove_empty,
    seal,
    unfinished,
)
from reconciler.objectstore.keys import RESERVED, check_key
from reconciler.objectstore.probing import probe_conditions
from reconciler.objectstore.walking import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import IO, BinaryIO

    from reconciler.objectstore.base import Listed, ObjectStore

_STRIPES: Final = 64
_ABANDONED_SECONDS: Final = 86_400
"""An unfinished file untouched for this long belongs to a writer that was killed."""
_CHUNK_BYTES: Final = 8 << 20


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
            return source.read(length)

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
