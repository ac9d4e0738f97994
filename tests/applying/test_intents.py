"""What the engine writes before and after it acts: nothing happens that the journal does not say first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.engine import Engine, RunResult
from reconciler.errors import BrokenInvariantError, LeaseError, ReconcilerError, RetryableError
from reconciler.state.journal import ActionEnded, ActionRefused, ActionSkipped, Entry, Intent
from tests.applying.platform import Platform, Stage, Turn, copy, create, delete, forget, gone, refusal
from tests.state.samples import record
from tests.state.simulation import Simulation, simulate

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.providers.protocol import Outcome

A, B, C, D = (f"create:topic/west/{name}" for name in "abcd")


@dataclass
class SlowTurn(Turn):
    """A journal that takes its time; `breaks_at` is the number of the write that fails."""

    effects: Simulation = field(default_factory=Simulation)
    breaks_at: int | None = None
    breaks_with: ReconcilerError = field(default_factory=lambda: refusal("the disk is full"))
    writes: list[list[Entry]] = field(default_factory=list)
    on_write: Callable[[Sequence[Entry]], None] | None = None

    async def write(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        await self.effects.sleep(3)
        self.writes.append(list(entries))
        if self.on_write is not None:
            self.on_write(entries)
        if self.breaks_at is not None and len(self.writes) >= self.breaks_at:
            raise self.breaks_with
        self.entries += entries


def stage(seed: int = 0) -> tuple[Stage, SlowTurn]:
    on = Stage(Simulation(seed, call_s=1.0))
    on.turn = turn = SlowTurn(effects=on.effects)
    return on, turn


def carry_out(on: Stage, actions: Sequence[Action], *, leaves_jobs: bool = False) -> RunResult:
    async def run() -> RunResult:
        on.engine = Engine(actions, on.means, record=record("kept"), run="run-1", leaves_jobs=leaves_jobs)
        return await on.engine.run()

    return simulate(run())


def told(turn: SlowTurn) -> list[tuple[str, str]]:
    return [(entry.type, getattr(entry, "id", "")) for entry in turn.entries]


def test_an_action_is_intended_then_done_and_what_the_platform_called_it_is_written() -> None:
    on, turn = stage()
    carry_out(on, [create("a")])
    assert turn.writes == [
        [Intent(id=A)],
        [ActionEnded(id=A, incarnation="id-of-topic/west/a", physical_name="topic/west/a")],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_no_platform_and_no_job_is_called_before_its_intent_is_durable(seed: int) -> None:
    on, turn = stage(seed)
    called: list[str] = []

    def check(ids: Sequence[str]) -> None:
        called.extend(ids)
        assert {("intent", name) for name in ids} <= set(told(turn))

    for platform in on.platforms.values():
        platform.batch = 2
        platform.on_call = lambda platform=platform: check(platform.calls[-1])  # type: ignore[misc] # a default
    on.jobs.on_run = lambda: check(on.jobs.ran[-1:])
    actions = [create(f"t{n}", *([f"west/t{n // 2}"] if n > 1 else [])) for n in range(1, 10)]
    result = carry_out(on, [*actions, copy("x", "create:topic/west/t2"), create("y", cluster="east"), delete("z")])
    assert len(called) == len(set(called)) == 12
    assert len(result.done) == 12


@pytest.mark.parametrize("seed", range(5))
def test_what_leans_on_an_action_is_not_even_intended_before_its_end_is_durable(seed: int) -> None:
    on, turn = stage(seed)

    def check(entries: Sequence[Entry]) -> None:
        if Intent(id=B) in entries:
            assert ("done", A) in told(turn)

    turn.on_write = check
    carry_out(on, [create("a"), create("b", "west/a"), create("c", cluster="east")])
    assert told(turn).count(("intent", B)) == 1


def test_a_batch_is_intended_in_one_write_and_ended_in_one() -> None:
    on, turn = stage()
    carry_out(on, [create(f"t{n}") for n in range(50)])
    assert [len(entries) for entries in turn.writes] == [50, 50]


def test_what_calls_no_platform_needs_no_intent() -> None:
    on, turn = stage()
    carry_out(on, [forget("a")])
    assert told(turn) == [("done", "forget:topic/west/a")]


def test_a_failure_is_written_with_its_reason_and_with_what_is_not_tried_because_of_it() -> None:
    on, turn = stage()
    on.platforms["west"].refuses = {A: refusal("quota reached")}
    carry_out(on, [create("a"), create("b", "west/a"), create("c", "west/b"), create("d")])
    assert turn.writes[1] == [
        ActionRefused(id=A, error="quota reached", hint="Change it."),
        ActionSkipped(id=B, because=A),
        ActionSkipped(id=C, because=A),
        ActionEnded(id=D, incarnation="id-of-topic/west/d", physical_name="topic/west/d"),
    ]


@pytest.mark.parametrize(
    ("error", "doubtful"),
    [(RetryableError("connection lost", hint="Run it again."), [B, D]), (ZeroDivisionError("a bug of ours"), [B])],
)
def test_where_a_platform_did_not_say_what_happened_the_intent_stays_open(
    error: Exception, doubtful: list[str]
) -> None:
    on, turn = stage()
    on.platforms["west"].breaks = {B: error}
    result = carry_out(on, [create("a"), create("b"), create("c", "west/b"), create("d")])
    assert [action.id for action in result.in_doubt] == doubtful
    assert [failed.id for failed in result.failed] == doubtful
    assert [(skipped.id, skipped.because) for skipped in result.skipped] == [(C, B)]
    assert ("failed", B) not in told(turn)
    assert ("skipped", C) in told(turn)
    assert result.ended_by is None


def test_a_platform_that_says_nothing_of_an_action_leaves_it_in_doubt() -> None:
    on, _ = stage()
    on.platforms["west"].silent = frozenset({A})
    result = carry_out(on, [create("a"), create("b")])
    assert [action.id for action in result.in_doubt] == [A]
    assert isinstance(result.failed[0].error, BrokenInvariantError)


def test_a_refusal_is_known_and_a_job_that_lost_its_connection_finds_by_itself_what_it_published() -> None:
    on, turn = stage()
    on.platforms["west"].refuses = {A: refusal()}
    on.jobs.fails = {"mirror:mirror/east/x": RetryableError("connection lost", hint="Run it again.")}
    result = carry_out(on, [create("a"), copy("x")])
    assert result.in_doubt == ()
    assert {kind for kind, _ in told(turn)} == {"intent", "failed"}


def test_jobs_are_left_where_they_are_to_be_left_with_all_that_leans_on_them() -> None:
    on, turn = stage()
    switch = replace(create("b"), depends_on=("mirror:mirror/east/x",))
    result = carry_out(on, [create("a"), copy("x", A), switch, create("c")], leaves_jobs=True)
    assert sorted(result.done) == [A, C]
    assert result.not_started == ("mirror:mirror/east/x", B)
    assert on.jobs.ran == []
    assert ("intent", "mirror:mirror/east/x") not in told(turn)


# -- a journal that cannot be written


@pytest.mark.parametrize("error", [refusal("the disk is full"), gone()])
def test_where_an_intent_cannot_be_written_nothing_is_done(error: ReconcilerError) -> None:
    on, turn = stage()
    turn.breaks_at, turn.breaks_with = 1, error
    result = carry_out(on, [create("a"), create("b", "west/a"), copy("c")])
    assert result.ended_by is error
    assert (on.platforms["west"].calls, on.jobs.ran) == ([], [])
    assert (result.done, result.unwritten, result.is_changed) == ((), (), False)
    assert result.not_started == (A, B, "mirror:mirror/east/c")
    assert ("lease lost: taken over" in on.said()) == isinstance(error, LeaseError)


def test_where_an_end_cannot_be_written_it_is_kept_and_nothing_leans_on_it() -> None:
    on, turn = stage()
    turn.breaks_at = 2
    on.platforms["west"].refuses = {C: refusal("quota reached")}
    result = carry_out(on, [create("a"), create("b", "west/a"), create("c")])
    assert on.platforms["west"].calls == [[A, C]]
    assert result.ended_by is turn.breaks_with
    assert result.unwritten == (
        ActionEnded(id=A, incarnation="id-of-topic/west/a", physical_name="topic/west/a"),
        ActionRefused(id=C, error="quota reached", hint="Change it."),
    )
    assert "topic/west/a" not in result.record
    assert not [line for line in on.said() if line.startswith(("done", "failed"))]


def test_where_the_journal_breaks_under_several_clusters_what_each_knows_is_kept() -> None:
    on, turn = stage()
    # Both intents are written before any call has ended; what comes after them is not.
    turn.breaks_at = 3
    result = carry_out(on, [create("a"), create("b", cluster="east")])
    assert {entry.id for entry in result.unwritten if isinstance(entry, ActionEnded)} == {A, "create:topic/east/b"}
    assert result.done == ()


def test_who_is_asked_to_stop_while_an_intent_is_being_written_does_not_act() -> None:
    on, turn = stage()

    def stop(_entries: Sequence[Entry]) -> None:
        assert on.engine is not None
        on.engine.stop()

    turn.on_write = stop
    result = carry_out(on, [create("a")])
    assert (on.platforms["west"].calls, result.not_started) == ([], (A,))


def test_a_lease_lost_in_the_middle_of_a_call_keeps_what_was_answered_and_leaves_the_rest() -> None:
    on, turn = stage()

    class Losing(Platform):
        def apply(self, actions: Sequence[Action], **_: object) -> list[Outcome]:  # type: ignore[override] # a list
            del actions
            raise gone()

    on.platforms["west"] = Losing()
    result = carry_out(on, [create("a"), create("b", cluster="east")])
    assert A in result.not_started
    assert ("done", "create:topic/east/b") in told(turn)
