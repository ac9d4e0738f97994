"""JSON of the state commands."""

from __future__ import annotations

from typing import Final

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.cli.json.inventory_json import RECORDED, VALUE_CHANGE
from reconciler.operations.state_edit import StateRepair
from reconciler.operations.state_views import History, StateDiff, StateDifference, StateEntry, StateListing
from reconciler.planning.orders import ReaddressOrder
from reconciler.resources.address import Address
from reconciler.state.repair import ForgottenRun, UnlockResult

STATE_LIST: Final = define_document(
    "reconciler.state-list/1", StateListing, "url", "lineage", "serial", ("resources", RECORDED)
)
STATE_SHOW: Final = define_document("reconciler.state-show/1", StateEntry, "address", ("recorded", RECORDED))
STATE_HISTORY: Final = define_document("reconciler.state-history/1", History, "snapshots=rows", "older")
STATE_DIFF: Final = define_document(
    "reconciler.state-diff/1",
    StateDiff,
    "before=before.serial",
    "after=after.serial",
    (
        "differences",
        JsonForm(
            StateDifference,
            ("address", "change", ("fields", VALUE_CHANGE), ("facts", VALUE_CHANGE), ("origins", VALUE_CHANGE)),
        ),
    ),
)
STATE_MOVES: Final = define_document(
    "reconciler.state-moves/1",
    tuple[ReaddressOrder, ...],
    "moves=.",
    about="What is recorded under another address from now on.",
)
STATE_REMOVAL: Final = define_document(
    "reconciler.state-removal/1",
    tuple[Address, ...],
    "forgotten=.",
    about="What is not owned any more; it stays on its clusters as it is.",
)


def _list_in_doubt(unlocked: UnlockResult) -> tuple[str, ...] | None:
    """Ids of the actions in doubt; null if the run's files cannot be read."""
    doubt = unlocked.doubt
    return () if doubt is None else doubt.in_doubt if doubt.unreadable is None else None


def _list_not_started(unlocked: UnlockResult) -> tuple[str, ...] | None:
    """Ids of the actions that did not start."""
    doubt = unlocked.doubt
    return () if doubt is None else doubt.left if doubt.unreadable is None else None


STATE_UNLOCK: Final = define_document(
    "reconciler.state-unlock/1",
    UnlockResult,
    "was_free",
    "run",
    "who",
    "epoch",
    "open_run=open_run.run",
    ("in_doubt", _list_in_doubt),
    ("left", _list_not_started),
)


def _list_problems(repaired: StateRepair) -> tuple[str, ...]:
    """Problems found; if empty, all other fields are null."""
    return repaired.repair.problems if repaired.repair else ()


def _list_forgotten(repaired: StateRepair) -> tuple[ForgottenRun, ...]:
    """Runs whose changes stay on the clusters but in no state."""
    return repaired.repair.forgotten if repaired.repair else ()


STATE_REPAIR: Final = define_document(
    "reconciler.state-repair/1",
    StateRepair,
    ("problems", _list_problems),
    "base=repair.base.serial",
    "repair.lockfile.serial",
    "repair.lockfile.lease.epoch",
    "open_run=repair.lockfile.open_run.run",
    "repair.rebuilt_from",
    "given_up=repair.abandoned_run",
    ("forgotten", _list_forgotten, JsonForm(ForgottenRun, ("run", "command", "who", "started", "actions"))),
    "kept",
)
