"""A compact index of a store's objects, and objects of partitions without a head."""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from reconciler.archives.keys import CLUSTER, STORAGE
from reconciler.embedded.check.damage import CheckFinding, FindingPlace, Kind
from reconciler.embedded.keys import (
    CATALOG,
    GROUPS,
    HEADS,
    PAGES,
    TRANSACTIONS,
    head_key,
    parse_page_key,
    parse_part_key,
)
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ListedObject, ObjectStore


IMMUTABLE: Final = ("catalog/", "pages/", "topics/")
Places: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
Found: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"

REGISTERS: Final = (HEADS, GROUPS, TRANSACTIONS)
_OTHERS: Final = ("runner/",)


@dataclass(slots=True)
class ForeignFolder:
    """Objects in a folder that belongs to no cluster."""

    first: str
    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class StoreListing:
    """Result of listing a store: register keys by prefix, and foreign objects by folder."""

    registers: dict[str, list[str]] = field(default_factory=lambda: {prefix: [] for prefix in REGISTERS})
    foreign: dict[str, ForeignFolder] = field(default_factory=dict)
    storages: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0


class ObjectIndex:
    """Index of immutable objects by key. Thread-safe."""

    def __init__(self, names: array[int], sizes: array[int]) -> None:
        hashes = np.frombuffer(names, np.uint64) if names else np.empty(0, np.uint64)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._sizes = (np.frombuffer(sizes, np.int64) if sizes else np.empty(0, np.int64))[order]
        self._is_named = np.zeros(len(order), np.bool_)
        self._lock = threading.Lock()

    def find_sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Return objects' sizes in bytes; `None` for an object not listed."""
        places, is_there = self._find_positions(keys)
        return [
            int(self._sizes[place]) if is_listed else None for place, is_listed in zip(places, is_there, strict=True)
        ]

    def mark_referenced(self, keys: Sequence[str]) -> list[str]:
        """Mark objects as referenced; return the keys already marked."""
        places, is_there = self._find_positions(keys)
        with self._lock:
            again = [
                key
                for key, place, is_listed in zip(keys, places, is_there, strict=True)
                if is_listed and self._is_named[place]
            ]
            self._is_named[places[is_there]] = True
        return again

    @property
    def are_all_referenced(self) -> bool:
        """Whether every listed object is referenced."""
        return bool(self._is_named.all())

    def find_unreferenced(self, listed: Iterable[ListedObject]) -> Iterator[ListedObject]:
        """Yield the unreferenced objects."""
        for candidate in listed:
            places, is_there = self._find_positions([candidate.key])
            if is_there[0] and not self._is_named[places[0]]:
                yield candidate

    def _find_positions(self, keys: Sequence[str]) -> tuple[Places, Found]:
        wanted = np.frombuffer(b"".join(map(_hash_key, keys)), np.uint64)
        if not len(self._hashes):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        places = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return places, self._hashes[places] == wanted


def list_store(store: ObjectStore) -> tuple[StoreListing, ObjectIndex]:
    """List a whole store with one LIST."""
    contents, names, sizes = StoreListing(), array("Q"), array("q")
    for listed in store.list(""):
        contents.objects += 1
        contents.bytes += listed.size
        folder = listed.key[: listed.key.find("/") + 1]
        if folder in REGISTERS:
            contents.registers[folder].append(listed.key)
        elif folder in IMMUTABLE:
            if listed.key.endswith(f"/{STORAGE}"):
                contents.storages.append(listed.key)
            if listed.key != CATALOG:
                names.frombytes(_hash_key(listed.key))
                sizes.append(listed.size)
        elif listed.key != CLUSTER and folder not in _OTHERS:
            if listed.key == STORAGE:
                contents.storages.append(listed.key)
            other = contents.foreign.setdefault(folder, ForeignFolder(listed.key))
            other.objects += 1
            other.bytes += listed.size
    return contents, ObjectIndex(names, sizes)


def index_objects_below(store: ObjectStore, prefix: str) -> ObjectIndex:
    """List the objects below a prefix with one LIST."""
    names, sizes = array("Q"), array("q")
    for listed in store.list(prefix):
        names.frombytes(_hash_key(listed.key))
        sizes.append(listed.size)
    return ObjectIndex(names, sizes)


def _hash_key(key: str) -> bytes:
    # Case is ignored, as in some file systems; keys differ by random digits.
    return blake2b(key.lower().encode(), digest_size=8).digest()


PartitionId: TypeAlias = tuple[str, int]

_MAX_APPEND_MS: Final = 10 * 60_000
"""Longest time to write all parts of one append."""


@dataclass(frozen=True, slots=True)
class HeadlessPartitions:
    """Finds the partitions without a head that an object may belong to.

    Parts are stored under a topic's current or original name.
    """

    ids: Mapping[str, Collection[str]]
    names: Mapping[str, str]
    heads: Collection[str]

    @classmethod
    def of(cls, catalog: Catalog, heads: Iterable[str]) -> HeadlessPartitions:
        """Index a catalog's topics; `heads` are the keys of existing heads."""
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for name, entry in catalog.topics.items():
            ids[name].add(entry.id)
            if entry.origin is not None:
                ids[entry.origin[0]].add(entry.id)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        return cls(dict(ids), names, frozenset(heads))

    def find_partitions(self, key: str) -> list[PartitionId]:
        """Return the partitions without a head that an object may belong to."""
        if key.startswith(PAGES):
            page = parse_page_key(key)
            places = [] if page is None or page[0] not in self.names else [page]
        else:
            part = parse_part_key(key)
            places = [] if part is None else [(topic_id, part[1]) for topic_id in sorted(self.ids.get(part[0], ()))]
        return [place for place in places if head_key(*place) not in self.heads]

    def is_shared(self, key: str) -> bool:
        """Whether a part may belong to several topics that had the same name."""
        part = parse_part_key(key)
        return part is not None and len(self.ids.get(part[0], ())) > 1


@dataclass(slots=True)
class _Leftovers:
    first: str
    first_ms: int
    last_ms: int
    objects: int = 0
    bytes: int = 0
    has_pages: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class HeadlessObjects:
    """Objects of partitions without a head.

    `committed` are partitions with group offsets.
    """

    headless: HeadlessPartitions
    committed: Collection[PartitionId]
    left: dict[PartitionId, _Leftovers] = field(default_factory=dict)

    def count_if_headless(self, listed: ListedObject) -> bool:
        """Count an object if it may belong to a partition without a head; return whether it may."""
        places = self.headless.find_partitions(listed.key)
        for place in places:
            left = self.left.setdefault(place, _Leftovers(listed.key, listed.modified_ms, listed.modified_ms))
            left.objects += 1
            left.bytes += listed.size
            left.first_ms, left.last_ms = min(left.first_ms, listed.modified_ms), max(left.last_ms, listed.modified_ms)
            left.has_pages |= listed.key.startswith(PAGES)
            left.is_shared |= self.headless.is_shared(listed.key)
        return bool(places)

    def report_partitions(self, now_ms: int) -> Iterator[CheckFinding]:
        """Yield one finding per partition without a head."""
        for (topic_id, partition), left in sorted(self.left.items()):
            signs = [
                (left.has_pages, "it has pages"),
                ((topic_id, partition) in self.committed, "a group has read from it"),
                (not left.is_shared and left.last_ms - left.first_ms > _MAX_APPEND_MS, "they were not written at once"),
            ]
            known_by = [why for is_so, why in signs if is_so]
            objects = pluralize(left.objects, "object")
            what = ", ".join([f"{objects} and no {head_key(topic_id, partition)}", *known_by])
            place = FindingPlace(left.first, self.headless.names[topic_id], partition)
            kind = Kind.HEAD_LOST if known_by else Kind.PARTS_WITHOUT_HEAD
            yield CheckFinding(kind, what, place, (), left.objects, left.bytes, max(0, now_ms - left.first_ms))
