"""List the files of a directory in the order an object store lists its keys."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from reconciler.objectstore.base import Listed
from reconciler.objectstore.keys import RESERVED
from reconciler.objectstore.nonces import nonce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_YOUNG_SECONDS: Final = 2


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
    """Return a folder's entries in the order of their keys: a folder sorts as its name and a slash."""
    try:
        with os.scandir(os.path.join(root, base)) as entries:  # noqa: PTH118 - keys are text, a Path each is slow
            found = [
                (f"{entry.name}/" if entry.is_dir() else entry.name, entry)
                for entry in entries
                if entry.name.startswith(start) and entry.name != RESERVED
            ]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if not base:
            raise  # The root itself is a file: nothing can ever lie there.
        return []
    return sorted(found, key=lambda pair: pair[0])
