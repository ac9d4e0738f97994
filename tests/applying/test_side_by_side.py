"""Clusters go side by side, as many at once as asked for, and nothing they do holds up the state's own writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from reconciler.applying.engine import MIRRORS_AT_ONCE, Engine, RunResult
from reconciler.applying.events import ActionDone, ActionStarted
from reconciler.applying.ports import RunPorts
from reconciler.providers.protocol import CompletedAction
from reconciler.resources.inventory import Capabilities
from reconciler.runtime.thread_effects import ThreadEffects
from tests.applying.platform import Platform, Stage, Turn, Works, copy, create
from tests.state.simulation import Simulation, simulate

if TYPE_CHECKING:
    from reconciler.planning.actions import Action, ControlAction
    from reconciler.state.journal import Entry

CLUSTERS = [f"c{number}" for number in range(20)]


@dataclass
class ParallelMap:
    """How many calls are under way, and the most there ever were."""

    now: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def leave(self) -> None:
        with self.lock:
            self.now -= 1


@dataclass
class Busy:
    """A cluster whose calls do something while they are under way, on a thread of their own."""

    at_once: ParallelMap
    within: Callable[[], None]
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(platform="test", batch=2))

    def apply(self, actions: Sequence[ControlAction], **_: object) -> Iterator[CompletedAction]:
        self.at_once.enter()
        try:
            self.within()
        finally:
            self.at_once.leave()
        yield from (CompletedAction(action.id) for action in actions)


@dataclass
class WritingTurn(Turn):
    """A journal whose every write takes a thread."""

    effects: ThreadEffects | None = None
    written: list[Entry] = field(default_factory=list)

    async def write(self, entries: Sequence[Entry]) -> None:
        assert self.effects is not None
        await self.effects.run_blocking(lambda: self.written.extend(entries))


def run_on_threads(
    actions: Sequence[Action], busy: Busy, parallelism: int, beside: Callable[[ThreadEffects], Any] | None = None
) -> RunResult:
    effects = ThreadEffects(parallelism)
    providers = cast("Any", dict.fromkeys(CLUSTERS, busy))
    means = RunPorts(
        providers=providers,
        jobs=Works(),
        lease=WritingTurn(effects=effects),
        effects=effects,
        report=lambda _event: None,
        parallelism=parallelism,
    )

    async def run() -> RunResult:
        engine = Engine(actions, means, record={}, run="run-1")
        if beside is None:
            return await engine.run()
        result, _ = await asyncio.gather(engine.run(), beside(effects))
        return result

    try:
        return asyncio.run(run())
    finally:
        effects.close()


def test_eight_of_twenty_clusters_are_called_at_once_and_never_more() -> None:
    at_once = ParallelMap()
    # The first eight calls wait until there are eight of them; a ninth would be counted.
    eight = threading.Barrier(8, timeout=30)
    left = iter(range(8))

    def within() -> None:
        if next(left, None) is not None:
            eight.wait()

    actions = [create(f"t{number}", cluster=cluster) for number in range(6) for cluster in CLUSTERS]
    result = run_on_threads(actions, Busy(at_once, within), 8)
    assert len(result.done) == 120
    assert at_once.most == 8


@pytest.mark.parametrize("parallelism", [1, 8])
def test_the_state_is_written_while_every_call_there_may_be_hangs(parallelism: int) -> None:
    released = threading.Event()

    async def write_the_state(effects: ThreadEffects) -> None:
        while at_once.now != parallelism:
            await effects.sleep(0.01)
        await asyncio.gather(*(effects.run_blocking(lambda: None) for _ in range(4)))
        released.set()  # were the writes behind the calls, nobody would ever come here

    at_once = ParallelMap()

    def within() -> None:
        assert released.wait(30)

    actions = [create("t", cluster=cluster) for cluster in CLUSTERS]
    result = run_on_threads(actions, Busy(at_once, within), parallelism, write_the_state)
    assert (len(result.done), result.failed) == (20, ())


# -- in virtual time


def stage(*clusters: str, batch: int = 100, parallelism: int = 8, seed: int = 0) -> tuple[Stage, RunPorts]:
    on = Stage(Simulation(seed, call_s=10), {name: Platform(batch=batch) for name in clusters})
    means = on.means
    return on, RunPorts(
        providers=means.providers,
        jobs=on.jobs,
        lease=on.turn,
        effects=on.effects,
        report=on.report,
        parallelism=parallelism,
    )


def carry_out(means: RunPorts, actions: Sequence[Action]) -> RunResult:
    async def run() -> RunResult:
        return await Engine(actions, means, record={}, run="run-1").run()

    return simulate(run())


def test_clusters_take_turns_so_that_a_large_one_does_not_hold_up_a_small_one() -> None:
    on, means = stage("large", "small", batch=1, parallelism=1)
    actions = [*(create(f"t{n}", cluster="large") for n in range(20)), create("x", cluster="small")]
    carry_out(means, actions)
    started = [event.id for _, event in on.events if isinstance(event, ActionStarted)]
    assert started.index("create:topic/small/x") == 1


def test_a_job_goes_beside_the_calls_and_takes_no_place_from_them() -> None:
    on, means = stage("west", "east", batch=1, parallelism=1)
    carry_out(means, [copy("x"), *(create(f"t{n}") for n in range(3))])
    assert {event.id for at, event in on.events if isinstance(event, ActionStarted) and at == 0} == {
        "mirror:mirror/east/x",
        "create:topic/west/t0",
    }


def test_some_mirrors_are_promoted_at_once_and_a_copy_goes_beside_them() -> None:
    on, means = stage("east", parallelism=1)
    waiting = [replace(copy(f"t{number}"), job="catch-up") for number in range(40)]
    result = carry_out(means, [*waiting, copy("x"), copy("y")])
    assert len(result.done) == 42
    at_first = [event.id for at, event in on.events if isinstance(event, ActionStarted) and at == 0]
    assert sum(name.startswith("catch-up:") for name in at_first) == MIRRORS_AT_ONCE
    assert sum(name.startswith("mirror:") for name in at_first) == 1


@pytest.mark.parametrize("parallelism", [1, 3, 20])
def test_a_wave_takes_as_long_as_its_rounds(parallelism: int) -> None:
    on, means = stage(*CLUSTERS, parallelism=parallelism)
    carry_out(means, [create(f"t{n}", cluster=cluster) for cluster in CLUSTERS for n in range(5)])
    ended = max(at for at, event in on.events if isinstance(event, ActionDone))
    rounds = -(-len(CLUSTERS) // parallelism)
    # A call takes at most twice ten seconds here.
    assert ended <= rounds * 20
    assert ended >= rounds * 5 or parallelism != 1
    assert all(len(platform.calls) == 1 for platform in on.platforms.values())
