"""What tests of `state repair` do: look at what would mend a state, mend it, and say what it owns then."""

from __future__ import annotations

from reconciler.objectstore.memory import MemoryStore
from reconciler.state.diagnosis import read_state_files
from reconciler.state.lockfile import KEY, Lockfile, Owner, read_lockfile
from reconciler.state.repair import Repair, RepairChoice, plan_repair, write_repair
from reconciler.state.snapshots import read_snapshot
from tests.state.leftovers import body, everything
from tests.state.samples import SHOP


def look(
    store: MemoryStore, *, owner: Owner = SHOP, snapshot: str | None = None, without: str | None = None
) -> Repair | None:
    before = everything(store)
    choice = RepairChoice(snapshot=snapshot, without_run=without)
    found = plan_repair(store, read_state_files(store), owner, choice, lineage="lineage-new")
    assert everything(store) == before
    return found


def repair(store: MemoryStore, *, snapshot: str | None = None, without: str | None = None) -> Repair:
    found = look(store, snapshot=snapshot, without=without)
    assert found is not None
    write_repair(store, found)
    assert look(store) is None
    return found


def owned(store: MemoryStore) -> list[str]:
    snapshot = read_snapshot(store, owner=SHOP)
    assert snapshot is not None
    return sorted(address.removeprefix("topic/west/") for address in snapshot.record)


def lockfile(store: MemoryStore) -> Lockfile:
    found = read_lockfile(store, owner=SHOP)
    assert found is not None
    return found.lockfile


def lose(store: MemoryStore) -> None:
    store.delete([KEY])


def cut(store: MemoryStore) -> None:
    store.put(KEY, body(store, KEY)[:-20])
