"""A newest state that is missing altogether is noticed by what names it, made anew from its journal, or asked about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.snapshots import list_snapshots
from tests.state.leftovers import erase, flip, left, newest, told
from tests.state.repairs import cut, lockfile, look, lose, owned, repair


@pytest.fixture
def store() -> MemoryStore:
    """Three states, each of a run that said how it ended: a; a, b; a, b, c."""
    store = MemoryStore()
    for number, name in enumerate("abc", start=1):
        left(store, f"run-{number}", name)
        told(store, f"run-{number}", number, name)
    return store


def keep(_store: MemoryStore) -> None:
    """The lockfile is sound."""


def gone(store: MemoryStore) -> None:
    store.delete([newest(store)])


def damaged(store: MemoryStore) -> None:
    flip(store, newest(store))


LOCKFILES = pytest.mark.parametrize("lockfile_is", [keep, cut, lose])
SNAPSHOTS = pytest.mark.parametrize("snapshot_is", [gone, damaged])


@LOCKFILES
@SNAPSHOTS
def test_the_newest_state_is_made_anew_from_the_journal_of_its_run(
    store: MemoryStore, lockfile_is: Callable[[MemoryStore], None], snapshot_is: Callable[[MemoryStore], None]
) -> None:
    snapshot_is(store)
    lockfile_is(store)
    found = repair(store)
    assert (found.base.serial, found.rebuilt_from, found.forgotten) == (2, "run-3", ())
    assert lockfile(store).serial == 4
    assert owned(store) == ["a", "b", "c"]


@LOCKFILES
@SNAPSHOTS
def test_where_only_the_result_of_its_run_is_left_a_person_names_the_state_to_go_on_from(
    store: MemoryStore, lockfile_is: Callable[[MemoryStore], None], snapshot_is: Callable[[MemoryStore], None]
) -> None:
    snapshot_is(store)
    lockfile_is(store)
    erase(store, "run-3", keeps_result=True)
    with pytest.raises(UserError, match=r"no journal has its content.*#2.* forgets what run run-3 did.*--snapshot 2"):
        look(store)
    found = repair(store, snapshot="2")
    assert [(run.run, run.actions) for run in found.forgotten] == [("run-3", ("create:topic/west/c",))]
    assert (lockfile(store).serial, owned(store)) == (4, ["a", "b"])


@pytest.mark.parametrize(("lockfile_is", "snapshot_is"), [(keep, gone), (cut, gone), (keep, damaged), (lose, damaged)])
def test_where_nothing_of_its_run_is_left_a_person_names_the_state_to_go_on_from(
    store: MemoryStore, lockfile_is: Callable[[MemoryStore], None], snapshot_is: Callable[[MemoryStore], None]
) -> None:
    snapshot_is(store)
    lockfile_is(store)
    erase(store, "run-3")
    with pytest.raises(UserError, match=r"no journal has its content.*#2; to continue from it: .*--snapshot 2"):
        look(store)
    repair(store, snapshot="2")
    assert (lockfile(store).serial, owned(store)) == (4, ["a", "b"])


def test_the_first_state_is_made_anew_from_its_journal_too() -> None:
    store = MemoryStore()
    left(store, "run-1", "a")
    told(store, "run-1", 1, "a")
    gone(store)
    assert repair(store).lockfile.serial == 2
    assert owned(store) == ["a"]


def test_a_state_that_the_run_of_another_made_is_not_taken_from_this_ones_journal(store: MemoryStore) -> None:
    for _ in range(2):
        gone(store)
    erase(store, "run-3")
    with pytest.raises(UserError, match=r"no state #3 .*--snapshot 1"):
        look(store)
    found = repair(store, snapshot="1")
    assert (found.rebuilt_from, lockfile(store).serial, owned(store)) == ("run-2", 4, ["a", "b"])


def test_an_open_run_whose_checkpoint_is_missing_stays_open(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=["d"])
    gone(store)
    found = repair(store)
    after = lockfile(store)
    assert (found.base.serial, after.serial) == (3, 5)
    assert after.open_run is not None
    assert after.open_run.run == "run-4"


def test_serials_never_go_back_even_where_only_a_later_run_says_how_far_they_were(store: MemoryStore) -> None:
    left(store, "run-4", "d", done=[], commits=False)
    gone(store)
    lose(store)
    with pytest.raises(UserError, match=r"--snapshot 2"):
        look(store)
    repair(store, snapshot="2")
    assert lockfile(store).serial == 4


def test_who_goes_back_on_purpose_is_told_what_is_forgotten(store: MemoryStore) -> None:
    lose(store)
    found = repair(store, snapshot="2")
    assert [run.run for run in found.forgotten] == ["run-3"]
    assert (lockfile(store).serial, owned(store)) == (4, ["a", "b"])
    assert [row.serial for row in list_snapshots(store)] == [4, 3, 2, 1]
