"""Every lifecycle by name, for drawing and for tests that walk them all."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from reconciler.lifecycles.housekeeping import HOUSEKEEPING
from reconciler.lifecycles.mirror import LINK, MIRROR
from reconciler.lifecycles.mounting import MOUNT, UNMOUNT
from reconciler.lifecycles.segments import PARTITION_DELETION, SEGMENT
from reconciler.lifecycles.tiering import TIERING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.lifecycles.table import Lifecycle

LIFECYCLES: Final[Mapping[str, Lifecycle[Any]]] = MappingProxyType(
    {
        lifecycle.name: lifecycle
        for lifecycle in (MOUNT, UNMOUNT, MIRROR, LINK, TIERING, SEGMENT, PARTITION_DELETION, HOUSEKEEPING)
    }
)
