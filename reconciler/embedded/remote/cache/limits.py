"""How much may be cached, and when and how far the cache is trimmed: Redpanda's rules as arithmetic. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOW_SHARE: Final = 0.8
"""Of the limit that was exceeded: so far it is trimmed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a cache takes, or may take."""

    bytes: int
    objects: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cache may take, and from what on it is trimmed: the same, or less where a threshold is set."""

    most: Usage
    trim_at: Usage

    def target(self, used: Usage) -> Usage | None:
        """Return what may stay where a limit or threshold is exceeded, each dimension for itself; `None`: none is."""
        is_large, is_many = used.bytes > self.trim_at.bytes, used.objects > self.trim_at.objects
        if not (is_large or is_many):
            return None
        return Usage(
            int(self.trim_at.bytes * _LOW_SHARE) if is_large else used.bytes,
            int(self.trim_at.objects * _LOW_SHARE) if is_many else used.objects,
        )


def limits_of(properties: Mapping[str, str], disk_bytes: int) -> Limits:
    """Return the limits on a disk of so many bytes: bytes or percent of it, the smaller, and the number of files.

    Raises:
        UserError: Neither bytes nor percent is set: nothing could be cached, or everything.
    """
    usable = int(disk_bytes * (1 - _number(properties, "disk_reservation_percent") / 100))
    size = int(_number(properties, "cloud_storage_cache_size"))
    percent = _number(properties, "cloud_storage_cache_size_percent")
    given = [min(size, usable)] * (size > 0) + [int(usable * percent / 100)] * (percent > 0)
    if not given:
        message = "cloud_storage_cache_size and cloud_storage_cache_size_percent are both 0"
        raise UserError(message, hint="Set one of them: that is how large the cache may become.")
    most = Usage(min(given), int(_number(properties, "cloud_storage_cache_max_objects")))
    by_size = _threshold(properties, "cloud_storage_cache_trim_threshold_percent_size")
    by_objects = _threshold(properties, "cloud_storage_cache_trim_threshold_percent_objects")
    return Limits(most, Usage(int(most.bytes * by_size), int(most.objects * by_objects)))


def _threshold(properties: Mapping[str, str], name: str) -> float:
    return float(property_of(properties, name) or 100) / 100


def _number(properties: Mapping[str, str], name: str) -> float:
    return float(property_of(properties, name) or 0)
