"""What happened, as an all-seeing witness writes it down: every change of the state, every act on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from reconciler.state.journal import ActionEnded, Entry, Intent, Page, RunClosed
from reconciler.state.lockfile import KEY, Lockfile

if TYPE_CHECKING:
    from reconciler.planning.actions import Action


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and on which machine."""

    at: float
    machine: str


@dataclass(frozen=True, slots=True)
class LockfileWritten:
    when: Moment
    before: Lockfile | None
    after: Lockfile | None
    """`None`: it was removed."""


@dataclass(frozen=True, slots=True)
class PageWritten:
    when: Moment
    page: Page
    holder_epoch: int
    """Of the lockfile at that moment."""


@dataclass(frozen=True, slots=True)
class Acted:
    """Something is about to change on a cluster, or a job about to begin: the last moment at which it could be held."""

    when: Moment
    id: str
    epoch: int
    """Under which the machine believes to act."""
    holder_epoch: int
    is_held: bool
    has_intent: bool
    """Its intent, under its own epoch, was durable."""
    waits_for: tuple[str, ...]
    """What it leans on in its run's plan, and what was not durably done."""


@dataclass(frozen=True, slots=True)
class SettledRun:
    when: Moment
    run: str


@dataclass
class History:
    """Everything, in the order in which it happened."""

    clock: Callable[[], float]
    lockfiles: list[LockfileWritten] = field(default_factory=list)
    pages: list[PageWritten] = field(default_factory=list)
    acts: list[Acted] = field(default_factory=list)
    settled: list[SettledRun] = field(default_factory=list)
    ledger: list[tuple[str, list[list[int]]]] = field(default_factory=list)
    """Each time a job published: the sink, and all its ranges from then on."""
    published_before: dict[str, list[list[int]]] = field(default_factory=dict)
    """What the ledger held when the history begins."""
    crashes: list[str] = field(default_factory=list)
    """Errors nobody should ever see."""
    runs: dict[str, frozenset[str]] = field(default_factory=dict)
    """The ids of the actions of every run that has begun."""
    lockfile: Lockfile | None = None
    _intents: set[tuple[int, str]] = field(default_factory=set)
    _done: set[str] = field(default_factory=set)
    _epochs: dict[str, int] = field(default_factory=dict)

    # -- the witness of the stores of the state and of the ledger

    def changed(self, machine: str, key: str, body: bytes | None) -> None:
        """Take note that an object is this now."""
        when = Moment(self.clock(), machine)
        if key.startswith("topic/"):
            self.ledger.append((key, orjson.loads(body or b"[]")))
        elif key == KEY:
            self._lockfile(when, body)
        elif key.endswith("/run.json") and body is not None:
            file = orjson.loads(body)
            self.runs[file["run"]] = frozenset(action["id"] for action in file["actions"])
        elif "/journal/" in key and body is not None:
            self._page(when, Page.model_validate_json(body))

    def epoch_of(self, machine: str) -> int:
        """Return the last epoch that a machine has held, by what is written."""
        return self._epochs.get(machine, 0)

    def acts_on(self, machine: str, action: Action) -> None:
        """Take note that a machine is about to do an action."""
        epoch, now = self.epoch_of(machine), self.lockfile
        run = next((run for run in reversed(self.runs) if action.id in self.runs[run]), "")
        planned = self.runs.get(run, frozenset())
        self.acts.append(
            Acted(
                Moment(self.clock(), machine),
                action.id,
                epoch,
                now.lease.epoch if now else 0,
                bool(now and now.lease.status == "held"),
                (epoch, action.id) in self._intents,
                tuple(name for name in action.depends_on if name in planned and name not in self._done),
            )
        )

    def settles(self, machine: str, run: str) -> None:
        """Take note that a machine knows what became of an open run."""
        self.settled.append(SettledRun(Moment(self.clock(), machine), run))

    def entries_of(self, run: str) -> list[Entry]:
        """Return what the journal of a run says."""
        return [entry for written in self.pages if written.page.run == run for entry in written.page.entries]

    def _lockfile(self, when: Moment, body: bytes | None) -> None:
        after = Lockfile.model_validate_json(body) if body is not None else None
        self.lockfiles.append(LockfileWritten(when, self.lockfile, after))
        self.lockfile = after
        if after is not None and after.lease.run is not None:
            self._epochs[after.lease.run.partition("#")[0]] = after.lease.epoch

    def _page(self, when: Moment, page: Page) -> None:
        self.pages.append(PageWritten(when, page, self.lockfile.lease.epoch if self.lockfile else 0))
        for entry in page.entries:
            match entry:
                case Intent():
                    self._intents.add((page.epoch, entry.id))
                case ActionEnded():
                    self._done.add(entry.id)
                case _:
                    pass

    def is_closed(self, run: str) -> bool:
        """Tell whether a run's journal says that nothing follows."""
        return any(isinstance(entry, RunClosed) for entry in self.entries_of(run))
