"""What became of every action of a run, and of the record: folded in as outcomes arrive, said as it happens."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.applying.outcomes import is_in_doubt
from reconciler.planning.recording import after_action, after_refusal, learn
from reconciler.state.entries import ActionSkipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.applying.events import Event
    from reconciler.applying.ports import Moved
    from reconciler.planning.actions import Action
    from reconciler.providers.base import Done, Failed
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.state.entries import Entry


class Ledger:
    """The books of one run. Each action is folded once; everything it costs is a look-up."""

    def __init__(self, record: Record, run: str, report: Callable[[Event], None]) -> None:
        """Start from a record, which stays as it is; `report` is called by one thread at a time."""
        self.record: dict[Address, Recorded] = dict(record)
        self.is_changed = False
        self.done: list[str] = []
        self.failed: list[Failed] = []
        self.skipped: list[ActionSkipped] = []
        self.in_doubt: list[Action] = []
        self.unwritten: list[Entry] = []
        self.unanswered: list[str] = []
        self.trouble: Exception | None = None
        self._run = run
        self._report = report
        self._reporting = threading.Lock()
        self._started: dict[str, float] = {}

    def say(self, event: Event) -> None:
        """Report an event, from any thread. Where nobody can be told any more, `trouble` says why."""
        with self._reporting:
            if self.trouble is None:
                try:
                    self._report(event)
                except Exception as error:  # noqa: BLE001 - kept, and raised once what was done is recorded
                    self.trouble = error

    def start(self, actions: Sequence[Action], now: float) -> None:
        """Note that actions were handed over."""
        for action in actions:
            self._started[action.id] = now
            self.say(ActionStarted(action.id, action.address))

    def finish(self, action: Action, outcome: Done, moved: Moved, now: float) -> None:
        """Fold a complete action into the record."""
        changes = after_action(action, outcome, self.record, self._run)
        learn(self.record, changes)
        self.is_changed |= bool(changes)
        self.done.append(action.id)
        seconds = now - self._started.pop(action.id, now)
        self.say(ActionDone(action.id, action.address, seconds, moved.records, moved.bytes))

    def book_failure(self, action: Action, outcome: Failed, lost: Sequence[str]) -> None:
        """Note a failure and the actions that cannot be tried because of it."""
        self.failed.append(outcome)
        if is_in_doubt(action, outcome):
            self.in_doubt.append(action)
        self.skipped += [ActionSkipped(id=name, because=action.id) for name in lost]

    def say_failure(self, action: Action, outcome: Failed) -> None:
        """Tell a failure, once it is durable; what was made before it is recorded."""
        if outcome.made is not None and not is_in_doubt(action, outcome):
            learn(self.record, after_refusal(action, outcome.made, self.record, self._run))
            self.is_changed = True
        self.say(ActionFailed(action.id, action.address, outcome.error.message, outcome.error.hint))
