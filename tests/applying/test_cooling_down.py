"""Work whose name the platform makes up is not done again before a call of the old run can no longer land."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.ports import RunContext
from reconciler.applying.recovery import COOL_DOWN_S, Recovery
from reconciler.errors import IncompleteError
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.runner import Stop
from reconciler.resources.inventory import Capabilities, Inventory, Observed
from reconciler.state.journal import Journal, read_journal
from reconciler.state.lease import acquire
from tests.applying.platform import Platform, Works, create
from tests.simulation.world import KeptHere
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate

if TYPE_CHECKING:
    from reconciler.providers.protocol import Scope

ACTION = create("a")
LANDS_S = 100.0


@dataclass
class ClusterNaming(Platform):
    """A platform that makes up names for a kind; the old run's call lands on it `lands_s` after the takeover."""

    effects: Simulation = field(default_factory=Simulation)
    names: frozenset[str] = frozenset({"topic"})
    lands_s: float = float("inf")
    looks: list[float] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(platform="test", server_ids=self.names)

    def observe(self, scope: Scope) -> Inventory:
        assert scope.patterns == (ACTION.address,)
        self.looks.append(self.effects.read_clock())
        is_there = self.effects.read_clock() >= self.lands_s
        return {ACTION.address: Observed(ACTION.after, incarnation="id-1")} if is_there else {}


def settled(platform: ClusterNaming, *, stops_s: float | None = None) -> tuple[dict[str, str], float, list[str]]:
    """Return what was found, how long it took, and what the journal says of it."""
    store, effects, stop = MemoryStore(), platform.effects, Stop()

    async def run() -> tuple[dict[str, str], float]:
        lease = await acquire(store, effects, claim("one"))
        setting = RunContext(
            state=store,
            providers={"west": platform},  # type: ignore[dict-item] # recovery asks it for these things alone
            jobs=Works(),
            effects=effects,
            report=lambda _: None,
            stop=stop,
            spool=KeptHere(None, {}),  # type: ignore[arg-type] # nothing is kept
        )
        if stops_s is not None:
            effects.start_task(_later(stops_s))
        recovery, began = Recovery(lease, setting, skips_address=lambda _: False), effects.read_clock()
        _, verdicts = await recovery.settle([ACTION], Journal(lease, effects, "one"), {})
        return verdicts, effects.read_clock() - began

    async def _later(seconds: float) -> None:
        await effects.sleep(seconds)
        stop.request()

    verdicts, took = simulate(run())
    return verdicts, took, [entry.type for entry in read_journal(store, "one").entries]


def looks(platform: ClusterNaming) -> Iterator[float]:
    yield from (after - before for before, after in zip(platform.looks, platform.looks[1:], strict=False))


def test_what_is_not_there_is_looked_at_again_once_nothing_can_land_any_more() -> None:
    platform = ClusterNaming()
    verdicts, took, written = settled(platform)
    assert (verdicts, written) == ({ACTION.id: "absent"}, [])
    assert took >= COOL_DOWN_S
    assert len(platform.looks) == 2
    assert sum(looks(platform)) >= COOL_DOWN_S - 1


def test_what_lands_while_it_is_waited_is_found_and_not_done_twice() -> None:
    platform = ClusterNaming(lands_s=LANDS_S)
    verdicts, _, written = settled(platform)
    assert (verdicts, written) == ({ACTION.id: "done"}, ["done"])
    assert platform.calls == []


@pytest.mark.parametrize(
    "platform",
    [ClusterNaming(names=frozenset()), ClusterNaming(names=frozenset({"mounting"})), ClusterNaming(lands_s=0.0)],
    ids=range(3),
)
def test_what_is_named_by_us_or_is_there_is_not_waited_for(platform: ClusterNaming) -> None:
    _, took, _ = settled(platform)
    assert took < 1
    assert len(platform.looks) == 1


def test_whoever_asks_to_stop_does_not_wait_for_it() -> None:
    platform = ClusterNaming()
    with pytest.raises(IncompleteError, match="too early for a retry") as caught:
        settled(platform, stops_s=5.0)
    assert "reconciler apply" in caught.value.hint
    assert len(platform.looks) == 1
