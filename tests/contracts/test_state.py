"""What the state promises, over every kind of store: one holder at a time, nothing forgotten, nothing half."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LeaseError, RetryableError, UserError
from reconciler.state.journal import read_run, result_key, run_key
from reconciler.state.lease import LeasePatience, acquire
from reconciler.state.lockfile import KEY, Lockfile, Owner, read_lockfile
from reconciler.state.repair import UnlockRequest, unlock
from reconciler.state.snapshots import list_snapshots, read_snapshot, read_snapshot_at
from tests.contracts.lossy import LossyStore
from tests.servers.stores import KINDS, fresh_store
from tests.state.samples import SHOP, claim, record, run_file
from tests.state.simulation import Simulation, simulate, simulated

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version

AT_ONCE = LeasePatience(lock_timeout_s=0)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "state")


def lockfile_of(store: ObjectStore) -> Lockfile:
    found = read_lockfile(store)
    assert found is not None
    return found.lockfile


def names(store: ObjectStore) -> list[str]:
    snapshot = read_snapshot(store, owner=SHOP)
    return [] if snapshot is None else sorted(snapshot.record)


def test_an_empty_place_has_no_state_and_reading_writes_nothing(store: ObjectStore) -> None:
    assert read_snapshot(store, owner=SHOP) is None
    assert list(store.list("")) == []


def test_a_whole_run_leaves_a_free_lease_and_what_it_did(store: ObjectStore) -> None:
    async def run() -> int:
        lease = await acquire(store, Simulation(), claim("one"))
        assert (await lease.read_snapshot()).record == {}
        await lease.open_run(run_file("one"))
        assert lockfile_of(store).open_run is not None
        return await lease.close(record("a", "b"))

    assert simulate(run()) == 1
    lockfile = lockfile_of(store)
    assert (lockfile.lease.status, lockfile.lease.epoch, lockfile.open_run) == ("free", 1, None)
    assert (lockfile.lineage, lockfile.workspace, lockfile.environment) == ("lineage-1", "shop", None)
    snapshot = read_snapshot(store, owner=SHOP)
    assert snapshot is not None
    assert snapshot.record == record("a", "b")
    assert (snapshot.serial, snapshot.lineage, snapshot.run) == (1, "lineage-1", "one")
    assert read_run(store, "one") == run_file("one")
    assert sorted(listed.key for listed in store.list("")) == sorted([KEY, run_key("one"), snapshot.key])


@simulated
async def test_every_turn_has_the_next_epoch_and_every_state_the_next_serial(store: ObjectStore) -> None:
    for number in range(1, 4):
        lease = await acquire(store, Simulation(), claim(f"run-{number}"))
        await lease.open_run(run_file(f"run-{number}"))
        assert await lease.close(record(f"t{number}")) == number
        assert lockfile_of(store).lease.epoch == number
    assert [row.serial for row in list_snapshots(store)] == [3, 2, 1]
    assert [sorted(read_snapshot_at(store, serial).record) for serial in (1, 2, 3)] == [
        ["topic/west/t1"],
        ["topic/west/t2"],
        ["topic/west/t3"],
    ]
    with pytest.raises(UserError, match="has no state #4"):
        read_snapshot_at(store, 4)


@simulated
async def test_a_run_without_changes_writes_no_state(store: ObjectStore) -> None:
    async with await acquire(store, Simulation(), claim("one")):
        pass
    assert [listed.key for listed in store.list("")] == [KEY]
    assert lockfile_of(store).lease.status == "free"


def test_of_two_that_race_for_an_empty_place_one_waits_for_the_other(store: ObjectStore) -> None:
    async def hold(name: str, effects: Simulation) -> int:
        lease = await acquire(store, effects, claim(name))
        base = (await lease.read_snapshot()).record
        await effects.sleep(40)
        return await lease.close({**base, **record(name)})

    async def race() -> list[int]:
        effects = Simulation(seed=7)
        tasks = [effects.start_task(hold(name, effects)) for name in ("a", "b", "c")]
        return sorted([await task for task in tasks])

    assert simulate(race()) == [1, 2, 3]
    assert names(store) == ["topic/west/a", "topic/west/b", "topic/west/c"]


@simulated
async def test_a_second_holder_is_told_who_the_first_one_is(store: ObjectStore) -> None:
    lease = await acquire(store, Simulation(), claim("first"))
    await lease.open_run(run_file("first"))
    with pytest.raises(LeaseError, match=r"first@host since 2026-01-01T00:00:00Z: apply, 1 action; run first\. "):
        await acquire(store, Simulation(), claim("second"), AT_ONCE)
    await lease.release()
    await (await acquire(store, Simulation(), claim("second"), AT_ONCE)).release()


@simulated
async def test_a_holder_that_was_taken_over_can_commit_nothing(store: ObjectStore) -> None:
    old = await acquire(store, Simulation(), claim("old"))
    await old.open_run(run_file("old"))
    unlocked = await unlock(store, Simulation(), UnlockRequest(owner=SHOP, run="old"))
    assert (unlocked.run, unlocked.epoch, unlocked.was_free) == ("old", 2, False)
    new = await acquire(store, Simulation(), claim("new"), AT_ONCE)
    assert new.lockfile.lease.epoch == 3
    with pytest.raises(LeaseError, match=r"taken over by new@host, run new \(epoch 3\)"):
        await old.commit(record("old"))
    with pytest.raises(LeaseError):
        old.check()
    with pytest.raises(LeaseError):
        await old.close(record("old"))
    await old.release()
    await new.close(record("new"))
    assert names(store) == ["topic/west/new"]


@simulated
async def test_another_workspace_or_environment_is_refused(store: ObjectStore) -> None:
    await (await acquire(store, Simulation(), claim("one"))).close(record("a"))
    for owner in (Owner("shop", "prod"), Owner("other")):
        with pytest.raises(UserError, match=r"holds the state of workspace 'shop', not of"):
            await acquire(store, Simulation(), claim("two", owner=owner))
        with pytest.raises(UserError, match=r"holds the state of workspace 'shop'"):
            read_snapshot(store, owner=owner)
    assert lockfile_of(store).lease.status == "free"


# -- answers that are lost


@simulated
async def test_every_answer_lost_and_retried_changes_nothing_about_the_outcome(store: ObjectStore) -> None:
    lossy = LossyStore(store)
    for number in (1, 2):
        lease = await acquire(lossy, Simulation(), claim(f"run-{number}"))
        await lease.open_run(run_file(f"run-{number}"))
        await lease.commit(record("a"))
        await lease.close(record("a", f"b{number}"))
    assert lossy.swaps > 8
    assert [row.serial for row in list_snapshots(store)] == [4, 3, 2, 1]
    assert names(store) == ["topic/west/a", "topic/west/b2"]


class FlakyStore(LossyStore):
    """Answers every second swap of the lockfile only after it was done and forgotten: the caller is told nothing."""

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key != KEY:
            return self.inner.swap(key, body, expected=expected)
        self.swaps += 1
        version = self.inner.swap(key, body, expected=expected)
        if self.swaps % 2:
            message = "no answer from the store"
            raise RetryableError(message, hint="Run it again.")
        return version


@pytest.mark.parametrize("first", [0, 1])
@simulated
async def test_a_lease_whose_taking_went_unanswered_is_adopted_and_renewed_before_anything_else(
    store: ObjectStore, first: int
) -> None:
    if first:
        await (await acquire(store, Simulation(), claim("before"))).release()
    lease = await acquire(FlakyStore(store, retries=False), Simulation(), claim("one"))
    assert lockfile_of(store).lease.run == "one"
    assert lockfile_of(store).lease.beat == 1
    assert await lease.close(record("a")) == 1
    assert names(store) == ["topic/west/a"]
    assert lockfile_of(store).lease.status == "free"


@simulated
async def test_a_commit_that_landed_unanswered_is_built_upon(store: ObjectStore) -> None:
    flaky = FlakyStore(store, retries=False)
    lease = await acquire(store, Simulation(), claim("one"))
    lease._store = flaky
    with pytest.raises(RetryableError):
        await lease.commit(record("a"))
    assert lockfile_of(store).serial == 1
    lease._store = store
    assert await lease.close(record("a", "b")) == 2
    assert names(store) == ["topic/west/a", "topic/west/b"]


@simulated
async def test_a_closing_write_that_landed_unanswered_is_found_even_after_the_next_run_took_the_lease(
    store: ObjectStore,
) -> None:
    lease = await acquire(store, Simulation(), claim("one"))
    lossy = LossyStore(store, key=KEY)
    taken: list[object] = []

    def intrude() -> None:
        found = read_lockfile(store)
        assert found is not None
        taken.append(found.lockfile.lease.status)
        lease_of_theirs = found.lockfile.lease.model_copy(
            update={"epoch": 2, "status": "held", "run": "two", "holder": "h", "who": "two@host"}
        )
        body = found.lockfile.model_copy(update={"lease": lease_of_theirs}).with_beat().to_bytes()
        store.swap(KEY, body, expected=found.version)

    lossy.meanwhile = intrude
    lease._store = lossy
    assert await lease.close(record("a")) == 1
    assert taken == ["free"]
    assert names(store) == ["topic/west/a"]
    assert lockfile_of(store).lease.run == "two"


@simulated
async def test_an_id_of_a_run_is_used_once(store: ObjectStore) -> None:
    lease = await acquire(store, Simulation(), claim("one"))
    await lease.open_run(run_file("one"))
    with pytest.raises(UserError, match="exists already"):
        await lease.open_run(run_file("one", actions=()))
    await lease.release()
    assert store.get(result_key("one")) is None


@simulated
async def test_a_lockfile_that_vanishes_is_never_made_anew(store: ObjectStore) -> None:
    lease = await acquire(store, Simulation(), claim("one"))
    await lease.commit(record("a"))
    store.delete([KEY])
    with pytest.raises(LeaseError, match="the state is lost, not new"):
        await lease.commit(record("b"))
    with pytest.raises(UserError, match="the state is lost, not new"):
        await acquire(store, Simulation(), claim("two"))
    assert store.get(KEY) is None
