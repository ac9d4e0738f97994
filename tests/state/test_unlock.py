"""`state unlock`: the same takeover as any other; the run it was taken from finds itself fenced, and stays open."""

from __future__ import annotations

import pytest

from reconciler.errors import LeaseError
from reconciler.objectstore.base import Version
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.journal import Intent, TakenOver, journal_key, read_journal
from reconciler.state.lease import acquire
from reconciler.state.lockfile import KEY, read_lockfile
from reconciler.state.repair import Unlocked, Unlocking, unlock
from tests.state.leftovers import body, create, left, running
from tests.state.samples import SHOP, claim
from tests.state.simulation import Simulation, simulate


def test_what_is_in_doubt_is_named_and_the_run_stays_open() -> None:
    store = MemoryStore()

    async def run() -> Unlocked:
        lease, journal = await running(store, "dead", "a", "b", "c")
        await journal.append([Intent(id=create("a").id), Intent(id=create("b").id)])
        return await unlock(store, Simulation(), Unlocking(owner=SHOP, run=lease.run))

    unlocked = simulate(run())
    assert unlocked.doubt is not None
    assert unlocked.doubt.in_doubt == ("create:topic/west/a", "create:topic/west/b")
    assert unlocked.doubt.left == ("create:topic/west/c",)
    found = read_lockfile(store)
    assert found is not None
    assert found.lockfile.open_run == unlocked.open_run
    assert (found.lockfile.lease.status, found.lockfile.lease.epoch) == ("free", 2)


def test_the_next_intent_of_whoever_was_thought_dead_is_refused() -> None:
    store = MemoryStore()

    async def run() -> None:
        lease, journal = await running(store, "paused", "a")
        await unlock(store, Simulation(), Unlocking(owner=SHOP, run="paused", who="anna@build-7"))
        with pytest.raises(LeaseError, match="another run has taken over"):
            await journal.append([Intent(id=create("a").id)])
        with pytest.raises(LeaseError):
            await lease.renew()

    simulate(run())
    (entry,) = read_journal(store, "paused").entries
    assert isinstance(entry, TakenOver)
    assert entry.who == "anna@build-7"


class _Beating(MemoryStore):
    """Whoever holds the lease writes a beat before each of the first three writes of others."""

    beats = 0

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        found = read_lockfile(self)
        if key == KEY and b'"unlock"' in body and self.beats and found is not None:
            self.beats -= 1
            self.put(KEY, found.lockfile.with_beat().to_bytes())
        return super().swap(key, body, expected=expected)


def test_a_run_that_is_named_is_taken_from_also_while_it_beats() -> None:
    store, effects = _Beating(), Simulation()

    async def run() -> Unlocked:
        await acquire(store, effects, claim("alive"))
        store.beats = 3
        return await unlock(store, effects, Unlocking(owner=SHOP, run="alive"))

    assert simulate(run()).run == "alive"
    assert store.beats == 0


def test_a_free_lease_says_what_an_open_run_left() -> None:
    store = MemoryStore()
    left(store, "stopped", "a", "b", done=["a"])
    unlocked = simulate(unlock(store, Simulation(), Unlocking(owner=SHOP)))
    assert unlocked.was_free
    assert unlocked.doubt is not None
    assert unlocked.doubt.in_doubt == ("create:topic/west/b",)


def test_an_open_run_whose_journal_has_a_hole_is_freed_and_said_to_be_unreadable() -> None:
    store = MemoryStore()

    async def run() -> Unlocked:
        _, journal = await running(store, "dead", "a", "b")
        await journal.append([Intent(id=create("a").id)])
        await journal.append([Intent(id=create("b").id)])
        store.delete([journal_key("dead", 1)])
        return await unlock(store, Simulation(), Unlocking(owner=SHOP, run="dead"))

    unlocked = simulate(run())
    assert unlocked.doubt is not None
    assert unlocked.doubt.unreadable is not None
    assert "000001.json is missing" in unlocked.doubt.unreadable.message
    assert b'"free"' in body(store, KEY)
