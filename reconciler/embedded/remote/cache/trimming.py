"""Trimming: what was not used for longest goes, segment by segment, until the cache is as small as it should be."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.cache.files import evict, is_held
from reconciler.embedded.remote.cache.limits import Usage
from reconciler.embedded.remote.cache.strategies import Hydrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.embedded.remote.cache.strategies import Rule

CHUNKS: Final = "_chunks"
"""Ends the name of the folder a segment's chunks lie in."""
_BYTES_IN_NAME: Final = 2
"""Which part of a segment's name says how many bytes it has."""


@dataclass(frozen=True, slots=True)
class Lying:
    """A file of the cache."""

    path: str
    bytes: int
    used_ns: int

    @property
    def segment(self) -> str:
        """The path that all files of its segment share."""
        folder = self.path.rpartition("/")[0]
        stem = folder.removesuffix(CHUNKS) if folder.endswith(CHUNKS) else self.path
        return stem.removesuffix(".parquet").removesuffix(".index")


@dataclass(slots=True)
class Trim:
    """One trim, to a target; `left` is what the cache takes then."""

    rule: Rule
    chunk_bytes: int
    target: Usage
    left: Usage
    needs: Callable[[str], Mapping[int, int]]
    """Path of a segment → first byte of a chunk → how many readers of this process will come to it."""
    evicted: list[str] = field(default_factory=list)

    def run(self, lying: list[Lying]) -> None:
        """Let the strategy have its part of each segment, the one used longest ago first; then whatever is oldest."""
        segments: defaultdict[str, list[Lying]] = defaultdict(list)
        for each in lying:
            segments[each.segment].append(each)
        by_age = sorted(segments, key=lambda name: (max(each.used_ns for each in segments[name]), name))
        for name in by_age:
            if self._is_done():
                return
            for each in self._chosen(name, segments[name]):
                self._evict(each)
            self._forget_index(segments[name])
        gone = set(self.evicted)
        for each in sorted(lying, key=lambda each: (each.used_ns, each.path)):
            if self._is_done():
                return
            if each.path not in gone:
                self._evict(each)

    def _chosen(self, segment: str, files: list[Lying]) -> Iterator[Lying]:
        """Yield what the strategy takes of a segment's chunks."""
        chunks = {int(name): each for each in files if (name := Path(each.path).name).isdecimal()}
        needed = self.needs(segment)
        hydrated = [
            Hydrated(start, each.used_ns, is_held(each.path), needed.get(start, 0))
            for start, each in sorted(chunks.items())
        ]
        total = max(len(hydrated), -(-stored_bytes_in(segment) // self.chunk_bytes))
        yield from (chunks[each.start] for each in self.rule.evicted(hydrated, total))

    def _forget_index(self, files: list[Lying]) -> None:
        """Evict what stands beside a segment of which nothing is left."""
        gone = set(self.evicted)
        rest = [each for each in files if each.path not in gone]
        if files and len(rest) < len(files) and all(each.path.endswith(".index") for each in rest):
            for each in rest:
                self._evict(each)

    def _evict(self, each: Lying) -> None:
        if evict(each.path):
            self.evicted.append(each.path)
            self.left = Usage(self.left.bytes - each.bytes, self.left.objects - 1)
            with suppress(OSError):  # It is not empty, or gone.
                Path(each.path).parent.rmdir()

    def _is_done(self) -> bool:
        return self.left.bytes <= self.target.bytes and self.left.objects <= self.target.objects


def stored_bytes_in(segment: str) -> int:
    """Return how many bytes a segment has, by its name; 0 where the name does not say."""
    pieces = Path(segment).name.split("-")
    is_named = len(pieces) > _BYTES_IN_NAME and pieces[_BYTES_IN_NAME].isdecimal()
    return int(pieces[_BYTES_IN_NAME]) if is_named else 0


def walk(folder: str) -> list[Lying]:
    """Return every file of a cache."""
    found: list[Lying] = []
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):
                        seen = entry.stat(follow_symlinks=False)
                        found.append(Lying(entry.path, seen.st_size, seen.st_mtime_ns))
    return found


def usage_of(lying: list[Lying]) -> Usage:
    """Sum up what files take."""
    return Usage(sum(each.bytes for each in lying), len(lying))
