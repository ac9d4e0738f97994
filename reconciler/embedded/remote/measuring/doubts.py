"""Whether a manifest can be what was uploaded, by what the head of the partition knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.jsonobjects import RESTORE_HINT
from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition
    from reconciler.objectstore.base import ObjectStore


def doubt(storage: ObjectStore, partition: RemotePartition, head: Head, manifest: Manifest | None) -> UserError | None:
    """Return why a manifest cannot name all that was uploaded of a log; `None`: it can.

    A head that was read before its manifest may be behind it: what is doubted is judged again by a newer head.
    """
    if head.start >= head.uploaded_to:
        return None  # Nothing of the log was uploaded.
    uploaded = f"offsets {head.start} to {head.uploaded_to - 1} of partition {partition.number}"
    if manifest is None:
        return _error(f"{storage.url} has no object {partition.key}, which names what was uploaded: {uploaded}")
    if manifest.end < head.uploaded_to:
        names = f"names nothing from offset {manifest.end} on"
    elif head.start < min(manifest.start, head.local_start):
        names = f"names nothing below offset {manifest.start}"
    else:
        return None
    return _error(f"{storage.url}: {partition.key} {names}, and uploaded were {uploaded}")


def _error(message: str) -> UserError:
    return UserError(message, hint=RESTORE_HINT)
