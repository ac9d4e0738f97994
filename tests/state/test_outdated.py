"""A lockfile that was put back from a backup is told by what was committed since, and never taken for the present."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.base import ListedObject
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.journal import RunClosed
from reconciler.state.lease import acquire
from reconciler.state.lockfile import KEY
from tests.state.leftovers import body, everything, left, running, told
from tests.state.repairs import lockfile, look, owned, repair
from tests.state.samples import claim, record
from tests.state.simulation import Simulation, simulate

OLD_COPY = r"is an old copy.*reconciler state repair"


def takes(store: MemoryStore, run: str = "later") -> None:
    async def take() -> None:
        await (await acquire(store, Simulation(), claim(run))).release()

    simulate(take())


@pytest.fixture
def store() -> MemoryStore:
    """Two states, each of a run that said how it ended: a; a, b."""
    store = MemoryStore()
    for number, name in enumerate("ab", start=1):
        left(store, f"run-{number}", name)
        told(store, f"run-{number}", number, name)
    return store


def refused(store: MemoryStore) -> None:
    before = everything(store)
    with pytest.raises(UserError, match=OLD_COPY):
        takes(store)
    assert everything(store) == before


def test_a_copy_from_before_the_last_run_is_refused_and_mended(store: MemoryStore) -> None:
    copy = body(store, KEY)
    left(store, "run-3", "c")
    told(store, "run-3", 3, "c")
    store.put(KEY, copy)
    refused(store)
    assert repair(store).lockfile.lease.epoch == 4
    assert (lockfile(store).serial, owned(store)) == (3, ["a", "b", "c"])
    takes(store)


def test_the_epoch_alone_gives_it_away_where_the_run_did_not_say_how_it_ended(store: MemoryStore) -> None:
    copy = body(store, KEY)
    left(store, "run-3", "c")
    store.put(KEY, copy)
    refused(store)
    repair(store)
    assert owned(store) == ["a", "b", "c"]


def test_a_copy_made_while_the_run_was_going_on_is_told_by_what_the_run_ended_with(store: MemoryStore) -> None:
    async def run() -> bytes:
        lease, journal = await running(store, "run-3", "c")
        copy = body(store, KEY)
        await journal.append([RunClosed(status="done")])
        await lease.close(record("a", "b", "c"))
        return copy

    copy = simulate(run())
    told(store, "run-3", 3, "c")
    store.put(KEY, copy)
    refused(store)
    found = look(store)
    assert found is not None
    assert "run run-3 ended with #3" in found.problems[0]


def test_a_run_that_died_before_it_could_commit_is_no_old_copy(store: MemoryStore) -> None:
    async def run() -> None:
        lease, _ = await running(store, "run-3", "c")
        held = body(store, KEY)
        await lease.commit(record("a", "b", "c"))
        store.put(KEY, held)  # as if its swap had never come

    simulate(run())
    takes(store)
    assert lockfile(store).serial == 2


class _Overtaken(MemoryStore):
    """A store in which others begin and end between a look at the lockfile and the next LIST."""

    future: MemoryStore | None = None

    def list(self, prefix: str) -> Iterator[ListedObject]:
        future, self.future = self.future, None
        if future is not None:
            copy_all(future, self)
        return super().list(prefix)


def copy_all(source: MemoryStore, target: MemoryStore) -> None:
    for listed in source.list(""):
        target.put(listed.key, body(source, listed.key))


@pytest.mark.parametrize("runs", [1, 2])
def test_who_began_and_ended_while_we_looked_makes_our_look_old_and_not_the_lockfile(runs: int) -> None:
    store = _Overtaken()
    left(store, "run-1", "a")
    future = MemoryStore()
    copy_all(store, future)
    for number in range(2, 2 + runs):
        left(future, f"run-{number}", f"t{number}")
        told(future, f"run-{number}", number, f"t{number}")
    store.future = future
    takes(store)
    assert store.future is None
    assert lockfile(store).serial == 1 + runs
