"""Whether two clusters have one object storage: what one detaches there, the other can mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Observed


def is_one_storage(one: Cluster, seen_one: Observed | None, other: Cluster, seen_other: Observed | None) -> bool:
    """Tell by the ids of the storages, wherever they are reached; where one is not known, by where they are declared.

    A storage that nobody has tiered into has no id yet.
    """
    here, there = one.spec.object_storage, other.spec.object_storage
    if here is None or there is None:
        return False
    found = tuple(seen.storage.found if seen and seen.storage else None for seen in (seen_one, seen_other))
    if None not in found:
        return found[0] == found[1]
    return (here.url.rstrip("/"), here.endpoint) == (there.url.rstrip("/"), there.endpoint)
