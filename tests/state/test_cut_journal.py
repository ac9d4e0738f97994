"""A journal that lost its end, where something else says how far its run had come."""

from __future__ import annotations

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.journal import journal_key, read_open_run
from reconciler.state.lockfile import KEY
from tests.state.leftovers import left, told
from tests.state.repairs import lockfile, look, owned, repair

CUT = r"journal of run run-2 is cut short: it does not know of create:topic/west/b, which was done"


@pytest.fixture
def store() -> MemoryStore:
    """A state of a, b; run-2 was stopped before it could make c, and the end of its journal is lost."""
    store = MemoryStore()
    left(store, "run-1", "a")
    left(store, "run-2", "b", "c", done=["b"])
    told(store, "run-2", 2, "b", status="stopped")
    store.delete([journal_key("run-2", 2)])
    return store


def test_an_open_run_is_not_gone_on_with_from_less_than_it_said_it_had_done(store: MemoryStore) -> None:
    with pytest.raises(UserError, match=rf"{CUT}\. Restore .*reconciler state repair"):
        read_open_run(store, lockfile(store))


@pytest.mark.parametrize("lost", [True, False], ids=["and the lockfile is lost", "and the lockfile is there"])
def test_it_is_given_up_by_name_and_what_it_had_recorded_stays(store: MemoryStore, lost: bool) -> None:  # noqa: FBT001 - a case
    if lost:
        store.delete([KEY])
    with pytest.raises(UserError, match=rf"{CUT}.*--without-run run-2"):
        look(store)
    repair(store, without="run-2")
    assert lockfile(store).open_run is None
    assert owned(store) == ["a", "b"]


@pytest.mark.parametrize(
    "kept", [b"", b'{"format":"reconciler.journal/1","run":"run-2","seq":%d,"epo'], ids=["nothing", "half"]
)
@pytest.mark.parametrize("page", [1, 3], ids=["of its first page", "of a later page"])
def test_a_run_that_was_killed_while_it_wrote_its_journal_is_the_last_one_all_the_same(kept: bytes, page: int) -> None:
    store = MemoryStore()
    left(store, "run-1", "a")
    left(store, "run-2", "b", "c", done=["b"], commits=False)
    store.delete(journal_key("run-2", seq) for seq in range(page, 3))
    store.put(journal_key("run-2", page), kept % page if kept else kept)
    store.delete([KEY])
    repair(store)
    found = lockfile(store)
    assert found.lease.epoch == 3
    assert found.open_run is not None
    assert found.open_run.run == "run-2"
    opened = read_open_run(store, found)
    assert opened is not None
    assert len(opened.compute_progress().done) == page // 2
