"""What a manifest names and the head does not know as uploaded: an upload that died in between, or others' records.

A cluster that was put back from an older copy writes offsets anew that object storage has with other records. So the
head follows its manifest only where both have the same: by digests, and by reading where a border cuts a segment.
Where keys were compacted since, the copies differ rightly, and only the ends are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.partfiles import read_part
from reconciler.embedded.remote.manifests.agreement import check_not_behind
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.digest import Digest
from reconciler.records.hashing import digest_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.partition.pages import Paged
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore

_LOOKS: Final = 3


def agreeing(
    store: ObjectStore, storage: ObjectStore, partition: Partition, tiering: Tiering
) -> tuple[Head, Manifest] | None:
    """Return head and manifest as they are now, once both say the same; `None`: others know more than we do.

    Raises:
        MissingObjectError: A part or page is not there.
        UserError: The manifest lacks what was uploaded, or has other records than the head.
    """
    remote = remote_partition(tiering.location, partition.number)
    look = 1
    while True:
        # The head never falls behind what a manifest named before, nor a manifest behind what a head said before.
        manifest = read_manifest(storage, remote)
        head = read_head(store, partition.topic_id, partition.number)
        if manifest is not None and head is not None and manifest.end < head.uploaded_to:
            manifest = read_manifest(storage, remote)
        if head is None or max(head.tiered_epoch, manifest.tiered_epoch if manifest else 0) > tiering.epoch:
            return None
        check_not_behind(manifest, head, remote, partition)
        if manifest is None:
            return None
        try:
            other = _other(store, storage, head, manifest, partition.number)
        except MissingObjectError:
            # Others may have put another object in its place: head and manifest tell.
            if look == _LOOKS:
                raise
        else:
            if other is None:
                return head, manifest
            if look == _LOOKS:
                raise _older(partition, remote.key, other)
        look += 1


def _other(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest, number: int) -> OffsetRange | None:
    """Return the offsets that object storage has other records at; `None`: there are none."""
    if manifest.end > head.end:
        return OffsetRange(head.uploaded_to, manifest.end)
    start = max(head.uploaded_to, head.local_start)
    if start >= manifest.end or max(head.compacted_to, manifest.compacted_to) > start:
        return None
    both = OffsetRange(start, manifest.end)
    is_same = _digest(store, head, both, number) == _digest(storage, manifest, both, number)
    return None if is_same else both


def _digest(store: ObjectStore, held: Paged, offsets: OffsetRange, number: int) -> Digest:
    found = Digest()
    for entry in entries_within(store, held, offsets):
        if entry.is_within(offsets):
            found += entry.digest.shifted(entry.base)
        else:
            for batch in read_part(store, entry, number, offsets):
                found += digest_of(batch, base=0)
    return found


def _older(partition: Partition, key: str, other: OffsetRange) -> UserError:
    message = (
        f"{partition}: object storage has other records at offsets {other.start} to {other.stop - 1} than the cluster "
        f"({key}): the cluster is an older copy"
    )
    hint = (
        "Restore the newest copy of the cluster, or recover the topic from object storage under another name "
        "(recoverFrom); nothing was uploaded."
    )
    return UserError(message, hint=hint)
