"""All lifecycles by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from reconciler.lifecycles.mirror import LINK, MIRROR
from reconciler.lifecycles.mount import MOUNT, UNMOUNT
from reconciler.lifecycles.tiered import HOUSEKEEPING, PARTITION_DELETION, SEGMENT, TIERING

if TYPE_CHECKING:
    from reconciler.lifecycles.table import Lifecycle


LIFECYCLES: Final[Mapping[str, Lifecycle[Any]]] = MappingProxyType(
    {
        lifecycle.name: lifecycle
        for lifecycle in (MOUNT, UNMOUNT, MIRROR, LINK, TIERING, SEGMENT, PARTITION_DELETION, HOUSEKEEPING)
    }
)
