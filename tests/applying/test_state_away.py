"""A state that does not answer for a while: the run goes on trying for as long as its lease stands, and no longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import Event, Summary
from reconciler.applying.ports import RunContext
from reconciler.applying.run import Caller, Run, RunOutcome, RunRequest, RunWork
from reconciler.errors import (
    IncompleteError,
    LeaseError,
    MendFirstError,
    ReconcilerError,
    RetryableError,
    StoppedError,
    UserError,
)
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.runner import Stop
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.journal import Entry, retry_until_answered
from reconciler.state.lockfile import KEY, read_lockfile
from reconciler.state.snapshots import read_snapshot
from tests.applying.platform import Platform, Works, create
from tests.simulation.world import KeptHere
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate

if TYPE_CHECKING:
    from reconciler.objectstore.base import StoredObject, Version

FOR_EVER_S = float("inf")
GIVES_UP_S = 75.0
AT = {
    "run": "/run.json",
    "opening": KEY,
    "intent": "/000001.json",
    "end": "/000002.json",
    "closed": "/000005.json",
    "state": "state/",
}
"""Where the state goes away: just before this is written."""


class Away(MemoryStore):
    """Does not answer for `for_s` from when `key` is first written; the opening is the lockfile's second write."""

    def __init__(self, effects: Simulation, key: str, for_s: float, error: ReconcilerError) -> None:
        super().__init__()
        self._effects, self._key, self._for_s, self._error = effects, key, for_s, error
        self.since: float | None = None
        self._locked = 0

    def __copy__(self) -> Away:
        return self

    def get(self, key: str) -> StoredObject | None:
        self._answer()
        return super().get(key)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        self._locked += key == KEY
        if self.since is None and self._key in key and (self._key != KEY or self._locked > 1):
            self.since = self._effects.read_clock()
        self._answer()
        return super().swap(key, body, expected=expected)

    def _answer(self) -> None:
        if self.since is not None and self._for_s and self._effects.read_clock() < self.since + self._for_s:
            raise self._error

    def heal(self) -> None:
        self._for_s = 0


@dataclass
class Told:
    """A run of two actions, the second leaning on the first, while the state goes away."""

    away_at: str
    for_s: float = FOR_EVER_S
    error: ReconcilerError = field(default_factory=lambda: RetryableError("no answer", hint="Try the network."))
    effects: Simulation = field(default_factory=lambda: Simulation(call_s=0.01))
    platform: Platform = field(default_factory=Platform)
    events: list[Event] = field(default_factory=list)
    kept: dict[str, list[Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Away(self.effects, AT[self.away_at], self.for_s, self.error)
        self.took = 0.0

    def run(self) -> RunOutcome:
        async def run() -> RunOutcome:
            try:
                return await Run(self._setting(), caller, RunRequest(command="apply")).run(
                    lambda _basis: RunWork([create("a"), create("b", "west/a")], "d")
                )
            finally:
                self.took = self.effects.read_clock() - (self.store.since or 0.0)
                self.store.heal()

        caller = Caller(claim=claim("one"), new_run=lambda: "two")
        return simulate(run())

    @property
    def summary(self) -> Summary:
        (found,) = [event for event in self.events if isinstance(event, Summary)]
        return found

    def _setting(self) -> RunContext:
        return RunContext(
            state=self.store,
            providers={"west": self.platform},  # type: ignore[dict-item] # a run asks it for no more
            jobs=Works(),
            effects=self.effects,
            report=self.events.append,
            stop=Stop(),
            spool=KeptHere(_Alive(), self.kept),  # type: ignore[arg-type] # it asks for no more
        )


@dataclass
class _Alive:
    name: str = "here"
    is_dead: bool = False


@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("for_s", [0.5, 10.0, 30.0, 62.0])
def test_a_run_whose_state_is_away_for_a_while_ends_well(at: str, for_s: float) -> None:
    told = Told(at, for_s)
    result = told.run().result
    assert result is not None
    assert len(result.done) == 2
    assert for_s <= told.took < for_s + 10
    assert told.platform.calls == [["create:topic/west/a"], ["create:topic/west/b"]]
    snapshot, found = read_snapshot(told.store), read_lockfile(told.store)
    assert snapshot is not None
    assert len(snapshot.record) == 2
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.open_run) == ("free", None)


def test_nothing_begins_on_a_lease_that_has_grown_too_old_while_its_intent_was_written() -> None:
    told = Told("intent", 62.0)
    ages = []
    told.platform.on_call = lambda: ages.append(told.effects.read_clock() - (told.store.since or 0.0))
    told.run()
    found = read_lockfile(told.store)
    assert found is not None
    assert found.lockfile.lease.beat >= 2
    assert ages[0] >= 62.0


@pytest.mark.parametrize("at", AT)
def test_a_state_that_stays_away_ends_the_run_when_the_lease_ends(at: str) -> None:
    told = Told(at)
    with pytest.raises((LeaseError, IncompleteError), match=r"could not be renewed for 7[5-9] s") as caught:
        told.run()
    assert GIVES_UP_S - 1 <= told.took <= GIVES_UP_S + 3
    assert "apply What" not in str(caught.value)
    found = read_lockfile(told.store)
    assert found is not None
    assert found.lockfile.lease.status == "held"


def test_what_is_done_is_kept_and_said_where_the_lease_ends() -> None:
    told = Told("end")
    with pytest.raises(LeaseError) as caught:
        told.run()
    assert [getattr(entry, "id", "") for entry in told.kept["one"]] == ["create:topic/west/a"]
    assert (
        "The next run finds out what was done: reconciler apply. What is known and could not be written is kept in "
        in str(caught.value)
    )


@pytest.mark.parametrize(
    "error",
    [UserError("denied", hint="Ask for the right."), MendFirstError("full", hint="Make room.")],
    ids=["denied", "full"],
)
@pytest.mark.parametrize("at", AT)
def test_what_is_refused_ends_the_run_at_once(at: str, error: ReconcilerError) -> None:
    told = Told(at, error=error)
    with pytest.raises(ReconcilerError, match=error.message):
        told.run()
    assert told.took < 1


@pytest.mark.parametrize(
    ("at", "counts"),
    [
        ("intent", {"done": 0, "failed": 0, "skipped": 0, "not_started": 2}),
        ("end", {"done": 1, "failed": 0, "skipped": 0, "not_started": 1}),
        ("closed", {"done": 2, "failed": 0, "skipped": 0, "not_started": 0}),
    ],
)
@pytest.mark.parametrize(
    "error", [RetryableError("no answer", hint="Wait."), UserError("denied", hint="Ask.")], ids=["away", "denied"]
)
def test_how_a_run_ended_is_said_where_its_state_could_not_be_written(
    at: str, counts: dict[str, int], error: ReconcilerError
) -> None:
    told = Told(at, error=error)
    with pytest.raises(ReconcilerError):
        told.run()
    summary = told.summary
    assert {name: getattr(summary, name) for name in counts} == counts
    assert (summary.run, summary.serial, summary.in_doubt) == ("one", None, ())
    assert summary.seconds > 0


def test_what_was_refused_and_could_not_be_written_is_said_as_failed() -> None:
    told = Told("end", error=UserError("denied", hint="Ask."))
    told.platform.refuses = {"create:topic/west/a": UserError("a quota is reached", hint="Raise it.")}
    with pytest.raises(IncompleteError):
        told.run()
    summary = told.summary
    assert (summary.done, summary.failed, summary.skipped, summary.not_started) == (0, 1, 1, 0)
    assert [(group.error, group.ids) for group in summary.failures] == [
        ("a quota is reached", ("create:topic/west/a",))
    ]
    assert dict(summary.skipped_because) == {"create:topic/west/b": "create:topic/west/a"}


def test_what_no_platform_answered_is_in_doubt_though_nothing_of_it_could_be_written() -> None:
    told = Told("end", error=UserError("denied", hint="Ask."))
    told.platform.breaks = {"create:topic/west/a": RetryableError("connection lost", hint="Wait.")}
    with pytest.raises(IncompleteError):
        told.run()
    assert told.summary.in_doubt == ("create:topic/west/a",)
    assert (told.summary.failed, told.summary.done) == (1, 0)


@pytest.mark.thorough
def test_a_request_to_stop_ends_the_waiting_for_a_state_that_is_away() -> None:
    def write() -> None:
        raise RetryableError("no answer", hint="Wait.")

    async def run() -> float:
        effects = ThreadEffects(1)
        began = effects.read_clock()
        effects.start_task(_hurry_soon(effects))
        with pytest.raises(StoppedError):
            await retry_until_answered(effects, write)
        effects.close()
        return effects.read_clock() - began

    assert asyncio.run(run()) < 3.5


async def _hurry_soon(effects: ThreadEffects) -> None:
    await effects.sleep(0.3)
    effects.hurry()
