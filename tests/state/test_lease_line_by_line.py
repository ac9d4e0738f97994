"""What is written of the lease, sentence by sentence, where time alone does not show it: clocks, clients, writers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LeaseError, RetryableError, UnansweredError, UserError
from reconciler.objectstore import swap
from reconciler.objectstore.memory import MemoryStore
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import Lease, LeasePatience, acquire
from reconciler.state.lockfile import KEY, Lockfile, StoredLockfile, read_lockfile
from reconciler.state.snapshots import list_snapshots, read_snapshot_of
from tests.contracts.wire import Fault, Wire
from tests.embedded.stores import WatchedStore
from tests.state.samples import claim, record
from tests.state.simulation import Simulation, simulate, simulated

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version


def lockfile_of(store: ObjectStore) -> Lockfile:
    found = read_lockfile(store)
    assert found is not None
    return found.lockfile


# -- what it costs


class Counted(WatchedStore):
    """Counts what goes through it and through its copies."""

    def __copy__(self) -> Counted:
        return self


@simulated
async def test_an_idle_lease_costs_one_write_in_15_s_and_no_read_for_as_long_as_it_is_held() -> None:
    store = Counted(MemoryStore())
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    store.calls.clear()
    await effects.sleep(600.5)
    assert store.calls == [("swap", KEY)] * 40
    lease.check()
    await lease.release()
    store.calls.clear()
    await effects.sleep(100)
    assert store.calls == []


@simulated
async def test_a_checkpoint_is_a_beat_so_the_next_one_comes_15_s_after_it() -> None:
    store = Counted(MemoryStore())
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    await effects.sleep(10)
    await lease.commit(record("a"))
    store.calls.clear()
    await effects.sleep(14.5)
    assert store.calls == []
    await effects.sleep(1)
    assert store.calls == [("swap", KEY)]
    await lease.release()


@simulated
async def test_taking_a_free_lease_is_a_read_a_listing_and_a_write_and_ending_a_run_two_writes() -> None:
    store = Counted(MemoryStore())
    effects = Simulation()
    await (await acquire(store, effects, claim("one"))).release()
    store.calls.clear()
    lease = await acquire(store, effects, claim("two"))
    assert [what for what, _ in store.calls] == ["get", "list", "swap"]
    store.calls.clear()
    await lease.close(record("a"))
    assert [what for what, _ in store.calls] == ["swap", "swap"]


# -- clocks


class SetBack(Simulation):
    """A machine whose wall clock is set back by a day, while it runs."""

    def read_utc_time(self) -> datetime:
        return super().read_utc_time() - timedelta(days=1 if self.read_clock() > 20 else 0)


@simulated
async def test_a_clock_set_back_by_a_day_changes_nothing() -> None:
    store = MemoryStore()
    holder, waiter = SetBack(call_s=0), SetBack(call_s=0)
    lease = await acquire(store, holder, claim("one"))
    await holder.sleep(100)
    lease.check()
    with pytest.raises(LeaseError, match="since 2026-01-01T00:00:00Z"):
        await acquire(store, waiter, claim("two"), LeasePatience(lock_timeout_s=200))
    assert await lease.close(record("a")) == 1
    dead = await acquire(store, holder, claim("three"))
    dead._stop_renewing()
    began = waiter.read_clock()
    taken = await acquire(store, waiter, claim("four"))
    assert 90 <= waiter.read_clock() - began <= 96
    since = lockfile_of(store).lease.since
    assert since is not None
    assert since.startswith("2025-12-31T")  # for people, and as wrong as their clock
    assert await taken.close(record("a", "b")) == 2


def test_the_clock_of_leases_runs_while_the_machine_sleeps() -> None:
    effects = ThreadEffects(1)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= effects.read_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    effects.close()


# -- clients and writers


class TwoClients(WatchedStore):
    """Knows which of its clients was asked: its copies are told apart."""

    def __init__(self, inner: ObjectStore, copies: list[TwoClients]) -> None:
        super().__init__(inner)
        self.copies = copies

    def __copy__(self) -> TwoClients:
        self.copies.append(TwoClients(self.inner, self.copies))
        return self.copies[-1]


@simulated
async def test_beats_go_through_a_client_of_their_own() -> None:
    copies: list[TwoClients] = []
    store = TwoClients(MemoryStore(), copies)
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    store.calls.clear()
    await effects.sleep(46)
    assert store.calls == []
    await lease.release()
    assert [copy.calls for copy in copies] == [[("swap", KEY)] * 3]


def taken(store: ObjectStore, effects: ThreadEffects, lease_s: float = 90.0) -> Lease:
    """Return a lease that nothing renews, held by this process."""

    async def take() -> Lease:
        return await acquire(store, Simulation(), claim("one", lease_s=lease_s))

    found = read_lockfile(store) if simulate(take()) else None
    assert found is not None
    return Lease(store, effects, StoredLockfile(found.lockfile, found.version), sent=effects.read_clock())


def test_beats_and_checkpoints_of_many_threads_build_one_on_the_other() -> None:
    store = WatchedStore(MemoryStore())
    effects = ThreadEffects(1)
    lease = taken(store, effects)
    before = lockfile_of(store).lease.beat

    def write(number: int) -> None:
        for _ in range(10):
            if number % 2:
                lease._commit(record(f"t{number}"), lambda lockfile: lockfile)
            else:
                lease._write(store, lambda lockfile: lockfile)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert lockfile_of(store).lease.beat == before + 60
    assert lockfile_of(store).serial == 30 == len({row.serial for row in list_snapshots(store)})
    effects.close()


def test_a_commit_is_never_overtaken_by_another_of_its_process() -> None:
    class Slow(MemoryStore):
        def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
            if key != KEY and first.is_set() is False:
                first.set()
                others.wait(0.2)  # as long as the others need for all of theirs, were they let
            return super().swap(key, body, expected=expected)

    first, others, tries = threading.Event(), threading.Event(), 6
    store, effects = WatchedStore(Slow()), ThreadEffects(1)
    lease = taken(store, effects)
    store.calls.clear()
    slow = threading.Thread(target=lambda: lease._commit(record("slow"), lambda lockfile: lockfile))
    slow.start()
    assert first.wait(10)
    for number in range(tries):
        lease._commit(record(f"t{number}"), lambda lockfile: lockfile)
    others.set()
    slow.join()
    assert len([call for call in store.calls if call[0] == "swap"]) == 2 * (tries + 1)  # none was done anew
    effects.close()


@pytest.mark.thorough
def test_a_write_that_hangs_holds_up_no_other_for_longer_than_the_lease_lasts() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Hanging(MemoryStore):
        def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
            if key == KEY and expected is not None:
                entered.set()
                leave.wait(30)
            return super().swap(key, body, expected=expected)

    store, effects = Hanging(), ThreadEffects(1)
    lease = taken(store, effects, lease_s=1.0)
    beat = threading.Thread(target=lambda: lease._write(store, lambda lockfile: lockfile))
    beat.start()
    assert entered.wait(10)
    with pytest.raises(LeaseError, match="could not be renewed"):
        lease._commit(record("a"), lambda lockfile: lockfile)
    leave.set()
    beat.join()
    effects.close()


# -- taking it, when answers are missing


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "TRIES", 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [Fault.LATE, Fault.BUSY, Fault.CONFLICT])
@simulated
async def test_a_store_that_does_not_answer_is_asked_three_times_then_said_not_to(fault: Fault) -> None:
    store = MemoryStore()
    wire = Wire(store)
    effects = Simulation()
    await (await acquire(store, effects, claim("before"))).release()
    wire.on(fault, key=KEY, times=2)
    await (await acquire(wire, effects, claim("patient"))).release()
    wire.on(fault, key=KEY, times=3)
    with pytest.raises(RetryableError):
        await acquire(wire, effects, claim("given up"))
    assert lockfile_of(store).lease.status == "free"


@pytest.mark.usefixtures("impatient")
@simulated
async def test_of_several_tries_whichever_arrives_is_adopted_and_renewed_before_anything_else() -> None:
    store = MemoryStore()
    wire = Wire(store)
    effects = Simulation()
    await (await acquire(store, effects, claim("before"))).release()
    wire.on(Fault.LATE, key=KEY)
    wire.on(Fault.LATE, key=KEY, then=wire.deliver)
    lease = await acquire(wire, effects, claim("one"))
    assert (lockfile_of(store).lease.run, lockfile_of(store).lease.beat) == ("one", 1)
    wire.deliver()
    assert await lease.close(record("a")) == 1
    assert lockfile_of(store).lease.status == "free"


class Overtaken(MemoryStore):
    """Loses the answer to the first swap of the lockfile, and lets somebody free the lease before the second."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps: int | None = None

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key != KEY or self.swaps is None:
            return super().swap(key, body, expected=expected)
        self.swaps += 1
        if self.swaps == 2:
            self._free()
        version = super().swap(key, body, expected=expected)
        if self.swaps == 1:
            message = "the store does not answer"
            raise UnansweredError(message, hint="Run it again.")
        return version

    def _free(self) -> None:
        found = read_lockfile(self)
        assert found is not None
        lease = found.lockfile.lease
        raised = found.lockfile.model_copy(update={"lease": lease.model_copy(update={"epoch": lease.epoch + 1})})
        super().swap(KEY, raised.with_free_lease().with_beat().to_bytes(), expected=found.version)


@simulated
async def test_whoever_finds_its_own_acquire_and_is_overtaken_before_it_renews_does_not_act() -> None:
    store = Overtaken()
    effects = Simulation()
    await (await acquire(store, effects, claim("before"))).release()
    store.swaps = 0
    with pytest.raises(LeaseError, match="taken over"):
        await acquire(store, effects, claim("one"))
    assert (lockfile_of(store).lease.status, lockfile_of(store).lease.epoch) == ("free", 3)


@pytest.mark.usefixtures("impatient")
@simulated
async def test_a_lockfile_that_vanishes_while_it_is_taken_is_not_made_anew_though_nothing_lies_beside_it() -> None:
    store = MemoryStore()

    class Vanishing(Wire):
        def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
            if expected is not None:
                store.delete([KEY])
            return super().swap(key, body, expected=expected)

    await (await acquire(store, Simulation(), claim("before"))).release()
    with pytest.raises(UserError, match=r"it was there a moment ago: the state is lost, not new"):
        await acquire(Vanishing(store, status_of_missing=404), Simulation(), claim("one"))
    assert list(store.list("")) == []


@pytest.mark.parametrize("left", [b"", b"cut short"])
@simulated
async def test_a_snapshot_that_is_not_what_its_name_says_is_written_anew(left: bytes) -> None:
    store = MemoryStore()
    effects = Simulation()
    lease = await acquire(store, effects, claim("one"))
    await lease.commit(record("a"))
    key = list_snapshots(store)[0].key
    again = MemoryStore()
    other = await acquire(again, effects, claim("one"))
    again.put(key, left)
    assert await other.commit(record("a")) == 1
    assert list(read_snapshot_of(again, other.lockfile).record) == ["topic/west/a"]
