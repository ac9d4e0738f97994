"""A whole run, with each of its writes lost, late, repeated or refused in turn, beside one whose network is good.

What must hold whatever happens to any write: never two who act at once, no state is lost, the one whose network is good
ends, and what arrives late changes nothing any more. All of it in virtual time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from reconciler.errors import LeaseError, ReconcilerError
from reconciler.objectstore import swap
from reconciler.objectstore.base import PROBE, ObjectStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.runtime.retry import Backoff
from reconciler.state.journal import ActionEnded, Intent, Journal, read_journal, take_over_journal
from reconciler.state.lease import Lease, LeasePatience, acquire
from reconciler.state.lockfile import StatePointer, read_lockfile
from reconciler.state.snapshots import list_snapshots, read_snapshot, read_snapshot_of
from tests.contracts.wire import Fault, Wire
from tests.state.samples import claim, record, run_file
from tests.state.simulation import Simulation, simulate

pytestmark = pytest.mark.thorough

WRITES = 9
"""Lockfile, run, lockfile, journal, snapshot, lockfile, journal, snapshot, lockfile."""
LATE_S = (0.02, 20.0, 95.0, 100_000.0)
"""How late: with the next request, within the lease, when it has expired, when all is over."""


@dataclass
class World:
    """One state, who acts on it now, what each run says it has written, and how it ended."""

    store: MemoryStore = field(default_factory=MemoryStore)
    acting: dict[str, Lease] = field(default_factory=dict)
    ended_well: dict[str, bool] = field(default_factory=dict)
    intended: list[str] = field(default_factory=list)
    fallen: bool = False

    async def run(self, store: ObjectStore, effects: Simulation, name: str) -> None:
        lease: Lease | None = None
        try:
            lease = await acquire(store, effects, claim(name), LeasePatience(lock_timeout_s=10_000))
            await self._turn(lease, effects, name)
            self.ended_well[name] = True
        except ReconcilerError:
            self.ended_well[name] = False
        finally:  # what a process leaves behind that ends here
            self.acting.pop(name, None)
            if lease is not None:
                lease._stop_renewing()

    async def _turn(self, lease: Lease, effects: Simulation, name: str) -> None:
        base = (await lease.read_snapshot()).record
        left = lease.lockfile.open_run
        if left is not None:
            journal = await take_over_journal(lease, effects, left.run)
            assert journal.entries
            assert (left.run in self.intended) <= any(isinstance(entry, Intent) for entry in journal.entries)
        await lease.open_run(run_file(name, epoch=lease.lockfile.lease.epoch))
        journal = Journal(lease, effects, name)
        await journal.append([Intent(id="x")])
        self.intended.append(name)
        self._act(lease, name)
        await lease.commit({**base, **record(f"{name}-a")})
        await effects.sleep(30)
        self._act(lease, name)
        await journal.append([ActionEnded(id="x")])
        self.acting.pop(name)
        await lease.close({**base, **record(f"{name}-a", f"{name}-b")})

    def _act(self, lease: Lease, name: str) -> None:
        lease.check()
        for other in self.acting.values():
            if other is not lease:
                with pytest.raises(LeaseError):
                    other.check()
        self.acting[name] = lease


def names(world: World) -> set[str]:
    snapshot = read_snapshot(world.store)
    return set() if snapshot is None else {address.rpartition("/")[2] for address in snapshot.record}


def check_chain(world: World) -> None:
    """Every state was made from the one before it, back to the first."""
    found = read_lockfile(world.store)
    assert found is not None
    snapshot, serial = read_snapshot_of(world.store, found.lockfile), found.lockfile.serial
    kept = {row.key: row.serial for row in list_snapshots(world.store)}
    previous = snapshot.previous
    while previous is not None:
        serial -= 1
        assert kept[previous] == serial
        stored = found.lockfile.model_copy(update={"serial": serial, "state": _pointer(world, previous)})
        previous = read_snapshot_of(world.store, stored).previous
    assert serial == 1


def _pointer(world: World, key: str) -> StatePointer:
    stored = world.store.get(key)
    assert stored is not None
    return StatePointer(key=key, sha256=sha256(stored.body).hexdigest(), bytes=len(stored.body))


@dataclass(frozen=True)
class Suffering:
    """What happens to the first run: a fault to its write number `at` and to some that follow, and maybe a pause."""

    fault: Fault
    at: int
    times: int
    late_s: float
    pause_s: float


def suffer(what: Suffering) -> None:
    """Let it happen, beside a run whose network is good, and before one that comes when all is over."""
    world = World()
    wire = Wire(world.store)
    seen = 0

    def fall_upon(key: str) -> None:
        nonlocal seen
        seen += not key.startswith(PROBE)
        if seen == what.at and not world.fallen:
            world.fallen = True
            wire.on(what.fault, times=what.times)

    wire.before = fall_upon

    async def race() -> None:
        bad, good = Simulation(seed=1), Simulation(seed=2, offset=1e6)
        runs = [bad.start_task(world.run(wire, bad, "bad"))]
        await bad.sleep(0.5)
        runs.append(good.start_task(world.run(world.store, good, "good")))
        asyncio.get_running_loop().call_later(what.late_s, wire.deliver)
        asyncio.get_running_loop().call_later(5, lambda: bad.freeze(what.pause_s))
        for run in runs:
            await run
        await good.sleep(2 * LATE_S[-1])
        await world.run(world.store, good, "after")

    simulate(race())
    assert world.ended_well.items() >= {"good": True, "after": True}.items()
    for run, is_well in world.ended_well.items():
        assert not is_well or names(world) >= {f"{run}-a", f"{run}-b"}
    check_chain(world)
    for run in world.intended:
        assert any(isinstance(entry, Intent) for entry in read_journal(world.store, run).entries)


@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize("fault", Fault)
def test_whatever_happens_to_a_write_nobody_else_acts_and_nothing_is_lost(
    fault: Fault, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "TRIES", tries)
    monkeypatch.setattr(swap, "_BACKOFF", Backoff(first_s=0.0, longest_s=0.0))
    for at in range(1, WRITES + 1):
        for times, pause_s in ((1, 0), (1, 200), (20, 0)) if tries == 1 else ((20, 0),):
            for late_s in LATE_S if fault is Fault.LATE else LATE_S[:1]:
                suffer(Suffering(fault, at, times, late_s, pause_s))
