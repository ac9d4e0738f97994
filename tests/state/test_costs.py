"""What a run costs its state, counted in objects and requests. In virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.engine import Engine, RunLease, RunResult
from reconciler.applying.ports import RunPorts
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.journal import (
    ActionEnded,
    ActionRefused,
    Entry,
    Intent,
    Journal,
    read_journal,
    read_runs,
    write_run,
)
from reconciler.state.lease import acquire
from tests.applying.platform import Platform, Works, create
from tests.embedded.stores import WatchedStore
from tests.state.samples import claim, run_file
from tests.state.simulation import Simulation, simulate, simulated

if TYPE_CHECKING:
    from reconciler.planning.actions import Action

MIB = 1 << 20


@dataclass
class Books:
    """A state whose requests are counted, and a run that writes to it."""

    seed: int = 0
    call_s: float = 1.0
    store: WatchedStore = field(default_factory=lambda: WatchedStore(MemoryStore()))

    def carry_out(self, actions: Sequence[Action], batch: int, parallelism: int = 8) -> RunResult:
        """Do a plan as a run does, all clusters alike."""

        async def run() -> RunResult:
            effects = Simulation(self.seed, call_s=self.call_s)
            async with await acquire(self.store, effects, claim("one")) as lease:
                means = RunPorts(
                    providers={action.cluster or "": Platform(batch=batch) for action in actions},  # type: ignore[misc] # see platform.py
                    jobs=Works(),
                    lease=RunLease(lease, Journal(lease, effects, "run-1"), effects),
                    effects=effects,
                    report=lambda _event: None,
                    parallelism=parallelism,
                )
                return await Engine(actions, means, record={}, run="run-1").run()

        return simulate(run())

    def write(self, *batches: Sequence[Entry]) -> None:
        async def run() -> None:
            effects = Simulation(self.seed, call_s=self.call_s)
            async with await acquire(self.store, effects, claim("one")) as lease:
                journal = Journal(lease, effects, "run-1")
                for task in [effects.start_task(journal.append(batch)) for batch in batches]:
                    await task

        simulate(run())

    @property
    def sizes(self) -> list[int]:
        return [listed.size for listed in self.store.list("runs/run-1/journal/")]


def spread(clusters: int, each: int) -> list[Action]:
    return [create(f"t{n}", cluster=f"c{cluster}") for n in range(each) for cluster in range(clusters)]


@simulated
async def test_what_waits_while_one_object_is_written_goes_into_the_next_together() -> None:
    books = Books()
    effects = Simulation(call_s=1)
    async with await acquire(books.store, effects, claim("one")) as lease:
        journal = Journal(lease, effects, "run-1")
        first = effects.start_task(journal.append([Intent(id="first")]))
        await effects.sleep(0.01)
        later = [effects.start_task(journal.append([Intent(id=f"later-{n}")])) for n in range(500)]
        for task in [first, *later]:
            await task
    assert [len(page.entries) for page in read_journal(books.store, "run-1").pages] == [1, 500]


@pytest.mark.parametrize("seed", range(3))
def test_two_clusters_of_many_batches_share_their_objects(seed: int) -> None:
    books = Books(seed)
    rounds = 10
    assert len(books.carry_out(spread(2, rounds * 100), batch=100).done) == 2_000
    # One alone needs an intent and an end a round; two of them that never met would need twice as many.
    assert 2 * rounds <= len(books.sizes) < 4 * rounds


@pytest.mark.parametrize("seed", range(3))
def test_objects_follow_the_rounds_and_not_the_clusters(seed: int) -> None:
    few, many = Books(seed), Books(seed)
    rounds = 10
    few.carry_out(spread(2, rounds * 10), batch=10, parallelism=20)
    many.carry_out(spread(20, rounds * 10), batch=10, parallelism=20)
    assert len(many.sizes) < 2 * len(few.sizes)
    assert len(many.sizes) < 20 * 2 * rounds / 4


@pytest.mark.thorough
def test_ten_thousand_actions_make_a_few_objects() -> None:
    books = Books()
    assert len(books.carry_out(spread(1, 10_000), batch=10_000).done) == 10_000
    assert len(books.sizes) <= 4
    assert max(books.sizes) <= MIB


@pytest.mark.parametrize("letter", ["x", "ü", "→", "🙂"])
def test_an_object_is_never_larger_than_a_mebibyte_whatever_is_written(letter: str) -> None:
    books = Books()
    refused = [ActionRefused(id=f"create:topic/west/t{n}", error=letter * 300, hint="Look.") for n in range(10_000)]
    books.write(refused[:5_000], refused[5_000:])
    assert max(books.sizes) <= MIB
    assert len(books.sizes) <= sum(books.sizes) / MIB + 2
    assert len(read_journal(books.store, "run-1").entries) == 10_000


def test_an_entry_that_is_too_large_for_any_object_has_one_of_its_own() -> None:
    books = Books()
    large = ActionRefused(id="b", error="x" * 2 * MIB, hint="Look.")
    books.write([ActionEnded(id="a"), large, ActionEnded(id="c")])
    assert [len(page.entries) for page in read_journal(books.store, "run-1").pages] == [1, 1, 1]


def test_of_many_runs_only_the_last_are_read_down_to_one_that_is_too_old() -> None:
    store = MemoryStore()
    for number in range(100):
        write_run(store, replace(run_file(f"run-{number:03}", epoch=number), base_serial=number))
    found = read_runs(store, at_most=100, is_too_old=lambda file: file.base_serial < 90)
    assert [file.base_serial for file in found] == list(range(99, 83, -1))
    assert len(read_runs(store, at_most=20, is_too_old=lambda _: False)) == 20
