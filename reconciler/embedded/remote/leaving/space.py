"""How much local data may take in all, and what of it leaves first where it takes more. Pure, but for the disk."""

from __future__ import annotations

import heapq
import shutil
from typing import TYPE_CHECKING, Final

from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.embedded.remote.leaving.evicting import Evictable
    from reconciler.objectstore.base import ObjectStore

_FOLDER: Final = "file://"
_WHOLE: Final = 100.0


def disk_under(store: ObjectStore) -> int | None:
    """Return how many bytes the disk under a store has; `None`: it is no folder of a disk, and has no end."""
    if not store.url.startswith(_FOLDER):
        return None
    return shutil.disk_usage(store.url.removeprefix(_FOLDER)).total


def capacity_of(properties: Mapping[str, str], disk_bytes: int | None) -> int | None:
    """Return how many bytes local data may take (F-R-024); `None`: no limit.

    The smaller of both targets holds. That in percent is, unless it is set, what cache and reservation leave of the
    disk (F-R-025); it means nothing where there is no disk.
    """
    limits: list[int] = []
    in_bytes = property_of(properties, "retention_local_target_capacity_bytes")
    if in_bytes is not None:
        limits.append(int(in_bytes))
    if disk_bytes is not None:
        limits.append(int(disk_bytes * _percent(properties) / _WHOLE))
    return min(limits, default=None)


def _percent(properties: Mapping[str, str]) -> float:
    percent = property_of(properties, "retention_local_target_capacity_percent")
    if percent is not None:
        return float(percent)
    taken = ("cloud_storage_cache_size_percent", "disk_reservation_percent")
    return max(0.0, _WHOLE - sum(float(property_of(properties, name) or 0) for name in taken))


def first_to_go(found: Sequence[Evictable], excess: int) -> list[int]:
    """Return how many segments of each partition are to leave, for `excess` bytes to be freed as far as they can.

    What is beyond its local target goes first, then what is within; of both the oldest of all partitions.
    """
    counts = [0] * len(found)
    waiting = [_rank(one, 0, number) for number, one in enumerate(found) if one.segments]
    heapq.heapify(waiting)
    while waiting and excess > 0:
        *_, number = heapq.heappop(waiting)
        one = found[number]
        excess -= one.segments[counts[number]].bytes
        counts[number] += 1
        if counts[number] < len(one.segments):
            heapq.heappush(waiting, _rank(one, counts[number], number))
    return counts


def _rank(one: Evictable, at: int, number: int) -> tuple[bool, int, int]:
    return at >= one.beyond, one.segments[at].max_ts, number
