"""Topics mounted and unmounted, in the words of the provider protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.mounting.ownership import sound_ownerships
from reconciler.errors import UserError
from reconciler.resources.mountable import Mountable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.mounting.ownership import Ownership
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address


def mountable_in(cluster: Address, storage: ObjectStore | None) -> Sequence[Mountable]:
    """Return every topic that was ever detached, sorted by location.

    Raises:
        UserError: There is no object storage, or a register of it is damaged.
    """
    return [mountable_of(each) for each in sound_ownerships(given(cluster, storage))]


def given(cluster: Address, storage: ObjectStore | None) -> ObjectStore:
    """Return the object storage of a cluster.

    Raises:
        UserError: It has none.
    """
    if storage is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster} has no object storage", hint=hint)
    return storage


def mountable_of(found: Ownership) -> Mountable:
    """Say what a register does in the words of plans."""
    return Mountable(
        str(found.location),
        found.location.topic,
        found.state.value,
        found.owner,
        found.name,
        found.partitions,
        found.records,
        found.bytes,
        found.at_ms,
    )
