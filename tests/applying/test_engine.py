"""The engine: what starts when, what a failure stops, and how a run ends. In virtual time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.engine import Engine, RunResult
from reconciler.applying.events import ActionDone, ActionStarted, Event, Progress
from reconciler.errors import BrokenInvariantError, LeaseError, RetryableError, UserError
from reconciler.resources.inventory import Capabilities, Record
from tests.applying.platform import Platform, Stage, copy, create, delete, forget, gone, refusal
from tests.state.samples import record
from tests.state.simulation import Simulation, simulate

if TYPE_CHECKING:
    from reconciler.planning.actions import Action


def stage(seed: int = 0, *, call_s: float = 1.0) -> Stage:
    return Stage(Simulation(seed, call_s=call_s))


def carry_out(on: Stage, actions: Sequence[Action], recorded: Record | None = None) -> RunResult:
    async def run() -> RunResult:
        on.engine = Engine(actions, on.means, record=recorded or {}, run="run-1")
        return await on.engine.run()

    return simulate(run())


def test_a_plan_without_actions_is_done_at_once() -> None:
    on = stage()
    result = carry_out(on, [], record("kept"))
    assert (result.record, result.done, result.is_changed) == (record("kept"), (), False)
    assert on.events == []


def test_what_is_created_is_recorded_with_what_the_platform_called_it() -> None:
    on = stage()
    result = carry_out(on, [create("a")])
    recorded = result.record["topic/west/a"]
    assert recorded.resource == create("a").after
    assert (recorded.incarnation, recorded.physical_name) == ("id-of-topic/west/a", "topic/west/a")
    assert (recorded.run, recorded.ownership) == ("run-1", "created")
    assert (result.done, result.is_changed) == (("create:topic/west/a",), True)
    assert on.said() == ["started create:topic/west/a", "done create:topic/west/a"]


def test_what_is_deleted_or_forgotten_leaves_the_record_and_forgetting_asks_no_platform() -> None:
    on = stage()
    result = carry_out(on, [delete("a"), forget("b")], record("a", "b", "c"))
    assert sorted(result.record) == ["topic/west/c"]
    assert on.platforms["west"].calls == [["delete:topic/west/a"]]


def test_independent_actions_of_a_cluster_go_in_batches_as_large_as_it_takes() -> None:
    on = stage()
    on.platforms["west"].batch = 3
    result = carry_out(on, [create(f"t{number}") for number in range(7)])
    assert [len(call) for call in on.platforms["west"].calls] == [3, 3, 1]
    assert len(result.done) == 7


def test_what_leans_on_an_action_starts_after_it_is_done_and_recorded() -> None:
    on = stage()
    carry_out(on, [create("a"), create("b", "west/a"), create("c", "west/b")])
    assert on.platforms["west"].calls == [[f"create:topic/west/{name}"] for name in "abc"]
    said = on.said()
    assert said.index("done create:topic/west/a") < said.index("started create:topic/west/b")


def test_clusters_go_side_by_side_and_none_waits_for_another() -> None:
    on = stage(seed=3)
    chain = [create("a0")] + [create(f"a{n}", f"west/a{n - 1}") for n in range(1, 4)]
    side = [create("b0", cluster="east")] + [create(f"b{n}", f"east/b{n - 1}", cluster="east") for n in range(1, 4)]
    carry_out(on, [*chain, *side])
    starts = [event.id[-2] for _, event in on.events if isinstance(event, ActionStarted)]
    assert starts != sorted(starts)
    assert starts[:2] == ["a", "b"]


def test_a_failure_stops_only_what_leans_on_it() -> None:
    on = stage()
    on.platforms["west"].refuses = {"create:topic/west/a": refusal("quota reached")}
    actions = [create("a"), create("b", "west/a"), create("c", "west/b"), create("d"), create("e", "west/d", "west/a")]
    result = carry_out(on, actions)
    assert result.done == ("create:topic/west/d",)
    assert [(failed.id, str(failed.error)) for failed in result.failed] == [
        ("create:topic/west/a", "quota reached. Change it.")
    ]
    assert [(skipped.id, skipped.because) for skipped in result.skipped] == [
        (f"create:topic/west/{name}", "create:topic/west/a") for name in "bce"
    ]
    assert result.not_started == ()
    assert sorted(result.record) == ["topic/west/d"]
    assert "failed create:topic/west/a: quota reached" in on.said()


def test_a_call_that_breaks_half_way_keeps_what_was_answered_and_fails_the_rest() -> None:
    on = stage()
    broken = RetryableError("connection lost", hint="Run it again.")
    on.platforms["west"].breaks = {"create:topic/west/b": broken}
    result = carry_out(on, [create("a"), create("b"), create("c")])
    assert result.done == ("create:topic/west/a",)
    assert [(failed.id, failed.error) for failed in result.failed] == [
        ("create:topic/west/b", broken),
        ("create:topic/west/c", broken),
    ]


def test_an_action_a_platform_says_nothing_about_is_a_failure_and_our_bug() -> None:
    on = stage()
    on.platforms["west"].silent = frozenset({"create:topic/west/a"})
    result = carry_out(on, [create("a"), create("b")])
    assert result.done == ("create:topic/west/b",)
    assert isinstance(result.failed[0].error, BrokenInvariantError)


def test_a_bug_in_one_platform_does_not_lose_what_the_others_did() -> None:
    on = stage()
    on.platforms["west"].breaks = {"create:topic/west/a": ZeroDivisionError("division by zero")}
    result = carry_out(on, [create("a"), create("b", cluster="east"), copy("c")])
    assert sorted(result.done) == ["create:topic/east/b", "mirror:mirror/east/c"]
    (failed,) = result.failed
    assert isinstance(failed.error, BrokenInvariantError)
    assert "ZeroDivisionError: division by zero" in str(failed.error)
    assert isinstance(failed.error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("bugs", [{2}, {0, 6}, {1, 2, 3}, set(range(7))], ids=str)
def test_a_bug_in_one_action_does_not_take_the_others_of_its_batch_with_it(bugs: set[int]) -> None:
    on = stage()
    actions = [create(f"t{number}") for number in range(7)]
    on.platforms["west"].breaks = {actions[number].id: KeyError("oops") for number in bugs}
    result = carry_out(on, actions)
    assert {failed.id for failed in result.failed} == {actions[number].id for number in bugs}
    assert len(result.done) == len(actions) - len(bugs)


def test_jobs_run_one_after_the_other_beside_the_clusters_and_say_how_far_they_are() -> None:
    on = stage()
    result = carry_out(on, [create("a", cluster="east"), copy("a", "create:topic/east/a"), copy("b")])
    assert on.jobs.ran == ["mirror:mirror/east/b", "mirror:mirror/east/a"]
    assert len(result.done) == 3
    assert [event.records for _, event in on.events if isinstance(event, Progress)] == [10, 10]


def test_a_job_that_fails_is_a_failure_like_any_other() -> None:
    on = stage()
    on.jobs.fails = {"mirror:mirror/east/a": refusal("no Java"), "mirror:mirror/east/b": KeyError("oops")}
    result = carry_out(on, [copy("a"), copy("b"), copy("c")])
    assert [(failed.id, failed.error.message) for failed in result.failed] == [
        ("mirror:mirror/east/a", "no Java"),
        ("mirror:mirror/east/b", "KeyError: 'oops'"),
    ]
    assert result.done == ("mirror:mirror/east/c",)


def test_when_nobody_can_be_told_any_more_the_run_stops_and_what_was_done_is_kept() -> None:
    on = stage()
    on.platforms["west"].batch = 2

    def close_the_pipe(event: Event) -> None:
        if isinstance(event, ActionDone):
            raise BrokenPipeError

    on.on_event = close_the_pipe
    result = carry_out(on, [create(f"t{number}") for number in range(6)])
    assert isinstance(result.trouble, BrokenPipeError)
    assert result.done == ("create:topic/west/t0", "create:topic/west/t1")
    assert sorted(result.record) == ["topic/west/t0", "topic/west/t1"]
    assert len(result.not_started) == 4


def test_a_bug_of_ours_waits_for_the_other_clusters_and_keeps_what_they_did() -> None:
    on = stage(call_s=10)

    class Odd(Platform):
        @property
        def capabilities(self) -> Capabilities:
            raise ZeroDivisionError

    on.platforms["odd"] = Odd()
    actions = [create("a"), create("b", cluster="east"), create("c", "west/a", cluster="odd")]
    result = carry_out(on, actions)
    assert isinstance(result.trouble, ZeroDivisionError)
    assert sorted(result.done) == ["create:topic/east/b", "create:topic/west/a"]
    assert result.not_started == ("create:topic/odd/c",)


# -- stopping


def test_a_stop_starts_nothing_new_and_keeps_what_was_done() -> None:
    on = stage()

    def stop() -> None:
        assert on.engine is not None
        on.engine.stop()

    on.platforms["west"] = Platform(batch=1, on_call=stop)
    result = carry_out(on, [create("a"), create("b"), create("c", "west/a"), copy("d", "create:topic/west/a")])
    assert result.done == ("create:topic/west/a",)
    assert result.not_started == ("create:topic/west/b", "create:topic/west/c", "mirror:mirror/east/d")
    assert (result.failed, result.skipped) == ((), ())
    assert sorted(result.record) == ["topic/west/a"]


def test_a_job_that_is_stopped_is_left_not_failed() -> None:
    on = stage()

    def stop() -> None:
        assert on.engine is not None
        on.engine.stop()

    on.jobs.on_run = stop
    result = carry_out(on, [copy("a"), copy("b")])
    assert (result.done, result.failed) == ((), ())
    assert result.not_started == ("mirror:mirror/east/a", "mirror:mirror/east/b")
    assert on.jobs.stops == 1


def test_a_stop_before_the_first_action_does_nothing() -> None:
    on = stage()

    async def run() -> RunResult:
        engine = Engine([create("a"), forget("b")], on.means, record=record("b"), run="run-1")
        engine.stop()
        return await engine.run()

    result = simulate(run())
    assert (result.done, result.is_changed) == ((), False)
    assert result.not_started == ("create:topic/west/a", "forget:topic/west/b")


# -- the lease


def test_a_lost_lease_ends_the_run_after_what_is_under_way_and_commits_nothing() -> None:
    on = stage(call_s=5)

    def lose() -> None:
        on.turn.lost = gone()

    on.platforms["west"] = Platform(batch=1, on_call=lose)
    result = carry_out(on, [create("a"), create("b")])
    assert isinstance(result.ended_by, LeaseError)
    assert not result.is_whole
    assert on.platforms["west"].calls == [["create:topic/west/a"]]
    assert "lease lost: taken over" in on.said()
    assert on.turn.commits == []
    assert on.jobs.stops == 1


def test_a_call_that_waited_for_its_thread_while_the_lease_was_lost_is_not_made() -> None:
    on = stage()

    def lose(event: Event) -> None:
        if isinstance(event, ActionStarted):
            on.turn.lost = gone()

    on.on_event = lose
    assert isinstance(carry_out(on, [create("a"), copy("b")]).ended_by, LeaseError)
    assert on.platforms["west"].calls == []
    assert on.jobs.ran == []
    assert [line for line in on.said() if line.startswith(("failed", "done"))] == []


def test_a_lease_lost_during_a_long_job_stops_the_job() -> None:
    on = stage(call_s=60)
    on.platforms["west"].on_call = lambda: None

    def lose() -> None:
        on.turn.lost = gone()

    async def run() -> RunResult:
        engine = Engine([copy("a"), copy("b")], on.means, record={}, run="run-1")
        on.effects.start_task(_after(on, 3, lose))
        return await engine.run()

    assert isinstance(simulate(run()).ended_by, LeaseError)
    assert on.jobs.stops == 1
    lost_at = next(at for at, event in on.events if type(event).__name__ == "LeaseLost")
    assert lost_at <= 5


async def _after(on: Stage, seconds: float, act: object) -> None:
    await on.effects.sleep(seconds)
    assert callable(act)
    act()


def test_an_old_lease_starts_nothing_until_it_is_renewed() -> None:
    on = stage()
    on.turn.may_start = False

    def renew() -> None:
        on.turn.may_start = True

    async def run() -> RunResult:
        on.effects.start_task(_after(on, 10, renew))
        return await Engine([create("a")], on.means, record={}, run="run-1").run()

    result = simulate(run())
    assert result.done == ("create:topic/west/a",)
    assert on.events[0][0] >= 10


def test_what_is_done_is_offered_for_commit_while_a_long_job_still_runs() -> None:
    on = stage(seed=2, call_s=200)
    on.platforms["west"].on_call = None
    carry_out(on, [forget("a"), copy("b")], record("a", "c"))
    assert len(on.turn.commits) > 50
    assert set(on.turn.commits) == {1}


def test_nothing_is_committed_while_nothing_has_changed() -> None:
    on = stage(call_s=100)
    on.jobs.fails = {"mirror:mirror/east/b": refusal()}
    carry_out(on, [copy("b")])
    assert on.turn.commits == []


def test_a_commit_that_fails_for_now_is_left_to_the_next_one() -> None:
    on = stage()
    on.turn.refuses = RetryableError("no answer", hint="Run it again.")
    assert len(carry_out(on, [create("a"), create("b", "west/a")]).done) == 2


def test_a_state_that_cannot_be_written_ends_the_run() -> None:
    on = stage()
    on.turn.refuses = refusal("permission denied")
    result = carry_out(on, [create("a"), create("b", "west/a")])
    assert isinstance(result.ended_by, UserError)
    assert "permission denied" in result.ended_by.message
    assert on.platforms["west"].calls == [["create:topic/west/a"]]


# -- many


def test_ten_thousand_actions_cost_no_more_each_than_a_thousand() -> None:
    def seconds(count: int) -> float:
        on = stage(call_s=0.001)
        on.platforms["west"].batch = 10_000
        actions = [create("root"), *(create(f"t{number}", "west/root") for number in range(count))]
        began = time.process_time()
        result = carry_out(on, actions)
        assert len(result.done) == count + 1
        assert [len(call) for call in on.platforms["west"].calls] == [1, count]
        return time.process_time() - began

    seconds(100)
    small = min(seconds(1_000) for _ in range(3))
    # A cost that grows with the square would be a hundredfold; generous, so that a busy machine passes.
    assert min(seconds(10_000) for _ in range(3)) < 40 * small


@pytest.mark.parametrize("seed", range(10))
def test_however_long_each_call_takes_the_outcome_is_the_same(seed: int) -> None:
    on = stage(seed=seed, call_s=30)
    on.platforms["west"].batch = 2
    on.platforms["west"].refuses = {"create:topic/west/t3": refusal()}
    actions = [create(f"t{n}", *([f"west/t{n // 2}"] if n > 1 else [])) for n in range(1, 16)]
    result = carry_out(on, [*actions, copy("x", "create:topic/west/t2"), create("y", cluster="east")])
    assert sorted(result.done) == sorted(
        [f"create:topic/west/t{n}" for n in (1, 2, 4, 5, 8, 9, 10, 11)]
        + ["mirror:mirror/east/x", "create:topic/east/y"]
    )
    assert {skipped.id for skipped in result.skipped} == {f"create:topic/west/t{n}" for n in (6, 7, 12, 13, 14, 15)}
    assert result.not_started == ()
