"""Garbage of a manifest: its objects are deleted, then it is forgotten. Whoever finds some does it, as often as wanted.

A page is deleted after all that it names: where one is not there, somebody has been here before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.entries import Entry, PageRef
from reconciler.embedded.partition.pages import read_page
from reconciler.embedded.remote.manifests.manifest import Garbage
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.embedded.remote.manifests.swaps import ManifestSwap
    from reconciler.objectstore.base import ObjectStore

N = TypeVar("N", Entry, PageRef)


def purge(swap: ManifestSwap, partition: RemotePartition, garbage: Garbage) -> bool:
    """Delete what a manifest has as garbage, and take it from there; say whether there was any.

    Raises:
        OwnershipLostError: The partition belongs to another cluster now; its garbage is gone nevertheless.
        UserError: The manifest or one of its pages is damaged.
    """
    if not garbage:
        return False
    delete_garbage(swap.storage, garbage)
    keys = {page.key for page in garbage.pages} | {entry.key for entry in garbage.entries}

    def forgotten(manifest: Manifest) -> Manifest | None:
        left = Garbage(_without(manifest.garbage.pages, keys), _without(manifest.garbage.entries, keys))
        return None if left == manifest.garbage else replace(manifest, garbage=left)

    swap(partition, forgotten)
    return True


def delete_garbage(storage: ObjectStore, garbage: Garbage) -> None:
    """Delete the objects of garbage: segments with their indexes, and pages after all that they name."""
    storage.delete(objects_of(garbage.entries))
    for page in garbage.pages:
        try:
            entries = read_page(storage, page)
        except MissingObjectError:
            continue  # All that it named went before it.
        storage.delete(objects_of(entries))
        storage.delete([page.key])


def objects_of(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the keys of segments, each with its index."""
    for entry in entries:
        yield entry.key
        yield index_key(entry.key)


def _without(named: Iterable[N], keys: set[str]) -> tuple[N, ...]:
    return tuple(each for each in named if each.key not in keys)
