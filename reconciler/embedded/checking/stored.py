"""What a store holds, in sixteen bytes an object: a cluster of ten million parts is checked in memory that is there."""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from reconciler.embedded.keys import CATALOG, CLUSTER, GROUPS, HEADS, STORAGE, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.objectstore.base import Listed, ObjectStore

IMMUTABLE: Final = ("catalog/", "pages/", "topics/")
"""Where objects lie that exist because another object names them."""
Places: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
Found: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"

REGISTERS: Final = (HEADS, GROUPS, TRANSACTIONS)
_OTHERS: Final = ("runner/",)


@dataclass(slots=True)
class Foreign:
    """What lies in a folder that is not part of a cluster."""

    first: str
    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Contents:
    """One listing of a store: registers by key, immutable objects by a hash of their key, the rest by folder."""

    registers: dict[str, list[str]] = field(default_factory=lambda: {prefix: [] for prefix in REGISTERS})
    foreign: dict[str, Foreign] = field(default_factory=dict)
    """By folder, `""` for what lies in none."""
    storages: list[str] = field(default_factory=list)
    """The `storage.json` of each object storage that lies here, or where immutable objects do."""
    objects: int = 0
    bytes: int = 0


class Stored:
    """The immutable objects of one listing. Looking up and naming are safe from any thread."""

    def __init__(self, names: array[int], sizes: array[int]) -> None:
        hashes = np.frombuffer(names, np.uint64) if names else np.empty(0, np.uint64)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._sizes = (np.frombuffer(sizes, np.int64) if sizes else np.empty(0, np.int64))[order]
        self._is_named = np.zeros(len(order), np.bool_)
        self._lock = threading.Lock()

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Return the size of each object in bytes; `None` where the listing did not have it."""
        places, is_there = self._find(keys)
        return [int(self._sizes[place]) if found else None for place, found in zip(places, is_there, strict=True)]

    def name(self, keys: Sequence[str]) -> list[str]:
        """Remember that these are named; return those that had been named before."""
        places, is_there = self._find(keys)
        with self._lock:
            again = [
                key for key, place, found in zip(keys, places, is_there, strict=True) if found and self._is_named[place]
            ]
            self._is_named[places[is_there]] = True
        return again

    @property
    def is_all_named(self) -> bool:
        """Tell whether every object of the listing is named."""
        return bool(self._is_named.all())

    def unnamed(self, listed: Iterable[Listed]) -> Iterator[Listed]:
        """Yield what was there at the first listing and is named by nobody."""
        for each in listed:
            places, is_there = self._find([each.key])
            if is_there[0] and not self._is_named[places[0]]:
                yield each

    def _find(self, keys: Sequence[str]) -> tuple[Places, Found]:
        wanted = np.frombuffer(b"".join(map(_hash, keys)), np.uint64)
        if not len(self._hashes):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        places = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return places, self._hashes[places] == wanted


def list_store(store: ObjectStore) -> tuple[Contents, Stored]:
    """List all of a store, once."""
    contents, names, sizes = Contents(), array("Q"), array("q")
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
                names.frombytes(_hash(listed.key))
                sizes.append(listed.size)
        elif listed.key != CLUSTER and folder not in _OTHERS:
            if listed.key == STORAGE:
                contents.storages.append(listed.key)
            found = contents.foreign.setdefault(folder, Foreign(listed.key))
            found.objects += 1
            found.bytes += listed.size
    return contents, Stored(names, sizes)


def list_below(store: ObjectStore, prefix: str) -> Stored:
    """List what lies below a prefix, once."""
    names, sizes = array("Q"), array("q")
    for listed in store.list(prefix):
        names.frombytes(_hash(listed.key))
        sizes.append(listed.size)
    return Stored(names, sizes)


def _hash(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=8).digest()
