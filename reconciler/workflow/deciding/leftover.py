"""What an open run had left, and whether its result is there all the same: somebody else may have done it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.settle import settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.applying.recovery import Settled
    from reconciler.planning.actions import Action
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Inventory, Record


@dataclass(frozen=True, slots=True)
class Found:
    """What is there when the rest of a run is planned; of clusters that were not read nothing is known."""

    inventory: Inventory
    capabilities: Mapping[str, Capabilities]
    record: Record


def left_of(settled: Settled) -> list[Action]:
    """Return what never ended: not begun, or begun and found not to have happened. In plan order."""
    stands = settled.run.folded()
    absent = {name for name, verdict in settled.verdicts.items() if verdict == "absent"}
    left = {action.id for action in stands.left} | absent
    return [action for action in settled.run.actions if action.id in left]


def has_result(action: Action, found: Found) -> bool:
    """Tell whether what an action was to lead to is so already."""
    match action:
        case Adopt():
            known = found.record.get(action.address)
            return known is not None and known.resource == action.after
        case Forget():
            return action.address not in found.record
        case RunJob():
            there = found.inventory.get(action.address)
            return there is not None and there.first_copy_done
        case Create() | Update() | Delete() | Transition():
            read = found.capabilities.get(action.cluster or "")
            return read is not None and settle(action, found.inventory, read.configs).verdict == "done"
        case _:
            assert_never(action)
