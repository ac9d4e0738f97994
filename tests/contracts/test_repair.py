"""What `state repair` promises, over every kind of store: nothing recorded is forgotten, nobody is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import LeaseError
from reconciler.objectstore.base import ObjectStore
from reconciler.state.diagnosis import read_state_files
from reconciler.state.lease import LeasePatience, acquire
from reconciler.state.lockfile import KEY
from reconciler.state.repair import Repair, RepairChoice, plan_repair, write_repair
from reconciler.state.snapshots import read_snapshot
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store
from tests.state.leftovers import body, left
from tests.state.samples import SHOP, claim
from tests.state.simulation import Simulation, simulate


@pytest.fixture(params=ON_SERVERS_THOROUGHLY)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    store = fresh_store(request, tmp_path / "state")
    left(store, "run-1", "a")
    left(store, "run-2", "b")
    left(store, "run-3", "c", "d", done=["c"])
    return store


def look(store: ObjectStore) -> Repair:
    found = plan_repair(store, read_state_files(store), SHOP, RepairChoice(), lineage="lineage-new")
    assert found is not None
    return found


@pytest.mark.parametrize("damage", ["lost", "cut"])
def test_a_lockfile_is_made_anew_and_the_open_run_stays_open(store: ObjectStore, damage: str) -> None:
    content = body(store, KEY)
    store.delete([KEY])
    if damage == "cut":
        store.put(KEY, content[:-20])
    kept = write_repair(store, look(store))
    assert (kept is not None) == (damage == "cut")
    snapshot = read_snapshot(store, owner=SHOP)
    assert snapshot is not None
    assert sorted(snapshot.record) == ["topic/west/a", "topic/west/b", "topic/west/c"]

    async def run() -> None:
        async with await acquire(store, Simulation(), claim("next"), LeasePatience(lock_timeout_s=0)) as lease:
            assert lease.lockfile.open_run is not None
            assert (lease.lockfile.open_run.run, lease.lockfile.lease.epoch) == ("run-3", 5)

    simulate(run())


def test_of_two_repairs_one_is_done(store: ObjectStore) -> None:
    store.delete([KEY])
    first, second = look(store), look(store)
    write_repair(store, first)
    with pytest.raises(LeaseError, match="written by another process in the meantime"):
        write_repair(store, second)
    assert first.lockfile.to_bytes() == body(store, KEY)
