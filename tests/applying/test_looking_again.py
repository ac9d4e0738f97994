"""What an interrupted run had left in doubt is looked at once more after a plan, and what comes of that is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from reconciler.applying.ports import RunContext
from reconciler.applying.run import Caller, DecisionBasis, Run, RunOutcome, RunRequest, RunWork
from reconciler.errors import (
    NOTHING_DONE,
    BlockedError,
    IncompleteError,
    MendFirstError,
    ReconcilerError,
    UnansweredError,
)
from reconciler.objectstore.base import Version
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.runner import Stop
from reconciler.planning.actions import Action, Create
from reconciler.providers.protocol import Scope
from reconciler.resources.inventory import Inventory, Record
from reconciler.state.journal import run_key
from tests.applying.platform import Platform, Works, create, refusal
from tests.simulation.world import KeptHere
from tests.state.leftovers import left
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate

A, B = create("a"), create("b")


@dataclass
class Empty(Platform):
    """A platform on which nothing is."""

    def observe(self, scope: Scope) -> Inventory:
        assert scope.patterns == (A.address,)
        return {}


class Bare(Empty):
    """The same, whatever is looked at."""

    def observe(self, _scope: Scope) -> Inventory:
        return {}


def run_after_a_dead_one(
    platform: Platform,
    *first: Action,
    then: Sequence[Action] = (A,),
    settle: Callable[[Record], None] = lambda _record: None,
    stop: Stop | None = None,
    on_second: Callable[[], None] = lambda: None,
    store: MemoryStore | None = None,
) -> RunOutcome:
    """Let a run do `first`, and then of what is planned `then` what was in doubt since the run before it."""
    store = store or MemoryStore()
    left(store, "dead", "a", done=[])
    setting = RunContext(
        state=store,
        providers={"west": platform},  # type: ignore[dict-item] # a run asks it for no more
        jobs=Works(),
        effects=Simulation(),
        report=lambda _event: None,
        stop=stop or Stop(),
        spool=KeptHere(None, {}),  # type: ignore[arg-type] # nothing is kept
        mark_ownership=settle,
    )

    def decide(basis: DecisionBasis) -> RunWork:
        if basis.is_second_round:
            on_second()
        return RunWork(then if basis.is_second_round else first, "d")

    async def run() -> RunOutcome:
        caller = Caller(claim=claim("one"), new_run=lambda: "two")
        return await Run(setting, caller, RunRequest(command="apply")).run(decide)

    return simulate(run())


@pytest.mark.parametrize("first", [(), (B,)], ids=["nothing else was planned", "something else was done"])
def test_what_fails_at_the_second_look_is_a_failure_of_the_run(first: tuple[Action, ...]) -> None:
    ended = run_after_a_dead_one(Empty(refuses={A.id: refusal()}), *first)
    assert ended.result is not None
    assert ended.result.done == tuple(action.id for action in first)
    assert [each.id for each in ended.result.failed] == [A.id]


def test_what_is_planned_besides_at_the_second_look_is_let_go_of() -> None:
    told: list[Record] = []
    run_after_a_dead_one(Empty(refuses={B.id: refusal()}), B, then=(B,), settle=told.append)
    assert len(told) == 2


class Full(MemoryStore):
    """A store that takes nothing of what a run is about to do."""

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key == run_key("one"):
            raise MendFirstError("the disk is full", hint="Make room.")
        return super().swap(key, body, expected=expected)


def test_what_was_taken_for_a_run_that_cannot_be_written_down_is_let_go_of() -> None:
    told: list[Record] = []
    with pytest.raises(MendFirstError):
        run_after_a_dead_one(Empty(), A, settle=told.append, store=Full())
    assert told == [{}]


def test_a_stop_at_the_second_look_does_not_say_that_nothing_was_changed() -> None:
    stop = Stop()
    with pytest.raises(IncompleteError, match="the plan is done, but") as caught:
        run_after_a_dead_one(Empty(), B, stop=stop, on_second=stop.request)
    assert "Nothing was changed" not in caught.value.hint


@pytest.mark.parametrize("refuses", [{}, {A.id: refusal()}], ids=["it is done", "it fails once more"])
def test_what_failed_and_is_tried_once_more_at_the_second_look_counts_once(refuses: dict[str, ReconcilerError]) -> None:
    platform = Empty(refuses={A.id: refusal()})
    ended = run_after_a_dead_one(platform, A, on_second=lambda: setattr(platform, "refuses", refuses))
    assert ended.result is not None
    assert [each.id for each in ended.result.failed] == list(refuses)
    assert ended.result.done == (() if refuses else (A.id,))


def test_a_second_look_that_is_refused_does_not_say_that_nothing_was_done() -> None:
    def refuse() -> None:
        raise BlockedError("1 blocked", hint="Allow it.", subject=NOTHING_DONE)

    with pytest.raises(IncompleteError, match=r"the plan is done, but .*: 1 blocked") as caught:
        run_after_a_dead_one(Empty(), B, on_second=refuse)
    assert "nothing was done" not in str(caught.value)


def test_what_a_cluster_does_not_answer_is_judged_one_by_one_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared, is_equal = itertools.count(), Create.__eq__

    def counted(one: Create, other: object) -> bool:
        next(compared)
        return is_equal(one, other)

    monkeypatch.setattr(Create, "__eq__", counted)
    actions = [create(f"t{number}") for number in range(300)]
    silent = UnansweredError("no answer came", hint="Wait.")
    ended = run_after_a_dead_one(Bare(refuses={each.id: silent for each in actions}), *actions, then=())
    assert ended.result is not None
    assert len(ended.result.in_doubt) == len(actions)
    assert next(compared) < 10 * len(actions)
