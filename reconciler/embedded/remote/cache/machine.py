"""The caches of this process: one for each place and set of properties, with the threads that fetch for it."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.cache.chunks import ChunkCache
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_LOCK: Final = threading.Lock()


def machine_of(properties: Mapping[str, str], folder: str | None) -> Machine:
    """Return the cache that properties ask for, in this process: a fork must not share its parent's threads.

    Raises:
        UserError: The properties cannot be.
    """
    key = (os.getpid(), folder, *sorted(properties.items()))
    with _LOCK:
        found = _MACHINES.get(key)
        if found is None:
            cache = ChunkCache(properties, folder)
            threads = min(_MOST_THREADS, int(property_of(properties, "cloud_storage_max_connections") or 1))
            pool = ThreadPoolExecutor(threads, thread_name_prefix="chunks")
            found = _MACHINES[key] = Machine(cache, pool, Allowance(_AHEAD_CHUNKS * cache.chunk_bytes))
        return found
