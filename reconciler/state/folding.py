"""What a run has done so far: its base, its actions and its journal, folded. Any prefix of a journal folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.recording import after_action, after_refusal, learn
from reconciler.state.entries import (
    ActionEnded,
    ActionRefused,
    ActionSkipped,
    Closed,
    Detached,
    Intent,
    TakenOver,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.actions import Action
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.state.entries import Entry
    from reconciler.state.journal import Written


@dataclass(frozen=True, slots=True)
class Folded:
    """Where a run stands."""

    record: Record
    """The base, and everything that is done."""
    done: tuple[str, ...]
    """Ids, in the order in which they ended."""
    in_doubt: tuple[Action, ...]
    """Begun, and not known to have ended; in plan order."""
    left: tuple[Action, ...]
    """Never begun, or stopped; in plan order."""
    is_closed: bool


def fold_run(base: Record, actions: Sequence[Action], written: Written, further: Sequence[Entry] = ()) -> Folded:
    """Return where a run stands after what is written of it, and `further` entries.

    Entries of actions it does not have belong to no run of ours, and count for nothing.
    """
    by_id = {action.id: action for action in actions}
    record: dict[Address, Recorded] = dict(base)
    open_ids: set[str] = set()
    done: dict[str, None] = {}
    ended: set[str] = set()
    for entry in (*written.entries, *further):
        match entry:
            case Intent():
                open_ids.add(entry.id)
            case ActionEnded():
                open_ids.discard(entry.id)
                if entry.id in by_id and entry.id not in done:
                    learn(record, after_action(by_id[entry.id], entry, record, written.run))
                    done[entry.id] = None
            case ActionRefused() | ActionSkipped():
                if isinstance(entry, ActionRefused) and entry.is_made and entry.id in by_id.keys() - done.keys():
                    learn(record, after_refusal(by_id[entry.id], entry, record, written.run))
                open_ids.discard(entry.id)
                ended.add(entry.id)
            case TakenOver() | Detached() | Closed():
                pass
            case _:
                assert_never(entry)
    known = {*done, *ended, *open_ids}
    return Folded(
        record,
        tuple(done),
        tuple(action for action in actions if action.id in open_ids),
        tuple(action for action in actions if action.id not in known),
        is_closed=written.is_closed,
    )
