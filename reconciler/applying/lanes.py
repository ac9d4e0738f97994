"""Who does an action: one lane a cluster, taking batches, and one for jobs. Lanes go side by side."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.lifecycles.mirror import MIRROR, TWO_SIDED
from reconciler.lifecycles.mounting import BY_JOBS, MOUNT, UNMOUNT
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update

if TYPE_CHECKING:
    from reconciler.planning.actions import Action

JOBS = "jobs"
"""The lane of data actions and of what needs two clusters. No cluster is called so: their lanes carry a prefix."""

RECORD = "record"
"""The lane of what changes only the state: nobody is called."""

RECORD_BATCH: Final = 10_000

Lane: TypeAlias = str


def is_driven(action: Action) -> bool:
    """Tell whether an action copies between two clusters, or to or from object storage: no platform does it alone."""
    if not isinstance(action, Transition):
        return False
    return is_archived(action) or (action.machine == MIRROR.name and action.verb in TWO_SIDED)


def is_archived(action: Transition) -> bool:
    """Tell whether an action is a mount or unmount that jobs carry out."""
    return action.machine in {MOUNT.name, UNMOUNT.name} and action.parameters.get("by") == BY_JOBS


def lane_of(action: Action) -> Lane:
    """Return the lane of an action."""
    if is_driven(action):
        return JOBS
    match action:
        case Create() | Update() | Delete() | Transition():
            return f"cluster/{action.cluster}"
        case RunJob():
            return JOBS
        case Adopt() | Forget():
            return RECORD
        case _:
            assert_never(action)


def is_called(lane: Lane) -> bool:
    """Tell whether a platform is called for what is in a lane: so many of these at once as a run may."""
    return lane not in (JOBS, RECORD)


class Queue:
    """What waits in one lane, taken in batches of at most `size`."""

    def __init__(self, size: int) -> None:
        """`size` is what the platform takes in one call."""
        self._size = size
        self._waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Put an action behind the others."""
        self._waiting.append(action)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return not self._waiting

    def take(self) -> list[Action]:
        """Return the next batch; empty when nothing waits."""
        return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
