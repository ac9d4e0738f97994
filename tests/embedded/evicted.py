"""Records that lie in object storage alone: what uploading and evicting leave behind, written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.keys import index_key, segment_key
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.embedded.tiered.manifest import ManifestSwap
from tests.embedded.upkeeping import TOPIC, head_of

if TYPE_CHECKING:
    from reconciler.embedded.segments.entries import Entry
    from reconciler.embedded.segments.head import Head
    from reconciler.embedded.tiered.manifest import Manifest
    from tests.embedded.tiered import Tiered


def put_remote(it: Tiered, upto: int, *, partition: int = 0) -> tuple[Entry, ...]:
    """Copy every local part below offset `upto` to object storage; nothing names the copies yet."""
    copies: list[Entry] = []
    for entry in head_of(it.cluster, partition).entries:
        if entry.last < upto:
            key = segment_key(it.remote(partition).place, (entry.base, entry.last), entry.bytes, entry.epoch)
            it.storage.copy_in(key, it.store, entry.key)
            it.storage.put(index_key(key), b"footer")
            copies.append(replace(entry, key=key, is_segment=True))
    return tuple(copies)


def name_remote(it: Tiered, copies: tuple[Entry, ...], *, partition: int = 0) -> Manifest | None:
    """Name copies in the manifest, which then ends after them."""

    def named(manifest: Manifest) -> Manifest:
        return replace(manifest, end=copies[-1].last + 1, entries=(*manifest.entries, *copies))

    return ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())(it.remote(partition), named)


def upload_by_hand(it: Tiered, upto: int, *, evicts: int = 0, partition: int = 0) -> None:
    """Have the remote tier hold every record below `upto`, and the local one none below `evicts`."""
    name_remote(it, put_remote(it, upto, partition=partition), partition=partition)

    def evicted(head: Head) -> Head:
        kept = tuple(entry for entry in head.entries if entry.base >= evicts)
        return replace(head, uploaded_to=upto, local_start=max(head.local_start, evicts), entries=kept)

    topic_id = it.cluster.catalog.read().topics[TOPIC].id
    assert swap_head(it.store, Partition(TOPIC, topic_id, partition), evicted)
