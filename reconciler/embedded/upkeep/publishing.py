"""What was written of a partition is named: in object storage first, then here.

In this order nothing of the local tier ever counts on what the remote tier does not have yet: where the remote part is
not as it was read, nothing is named, and what was written is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.partition.rebuilding import Gain
from reconciler.embedded.partition.replacing import publish_rewritten
from reconciler.embedded.remote.manifests.rewrites import keys_of, publish_remote

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.partition.replacing import Rewritten
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.objectstore.base import ObjectStore


def publish(
    store: ObjectStore, remote: RemoteTier | None, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> Gain | None:
    """Name what was written, then delete what that makes superfluous, in each tier.

    `put_ms`: since when it may have lain there, by the clock `now_ms`. Return what came of it; `None`: nothing.

    Raises:
        MissingObjectError: A page is not there.
        OwnershipLostError: The partition's remote part belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    if rewritten.remote is None or remote is None:
        return publish_rewritten(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    there: Gain | None = None
    try:
        there = publish_remote(remote.storage, rewritten.remote, put_ms=put_ms, now_ms=now_ms)
    finally:
        if there is None:
            _drop_local(store, rewritten)
    if there is None or rewritten.compacted_to is None:
        return there
    here = publish_rewritten(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    return there if here is None else Gain(there.records + here.records, there.bytes + here.bytes, there.uploaded)


def drop(
    store: ObjectStore, remote: RemoteTier | None, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> None:
    """Delete what was written and is not to be named. It is called as `publish` is."""
    del put_ms, now_ms
    _drop_local(store, rewritten)
    if rewritten.remote is not None and remote is not None:
        remote.storage.delete(keys_of(key for one in rewritten.remote.replacements for key in one.written))


def _drop_local(store: ObjectStore, rewritten: Rewritten) -> None:
    store.delete([key for one in rewritten.replacements for key in one.written])
