"""Uploading once more what was compacted since: the remote copies of a stretch give place to what lies here now.

A record that compaction removed here goes there too; what is read stays right with any mix of both, for the newest
record of every key is in either. Segments are compared by their offsets and digests, never by their bytes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten
from reconciler.embedded.remote.manifests.rewrites import RemoteRewrite, whole_or_deleted
from reconciler.records.log import OffsetRange
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.remote.uploading.upload import Upload
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore

    Stretch = tuple[tuple[Entry, ...], tuple[Entry, ...]]
    """What lies there, and what lies here in its place; of either maybe nothing."""


def reuploads(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Tell whether what is compacted of a topic is uploaded once more."""
    is_on = property_of(remote.properties, "cloud_storage_enable_compacted_topic_reupload") == "true"
    return is_on and policy.compacts and policy.tiering is not None and policy.tiering.uploads


def outdated(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest) -> Iterator[Stretch]:
    """Yield the stretches of which the remote tier has another version than the local one, oldest first.

    They are compacted here, in whole segments, lie in both tiers and nowhere else.
    """
    start, stop = head.local_start, min(head.compacted_to, manifest.end)
    if start >= stop:
        return
    both = OffsetRange(start, stop)
    for there, here in stretches(entries_within(storage, manifest, both), entries_within(store, head, both)):
        is_settled = all(entry.is_within(both) for entry in (*there, *here)) and all(entry.is_segment for entry in here)
        if is_settled and there and list(map(_version, there)) != list(map(_version, here)):
            yield there, here


def stretches(there: Iterable[Entry], here: Iterable[Entry]) -> Iterator[Stretch]:
    """Yield entries of both tiers, those that overlap together; each oldest first. Pure."""
    tagged = chain(((entry, True) for entry in there), ((entry, False) for entry in here))
    run: list[tuple[Entry, bool]] = []
    last = -1
    for entry, is_remote in sorted(tagged, key=lambda each: (each[0].base, each[0].last)):
        if run and entry.base > last:
            yield _split(run)
            run = []
        run.append((entry, is_remote))
        last = max(last, entry.last)
    if run:
        yield _split(run)


def reuploaded(upload: Upload, head: Head, manifest: Manifest, remote: RemoteTier, offsets: OffsetRange) -> Rewritten:
    """Put what takes the place of the outdated stretches that begin in a range; nothing of it is named yet.

    Raises:
        MissingObjectError: A part or page is not there.
        UserError: A part is damaged.
    """
    with whole_or_deleted(remote.storage) as done:
        for there, here in outdated(upload.store, remote.storage, head, manifest):
            if offsets.start <= there[0].base < offsets.stop:
                done.append(Replacement.of(there, list(_successors(upload, there, here))))
    rewrite = RemoteRewrite(upload.remote, remote.cluster_id, upload.tiering, tuple(done))
    return Rewritten(upload.partition, (), remote=rewrite)


def _successors(upload: Upload, there: Sequence[Entry], here: Sequence[Entry]) -> Iterator[Entry]:
    """Yield what takes the place of a stretch: where only the time for tombstones was set, nothing is copied."""
    if list(map(_content, there)) == list(map(_content, here)):
        yield from (replace(far, horizon_ms=near.horizon_ms) for far, near in zip(there, here, strict=True))
    else:
        yield from map(upload.copy, here)


def _split(run: Sequence[tuple[Entry, bool]]) -> Stretch:
    there = tuple(entry for entry, is_remote in run if is_remote)
    return there, tuple(entry for entry, is_remote in run if not is_remote)


def _version(entry: Entry) -> tuple[object, ...]:
    return *_content(entry), entry.horizon_ms


def _content(entry: Entry) -> tuple[object, ...]:
    return entry.base, entry.last, entry.digest
