"""The lease over time: renewing, fencing oneself, expiring, being taken over. All of it in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from reconciler.errors import InterruptedRunError, LeaseError, RetryableError
from reconciler.objectstore.base import Version
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.journal import Intent, RunTakenOver, journal_key, read_journal
from reconciler.state.lease import LeasePatience, LeaseWatch, Notice, TakeoverNotice, acquire
from reconciler.state.lockfile import KEY, LeaseTerms, Lockfile, read_lockfile
from reconciler.state.repair import UnlockRequest, UnlockResult, unlock
from reconciler.state.snapshots import read_snapshot
from tests.state.leftovers import body, create, left, running
from tests.state.samples import SHOP, claim, record, run_file
from tests.state.simulation import Simulation, simulate, simulated


class CutOff(MemoryStore):
    """A store that cannot be reached while `is_cut`. Opened anew it is cut as well: the network is."""

    cuts: dict[str, bool] = {}  # noqa: RUF012 - shared on purpose, by name, as the network between them is

    def __reduce__(self) -> tuple[type[CutOff], tuple[str]]:
        return CutOff, (self._name,)

    @property
    def is_cut(self) -> bool:
        return self.cuts.get(self._name, False)

    @is_cut.setter
    def is_cut(self, value: bool) -> None:
        self.cuts[self._name] = value

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if self.is_cut:
            message = "the store does not answer"
            raise RetryableError(message, hint="Run it again.")
        return super().swap(key, body, expected=expected)


def lockfile_of(store: MemoryStore) -> Lockfile:
    found = read_lockfile(store)
    assert found is not None
    return found.lockfile


@simulated
async def test_a_holder_that_cannot_renew_starts_nothing_after_60_s_and_gives_up_after_75() -> None:
    store = CutOff()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    store.is_cut = True
    seen = {}
    for second in range(1, 80):
        await effects.sleep(1)
        try:
            lease.check()
        except LeaseError as error:
            seen[second] = str(error)
            continue
        seen[second] = "may start" if lease.may_start else "holds on"
    assert [seen[second] for second in (1, 59, 60, 74)] == ["may start", "may start", "holds on", "holds on"]
    assert "could not be renewed for 75 s (the store does not answer" in seen[75]
    store.is_cut = False
    await effects.sleep(30)
    with pytest.raises(LeaseError):
        await lease.commit(record("a"))
    assert read_snapshot(store) is not None
    assert lockfile_of(store).serial == 0


@simulated
async def test_a_holder_that_reaches_the_store_again_in_time_goes_on() -> None:
    store = CutOff()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    store.is_cut = True
    await effects.sleep(65)
    assert not lease.may_start
    store.is_cut = False
    await effects.sleep(6)
    assert lease.may_start
    assert await lease.close(record("a")) == 1


@simulated
async def test_the_deadline_counts_from_when_the_renewal_was_sent_not_from_its_answer() -> None:
    effects = Simulation(call_s=0)

    class Slow(MemoryStore):
        def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
            version = super().swap(key, body, expected=expected)
            asyncio.get_running_loop()._virtual.clock += 20  # type: ignore[attr-defined]
            return version

    lease = await acquire(Slow(), effects, claim("one"))
    assert lease._read_age() >= 20


@simulated
async def test_a_dead_holder_is_taken_over_after_a_whole_lease_without_change_and_no_sooner() -> None:
    store = MemoryStore()
    dead, alive = Simulation(call_s=0, offset=-500_000), Simulation(call_s=0.5, offset=7)
    lease = await acquire(store, dead, claim("dead"))
    await lease.open_run(run_file("dead"))
    lease._stop_renewing()
    began = alive.read_clock()
    taken = await acquire(store, alive, claim("alive"))
    assert 90 <= alive.read_clock() - began <= 97
    assert (taken.taken_from, taken.lockfile.lease.epoch) == ("dead", 2)
    await taken.release()


@simulated
async def test_whoever_comes_late_watches_a_whole_lease_too() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("dead"))
    lease._stop_renewing()
    await effects.sleep(10_000)
    began = effects.read_clock()
    await acquire(store, effects, claim("alive"))
    assert effects.read_clock() - began >= 90


@simulated
async def test_a_living_holder_is_never_taken_over_however_long_one_waits() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=1)
    lease = await acquire(store, effects, claim("alive"))
    with pytest.raises(LeaseError, match=r"held by alive@host.*state unlock alive"):
        await acquire(store, effects, claim("waiting"), LeasePatience(lock_timeout_s=3600))
    lease.check()
    assert lockfile_of(store).lease.epoch == 1
    await lease.release()


@simulated
async def test_a_frozen_holder_wakes_up_to_a_lost_lease_and_writes_nothing() -> None:
    store = MemoryStore()
    laptop, server = Simulation(seed=1), Simulation(seed=2)
    lease = await acquire(store, laptop, claim("laptop"))
    await lease.open_run(run_file("laptop"))
    laptop.freeze(600)
    other = await acquire(store, server, claim("server"))
    await other.close(record("server"))
    await laptop.sleep(0)
    with pytest.raises(LeaseError):
        await lease.commit(record("laptop"))
    snapshot = read_snapshot(store)
    assert snapshot is not None
    assert list(snapshot.record) == ["topic/west/server"]


@simulated
async def test_whoever_waits_is_told_at_once_and_every_half_minute_what_the_holder_is_doing() -> None:
    store = MemoryStore()
    told: list[tuple[float, Notice]] = []
    effects = Simulation(call_s=0)

    def tell(notice: Notice) -> None:
        told.append((effects.read_clock(), notice))

    lease = await acquire(store, effects, claim("one"))
    waiting = effects.start_task(acquire(store, effects, claim("two"), LeasePatience(lock_timeout_s=600, tell=tell)))
    await effects.sleep(20)
    await lease.open_run(run_file("one", actions=("a", "b")))
    await effects.sleep(60)
    await lease.close(None)
    await (await waiting).release()
    assert [at for at, _ in told] == [0, 30, 60]
    assert [str(notice) for _, notice in told] == [
        f"the lease is held by one@host (https://ci/one) since 2026-01-01T00:00:00Z: {doing}; run one; "
        f"waiting up to 600 s, {waited} s so far"
        for doing, waited in [("planning", 0), ("apply, 2 actions", 30), ("apply, 2 actions", 60)]
    ]


@simulated
async def test_whoever_waits_while_one_turn_follows_another_is_told_twice_a_minute_and_no_oftener() -> None:
    store = MemoryStore()
    told: list[Notice] = []
    effects = Simulation(call_s=0)

    async def hold(name: str) -> None:
        lease = await acquire(store, effects, claim(name))
        await effects.sleep(4)
        await lease.release()

    others = [effects.start_task(hold(f"run-{number}")) for number in range(20)]
    await effects.sleep(1)
    await (await acquire(store, effects, claim("last"), LeasePatience(tell=told.append))).release()
    for other in others:
        await other
    assert len(told) <= 1 + effects.read_clock() / 30
    assert told


@simulated
async def test_a_holder_that_settles_what_another_run_left_open_is_said_to_do_that() -> None:
    store = MemoryStore()
    told: list[Notice] = []
    effects = Simulation(call_s=0)
    dead = await acquire(store, effects, claim("dead"))
    await dead.open_run(run_file("dead"))
    dead._stop_renewing()
    settling = await acquire(store, effects, claim("settling"))
    with pytest.raises(LeaseError, match="settling run dead, which was left open; run settling"):
        await acquire(store, effects, claim("third"), LeasePatience(lock_timeout_s=1, tell=told.append))
    await settling.release()
    assert "settling@host" in str(told[0])


def test_a_takeover_is_told_in_one_line_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    told: list[Notice] = []

    async def run() -> None:
        effects = Simulation(call_s=0)
        dead = await acquire(store, effects, claim("dead"), LeasePatience(tell=told.append))
        dead._stop_renewing()
        await (await acquire(store, effects, claim("alive"), LeasePatience(tell=told.append))).release()
        await (await acquire(store, effects, claim("later"), LeasePatience(tell=told.append))).release()

    with caplog.at_level("DEBUG", logger="reconciler.lease"):
        simulate(run())
    takeovers = [notice for notice in told if isinstance(notice, TakeoverNotice)]
    assert [str(notice) for notice in takeovers] == ["took over the lease of run dead of dead@host, silent for 90 s"]
    assert [entry.getMessage() for entry in caplog.records].count("took over") == 1


@simulated
async def test_a_request_to_stop_is_heard_while_waiting() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    await acquire(store, effects, claim("one"))
    began = effects.read_clock()
    patience = LeasePatience(is_stopped=lambda: effects.read_clock() - began > 7)
    with pytest.raises(InterruptedRunError):
        await acquire(store, effects, claim("two"), patience)
    assert effects.read_clock() - began < 9


@simulated
async def test_an_error_inside_a_lease_frees_it_and_stays_the_error() -> None:
    store = CutOff()

    async def fail(name: str, *, is_cut: bool) -> None:
        async with await acquire(store, Simulation(), claim(name)):
            store.is_cut = is_cut
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail("one", is_cut=False)
    assert lockfile_of(store).lease.status == "free"
    with pytest.raises(ZeroDivisionError) as caught:
        await fail("two", is_cut=True)
    assert "could not be freed" in caught.value.__notes__[0]
    assert "does not answer" in caught.value.__notes__[0]


# -- unlock


@simulated
async def test_unlocking_what_is_free_or_was_never_used_is_fine() -> None:
    store = MemoryStore()
    effects = Simulation()
    assert (await unlock(store, effects, UnlockRequest(owner=SHOP))).was_free
    await (await acquire(store, effects, claim("one"))).release()
    unlocked = await unlock(store, effects, UnlockRequest(owner=SHOP, run="one"))
    assert (unlocked.was_free, unlocked.epoch) == (True, 1)


@simulated
async def test_unlocking_without_a_run_watches_a_whole_lease_then_frees_it() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("dead"))
    await lease.open_run(run_file("dead"))
    lease._stop_renewing()
    began = effects.read_clock()
    unlocked = await unlock(store, effects, UnlockRequest(owner=SHOP))
    assert 90 <= effects.read_clock() - began < 92
    assert (unlocked.run, unlocked.who, unlocked.epoch) == ("dead", "dead@host", 2)
    assert unlocked.open_run is not None
    assert unlocked.open_run.run == "dead"
    assert lockfile_of(store).lease.status == "free"


@simulated
async def test_unlocking_a_living_run_without_naming_it_is_refused_naming_it() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("alive"))
    with pytest.raises(LeaseError, match=r"alive@host, run alive, is alive"):
        await unlock(store, effects, UnlockRequest(owner=SHOP))
    lease.check()
    await lease.close(record("a"))


@simulated
async def test_unlocking_the_wrong_run_is_refused_naming_the_right_one() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("alive"))
    with pytest.raises(LeaseError, match=r"not held by run dead but by alive@host, run alive"):
        await unlock(store, effects, UnlockRequest(owner=SHOP, run="dead"))
    await lease.release()


@simulated
@pytest.mark.parametrize(("typed", "is_freed"), [("7e1f2c11", True), ("1f2c11", False)])
async def test_a_run_is_named_by_at_least_the_last_eight_characters_of_its_id(typed: str, is_freed: bool) -> None:  # noqa: FBT001
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("0199a7c4-5b1e-7c33-9d5e-0a4b7e1f2c11"))
    with nullcontext() if is_freed else pytest.raises(LeaseError, match="not held by run 1f2c11"):
        await unlock(store, effects, UnlockRequest(owner=SHOP, run=typed))
    await lease.release()


@simulated
async def test_a_watch_that_is_stopped_changes_nothing() -> None:
    store = MemoryStore()
    effects = Simulation(call_s=0)
    lease = await acquire(store, effects, claim("one"))
    with pytest.raises(InterruptedRunError):
        await unlock(store, effects, UnlockRequest(is_stopped=lambda: effects.read_clock() > 3))
    await lease.release()


# -- small parts


def test_the_terms_leave_a_margin_between_giving_up_and_taking_over() -> None:
    terms = LeaseTerms()
    assert (terms.renew_s, terms.may_start_s, round(terms.give_up_s, 9)) == (15, 60, 75)
    short = LeaseTerms(0.3)
    assert short.renew_s < short.may_start_s < short.give_up_s < short.lease_s
    assert short.poll_s < short.renew_s


def test_a_watch_counts_from_the_answer_that_first_showed_it_to_the_last_question() -> None:
    store = MemoryStore()

    async def taken() -> Lockfile:
        return (await acquire(store, Simulation(), claim("one"))).lockfile

    lockfile = simulate(taken())
    watch = LeaseWatch()
    assert watch.measure_idle_s(lockfile, sent=0, answered=5) == 0
    assert watch.measure_idle_s(lockfile, sent=80, answered=99) == 75
    assert watch.measure_idle_s(lockfile.with_beat(), sent=100, answered=101) == 0


# -- everything at once


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(25))
@simulated
async def test_however_holders_freeze_and_race_no_commit_is_lost_or_built_on_an_old_state(seed: int) -> None:
    store = MemoryStore()
    committed: list[int] = []

    async def work(number: int, effects: Simulation) -> None:
        for turn in range(3):
            lease = await acquire(store, effects, claim(f"{number}-{turn}"), LeasePatience(lock_timeout_s=100_000))
            count = len((await lease.read_snapshot()).record)
            if effects._random.random() < 0.4:
                effects.freeze(effects._random.uniform(10, 200))
            await effects.sleep(effects._random.uniform(0, 60))
            try:
                await lease.close(record(*(f"t{index}" for index in range(count + 1))))
            except LeaseError:
                continue
            committed.append(count + 1)

    machines = [Simulation(seed=seed * 10 + number, call_s=2, offset=number * 1e6) for number in range(4)]
    tasks = [effects.start_task(work(number, effects)) for number, effects in enumerate(machines)]
    for task in tasks:
        await task
    snapshot = read_snapshot(store)
    assert snapshot is not None
    assert committed == list(range(1, len(snapshot.record) + 1))
    assert snapshot.serial == len(committed)
    assert store.get(KEY) is not None


# `state unlock`: the same takeover as any other; the run it was taken from finds itself fenced, and stays open.


def test_what_is_in_doubt_is_named_and_the_run_stays_open() -> None:
    store = MemoryStore()

    async def run() -> UnlockResult:
        lease, journal = await running(store, "dead", "a", "b", "c")
        await journal.append([Intent(id=create("a").id), Intent(id=create("b").id)])
        return await unlock(store, Simulation(), UnlockRequest(owner=SHOP, run=lease.run))

    unlocked = simulate(run())
    assert unlocked.doubt is not None
    assert unlocked.doubt.in_doubt == ("create:topic/west/a", "create:topic/west/b")
    assert unlocked.doubt.left == ("create:topic/west/c",)
    found = read_lockfile(store)
    assert found is not None
    assert found.lockfile.open_run == unlocked.open_run
    assert (found.lockfile.lease.status, found.lockfile.lease.epoch) == ("free", 2)


@simulated
async def test_the_next_intent_of_whoever_was_thought_dead_is_refused() -> None:
    store = MemoryStore()
    lease, journal = await running(store, "paused", "a")
    await unlock(store, Simulation(), UnlockRequest(owner=SHOP, run="paused", who="anna@build-7"))
    with pytest.raises(LeaseError, match="another run has taken over"):
        await journal.append([Intent(id=create("a").id)])
    with pytest.raises(LeaseError):
        await lease.renew()
    (entry,) = read_journal(store, "paused").entries
    assert isinstance(entry, RunTakenOver)
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

    async def run() -> UnlockResult:
        await acquire(store, effects, claim("alive"))
        store.beats = 3
        return await unlock(store, effects, UnlockRequest(owner=SHOP, run="alive"))

    assert simulate(run()).run == "alive"
    assert store.beats == 0


def test_a_free_lease_says_what_an_open_run_left() -> None:
    store = MemoryStore()
    left(store, "stopped", "a", "b", done=["a"])
    unlocked = simulate(unlock(store, Simulation(), UnlockRequest(owner=SHOP)))
    assert unlocked.was_free
    assert unlocked.doubt is not None
    assert unlocked.doubt.in_doubt == ("create:topic/west/b",)


def test_an_open_run_whose_journal_has_a_hole_is_freed_and_said_to_be_unreadable() -> None:
    store = MemoryStore()

    async def run() -> UnlockResult:
        _, journal = await running(store, "dead", "a", "b")
        await journal.append([Intent(id=create("a").id)])
        await journal.append([Intent(id=create("b").id)])
        store.delete([journal_key("dead", 1)])
        return await unlock(store, Simulation(), UnlockRequest(owner=SHOP, run="dead"))

    unlocked = simulate(run())
    assert unlocked.doubt is not None
    assert unlocked.doubt.unreadable is not None
    assert "000001.json is missing" in unlocked.doubt.unreadable.message
    assert b'"free"' in body(store, KEY)
