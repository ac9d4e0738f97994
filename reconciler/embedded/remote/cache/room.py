"""Room in the cache: what it takes is known from the last walk and what was added since. When full it is trimmed.

How old that knowledge is the file system's own clock says. Several processes share one folder: each knows what it added
itself, and learns the rest from its next walk.
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.cache.limits import Usage, limits_of
from reconciler.embedded.remote.cache.strategies import Rule
from reconciler.embedded.remote.cache.trimming import Trim, usage_of, walk
from reconciler.noting import note
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.embedded.remote.cache.limits import Limits
    from reconciler.embedded.remote.cache.trimming import Lying

_NS_PER_MS: Final = 1_000_000
_LOGGER: Final = logging.getLogger("reconciler.cache")


@dataclass(frozen=True, slots=True)
class Place:
    """A cache folder, and below it: what is cached, what is being written, and who trims."""

    folder: Path

    @property
    def files(self) -> str:
        """Below it lies what is cached, under the keys of object storage."""
        return f"{self.folder}/files"

    @property
    def drafts(self) -> str:
        """What is being written."""
        return f"{self.folder}/drafts"

    def make(self) -> None:
        """Make the folder, or make it anew.

        Raises:
            OSError: The disk refuses it.
        """
        Path(self.drafts).mkdir(mode=0o700, parents=True, exist_ok=True)


class Room:
    """Keeps a cache within its limits. Safe to share between threads."""

    def __init__(self, place: Place, properties: Mapping[str, str], needs: Callable[[str], Mapping[int, int]]) -> None:
        self._place = place
        self._limits = limits_of(properties, shutil.disk_usage(place.folder).total)
        self._rule = Rule.of(properties)
        self._chunk_bytes = int(property_of(properties, "cloud_storage_cache_chunk_size") or 0)
        self._interval_ns = int(property_of(properties, "cloud_storage_cache_check_interval_ms") or 0) * _NS_PER_MS
        self._needs = needs
        self._lock = threading.Lock()
        self._used: Usage | None = None
        self._walked_ns = 0

    @property
    def limits(self) -> Limits:
        """What the cache may take."""
        return self._limits

    def take(self, size: int) -> bool:
        """Say that a file of so many bytes is about to be written; tell whether there is room for it.

        Raises:
            OSError: The folder cannot be looked at.
        """
        with self._lock:
            used = self._used
            if used is None or self._is_old():
                used = usage_of(self._walked())
            wanted = Usage(used.bytes + size, used.objects + 1)
            if self._limits.target(wanted) is not None:
                used = self._trimmed(size)
                wanted = Usage(used.bytes + size, used.objects + 1)
            fits = wanted.bytes <= self._limits.most.bytes and wanted.objects <= self._limits.most.objects
            self._used = wanted if fits else used
            return fits

    def _is_old(self) -> bool:
        """Tell whether the last walk is longer ago than the interval of checks; the last write says what time it is."""
        return self._written_ns() - self._walked_ns >= self._interval_ns

    def _written_ns(self) -> int:
        return Path(self._place.drafts).stat().st_mtime_ns

    def _walked(self) -> list[Lying]:
        self._walked_ns = self._written_ns()
        return walk(str(self._place.folder))

    def _trimmed(self, size: int) -> Usage:
        """Look what is there now, and where a file of so many bytes makes that too much, trim; return what is left."""
        lying = self._walked()
        used = usage_of(lying)
        target = self._limits.target(Usage(used.bytes + size, used.objects + 1))
        if target is None:
            return used
        target = Usage(target.bytes - size, target.objects - 1)
        trim = Trim(self._rule, self._chunk_bytes, target, used, self._needs)
        trim.run(lying)
        note(_LOGGER, "trimmed", evicted=len(trim.evicted), bytes=used.bytes - trim.left.bytes, left=trim.left.bytes)
        return trim.left
