"""The backlog of uploads, and the share of the connections that it earns them: a PD controller, Redpanda's.

More backlog, more share. There is no integral part: a backlog never goes below nothing, so one would never unwind.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.objectstore.base import ObjectStore

_FILE: Final = "file://"
_NO_DISK: Final = 1 << 40
_WHOLE: Final = 1000
"""Shares that are all of the connections."""
_PREFIX: Final = "cloud_storage_upload_ctrl_"


@dataclass(frozen=True, slots=True)
class Controller:
    """Its coefficients and limits, as the cluster's properties have them."""

    p_coeff: float = -2.0
    d_coeff: float = 0.0
    min_shares: int = 100
    max_shares: int = 1000
    interval_ms: int = 60_000
    """How often the share is set anew."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Controller:
        """Read them."""

        def value(name: str) -> str:
            return property_of(properties, f"{_PREFIX}{name}") or "0"

        return cls(
            float(value("p_coeff")),
            float(value("d_coeff")),
            int(value("min_shares")),
            int(value("max_shares")),
            int(value("update_interval_ms")),
        )

    def shares(self, error: float, before: float) -> int:
        """Return the shares for an error, and what it was the last time."""
        wanted = int(self.p_coeff * (error + self.d_coeff * (error - before)))
        return max(self.min_shares, min(self.max_shares, wanted))


def error_of(backlog_bytes: int, free_bytes: int, *, cores: int = 1) -> float:
    """Return how far a backlog is from none, in thousandths of the disk space that is free: never above 0."""
    return -backlog_bytes * _WHOLE * cores / max(free_bytes, 1)


def free_bytes(store: ObjectStore) -> int:
    """Return the disk space that is free where a store lies; of a bucket, which never fills up, a large disk's."""
    if not store.url.startswith(_FILE):
        return _NO_DISK
    return shutil.disk_usage(store.url.removeprefix(_FILE)).free


def connections_of(shares: int, connections: int) -> int:
    """Return how many connections uploads may use at once, of all there are; at least one."""
    return max(1, min(connections, connections * shares // _WHOLE))
