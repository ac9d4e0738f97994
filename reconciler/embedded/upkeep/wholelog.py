"""The whole log of a partition for who compacts it: what only object storage has, then what lies here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.jsonobjects import missing_offsets
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.remote.manifests.agreement import check_not_behind
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.owning import check_own
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.segments import Segment, segments_of
from reconciler.lifecycles.tiering import TieringState
from reconciler.records.log import OffsetRange
from reconciler.resources.clusterproperties import ENABLED, property_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore


def is_reached(head: Head, policy: CleanupPolicy, remote: RemoteTier | None) -> bool:
    """Tell whether all of a partition's log can be read and written anew now.

    Not what lies in object storage alone where there is none, where it is switched off, and while tiering is being
    switched off: a tombstone must not go while an older record of its key may be left there.
    """
    if head.start == head.local_start:
        return True
    if remote is None or policy.tiering is None or policy.tiering.state is TieringState.DISABLING:
        return False
    return property_of(remote.properties, ENABLED) == "true"


def place_of(policy: CleanupPolicy, partition: Partition) -> RemotePartition | None:
    """Return where a partition lies in object storage; `None`: its topic was never tiered."""
    return None if policy.tiering is None else remote_partition(policy.tiering.location, partition.number)


def remote_entries(head: Head, place: RemotePartition | None, remote: RemoteTier | None) -> tuple[Entry, ...]:
    """Return the segments of which something is nowhere but in object storage, oldest first.

    Raises:
        MissingObjectError: The manifest, or a page of it, is not there.
        OwnershipLostError: It belongs to another cluster now.
        UserError: It is damaged, or lacks what was uploaded.
    """
    if head.start == head.local_start or place is None or remote is None:
        return ()
    manifest = read_manifest(remote.storage, place)
    if manifest is None:
        raise missing_offsets(remote.storage, place.key, head.start, head.local_start - 1)
    check_own(place, manifest, remote.cluster_id)
    check_not_behind(manifest, head, place, place)
    return tuple(entries_within(remote.storage, manifest, OffsetRange(head.start, head.local_start)))


def whole_segments(
    store: ObjectStore, head: Head, remote: tuple[Entry, ...], policy: CleanupPolicy
) -> Iterator[Segment]:
    """Yield the segments of both tiers, oldest first; what is remote is closed."""
    for entry in remote:
        yield Segment((entry,), is_closed=True)
    yield from segments_of(entries_within(store, head, OffsetRange(head.local_start, head.end)), policy.limits)
