"""A state whose lockfile is lost, damaged or outdated is made whole from what is beside it, or says what is missing."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from hashlib import sha256

import orjson
import pytest

from reconciler.errors import LeaseError, NewerFormatError, RetryableError, UserError
from reconciler.objectstore.base import ListedObject
from reconciler.objectstore.memory import MemoryStore
from reconciler.state.diagnosis import read_state_files
from reconciler.state.journal import journal_key, read_journal, read_open_run, run_key
from reconciler.state.lease import acquire
from reconciler.state.lockfile import KEY, Owner
from reconciler.state.repair import write_repair
from reconciler.state.snapshots import list_snapshots
from tests.state.leftovers import body, edit, flip, left, newest
from tests.state.repairs import cut, lockfile, look, lose, owned, repair
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate


@pytest.fixture
def store() -> MemoryStore:
    """Three states: a; a, b; a, b, c."""
    store = MemoryStore()
    for number, name in enumerate("abc", start=1):
        left(store, f"run-{number}", name)
    return store


def applies(store: MemoryStore) -> None:
    """An apply takes the lease of what was repaired, and gives it back."""

    async def run() -> None:
        await (await acquire(store, Simulation(), claim("later"))).release()

    simulate(run())


def restore_first(store: MemoryStore) -> None:
    """Put back the lockfile as it was after the first run."""
    copy = MemoryStore()
    left(copy, "run-1", "a")
    edit(copy, lineage=lockfile(store).lineage, state={**_pointer(store, 2)})
    store.put(KEY, orjson.dumps({**orjson.loads(body(copy, KEY)), "serial": 1}))


def _pointer(store: MemoryStore, back: int) -> dict[str, object]:
    key = newest(store, back)
    return {"key": key, "sha256": sha256(body(store, key)).hexdigest(), "bytes": len(body(store, key))}


DAMAGE: list[tuple[str, Callable[[MemoryStore], None], str]] = [
    ("deleted", lose, r"lockfile\.json is missing"),
    ("truncated", cut, r"lockfile\.json cannot be read"),
    ("empty", lambda store: store.put(KEY, b""), r"cannot be read"),
    ("not JSON", lambda store: store.put(KEY, b"<html>"), r"cannot be read"),
    (
        "edited by hand: another serial",
        lambda store: edit(store, serial=7),
        r"serial is 7, but the state it names is 3",
    ),
    ("edited by hand: a field too many", lambda store: edit(store, surprise=1), r"surprise"),
    (
        "restored from a backup",
        restore_first,
        r"is an old copy: it says state #1, and state/000000000003-\S+ was written",
    ),
    (
        "edited by hand: an epoch nobody has any more",
        lambda store: edit(store, lease={"epoch": 1, "status": "free", "beat": 0, "lease_s": 90.0}),
        r"is an old copy: its epoch is 1, and run run-3 wrote under 3",
    ),
]


@pytest.mark.parametrize(("damage", "says"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_a_lockfile_is_made_anew_and_nothing_is_lost(
    store: MemoryStore, damage: Callable[[MemoryStore], None], says: str
) -> None:
    damage(store)
    before = store.get(KEY)
    found = look(store)
    assert found is not None
    (problem,) = found.problems
    assert re.search(says, problem)
    kept = write_repair(store, found)
    assert owned(store) == ["a", "b", "c"]
    after = lockfile(store)
    assert (after.serial, after.lease.status, after.open_run) == (3, "free", None)
    assert after.lease.epoch == 4
    assert (kept is None) == (before is None)
    if kept is not None and before is not None:
        assert body(store, kept) == before.body
    assert look(store) is None
    applies(store)


def test_the_epoch_is_one_more_than_the_highest_anything_says(store: MemoryStore) -> None:
    edit(store, lease={"epoch": 40, "status": "free", "beat": 0, "lease_s": "damaged"})
    assert repair(store).lockfile.lease.epoch == 41


def test_the_epoch_of_a_run_without_a_journal_is_found_however_much_was_typed(store: MemoryStore) -> None:
    typed = {"allow": [f"delete:topic/west/shop:eu:orders-{number}" for number in range(200)]}
    store.put(run_key("run-3"), orjson.dumps({**orjson.loads(body(store, run_key("run-3"))), "options": typed}))
    store.delete([journal_key("run-3", 1), journal_key("run-3", 2)])
    assert read_state_files(store).run_epoch == 3


def test_a_sound_state_and_an_empty_place_need_no_repair(store: MemoryStore) -> None:
    assert look(store) is None
    assert look(MemoryStore()) is None


def test_an_open_run_stays_open_for_the_next_apply(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=["d"])
    lose(store)
    repair(store)
    after = lockfile(store)
    assert after.open_run is not None
    assert (after.open_run.run, after.serial) == ("run-4", 4)
    opened = read_open_run(store, after)
    assert opened is not None
    assert [action.id for action in opened.compute_progress().in_doubt] == ["create:topic/west/e"]


def test_an_open_run_that_committed_nothing_yet_keeps_what_its_journal_says(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=["d"], commits=False)
    lose(store)
    repair(store)
    opened = read_open_run(store, lockfile(store))
    assert opened is not None
    assert "topic/west/d" in opened.compute_progress().record


def test_a_run_that_closed_its_journal_and_never_committed_is_recorded(store: MemoryStore) -> None:
    left(store, "run-4", "d", commits=False)
    lose(store)
    found = repair(store)
    assert (found.rebuilt_from, found.lockfile.serial) == ("run-4", 4)
    assert owned(store) == ["a", "b", "c", "d"]


def test_runs_without_any_snapshot_are_taken_up(store: MemoryStore) -> None:
    store = MemoryStore()
    left(store, "run-1", "a", "b", done=["a"], commits=False)
    lose(store)
    found = repair(store)
    assert (found.lockfile.serial, found.lockfile.lineage) == (0, "lineage-new")
    assert found.lockfile.open_run is not None


# -- snapshots


def test_where_no_journal_says_it_a_person_has_to_name_the_state_to_go_on_from(store: MemoryStore) -> None:
    flip(store, newest(store))
    flip(store, newest(store, 1))
    with pytest.raises(
        UserError, match=r"#1; to continue .* forgets what run run-2 \(apply\), run run-3 \(apply\) did.*--snapshot 1"
    ):
        look(store)
    found = repair(store, snapshot="1")
    assert [file.run for file in found.forgotten] == ["run-2", "run-3"]
    assert found.forgotten[0].actions == ("create:topic/west/b",)
    assert (found.lockfile.serial, owned(store)) == (4, ["a"])
    applies(store)


def test_what_was_forgotten_on_purpose_does_not_come_back(store: MemoryStore) -> None:
    flip(store, newest(store))
    flip(store, newest(store, 1))
    repair(store, snapshot="1")
    lose(store)
    repair(store)
    assert owned(store) == ["a"]


def test_where_no_state_can_be_read_one_may_begin_with_nothing(store: MemoryStore) -> None:
    for back in range(3):
        flip(store, newest(store, back))
    with pytest.raises(UserError, match=r"no state can be read: .* is damaged.*--snapshot 0"):
        look(store)
    found = repair(store, snapshot="0")
    assert (found.lockfile.serial, owned(store)) == (4, [])


@pytest.mark.parametrize("told", ["9", "state/000000000009-0123456789ab.json.gz", "x"])
def test_a_state_that_is_not_there_cannot_be_named(store: MemoryStore, told: str) -> None:
    lose(store)
    with pytest.raises(UserError, match=rf"has no state {re.escape(told)}\. Existing states: #3, #2, #1"):
        look(store, snapshot=told)


def twice(store: MemoryStore, *, run: str) -> str:
    """Write another snapshot with the newest serial, as if by a run that died before it could commit it."""
    content = orjson.loads(gzip.decompress(body(store, newest(store))))
    content |= {"run": run, "resources": []}
    packed = gzip.compress(orjson.dumps(content))
    key = f"state/000000000003-{sha256(packed).hexdigest()[:12]}.json.gz"
    store.put(key, packed)
    return key


def test_of_two_snapshots_with_one_serial_the_one_of_the_run_that_wrote_last_was_committed(store: MemoryStore) -> None:
    twice(store, run="run-dead")
    lose(store)
    repair(store)
    assert owned(store) == ["a", "b", "c"]


def test_of_two_snapshots_with_one_serial_the_one_a_later_run_began_on_was_committed(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=[], commits=False)
    twice(store, run="run-dead")
    lose(store)
    repair(store)
    assert owned(store) == ["a", "b", "c"]


def test_where_nothing_says_which_of_two_was_committed_a_person_names_it(store: MemoryStore) -> None:
    other = twice(store, run="run-3")
    key = next(row.key for row in list_snapshots(store) if row.serial == 3 and row.key != other)
    lose(store)
    with pytest.raises(UserError, match=r"state #3 was written twice.*--snapshot KEY"):
        look(store)
    with pytest.raises(UserError, match=r"state #3 was written twice"):
        look(store, snapshot="3")
    repair(store, snapshot=key)
    assert owned(store) == ["a", "b", "c"]


# -- journals


def hole(store: MemoryStore) -> None:
    store.delete([journal_key("run-4", 1)])


def page_cut(store: MemoryStore) -> None:
    key = journal_key("run-4", 1)
    store.put(key, body(store, key)[:-9])


def file_gone(store: MemoryStore) -> None:
    store.delete([run_key("run-4")])


@pytest.mark.parametrize("lost", [True, False], ids=["and the lockfile is lost", "and the lockfile is there"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(hole, r"journal/000001\.json is missing, and later entries", id="a hole"),
        pytest.param(page_cut, r"journal/000001\.json cannot be read", id="cut"),
        pytest.param(file_gone, r"run\.json", id="no run.json"),
    ],
)
def test_an_open_run_that_cannot_be_read_is_given_up_only_by_name(
    store: MemoryStore,
    damage: Callable[[MemoryStore], None],
    says: str,
    lost: bool,  # noqa: FBT001 - a case
) -> None:
    left(store, "run-4", "d", "e", done=["d"], commits=False)
    damage(store)
    if lost:
        lose(store)
    with pytest.raises(UserError, match=rf"(?s){says}.*reconciler state repair --without-run run-4"):
        look(store)
    found = repair(store, without="run-4")
    assert (found.abandoned_run, found.lockfile.open_run, owned(store)) == ("run-4", None, ["a", "b", "c"])
    applies(store)


def test_who_names_the_state_to_go_on_from_need_not_name_a_run_that_cannot_be_read(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=["d"], commits=False)
    hole(store)
    lose(store)
    found = repair(store, snapshot="3")
    assert [file.run for file in found.forgotten] == ["run-4"]


def test_a_run_that_is_given_up_is_closed_and_stays_so(store: MemoryStore) -> None:
    left(store, "run-4", "d", "e", done=["d"], commits=False)
    lose(store)
    found = repair(store, without="run-4")
    assert [file.run for file in found.forgotten] == ["run-4"]
    assert read_journal(store, "run-4").is_closed
    lose(store)
    assert repair(store).lockfile.open_run is None


def test_only_the_run_that_wrote_last_can_be_given_up(store: MemoryStore) -> None:
    lose(store)
    with pytest.raises(UserError, match=r"run run-2 is not the one that wrote last, that is run-3"):
        look(store, without="run-2")


# -- what is refused


def newer(kind: str) -> bytes:
    return orjson.dumps({"format": f"reconciler.{kind}/2", "epoch": 9})


@pytest.mark.parametrize(
    ("key", "content"),
    [
        pytest.param(lambda _store: KEY, newer("lockfile"), id="lockfile"),
        pytest.param(newest, gzip.compress(newer("state")), id="snapshot"),
        pytest.param(lambda _store: journal_key("run-4", 2), newer("journal"), id="journal"),
    ],
)
def test_what_a_newer_version_wrote_is_left_to_it(
    store: MemoryStore, key: Callable[[MemoryStore], str], content: bytes
) -> None:
    left(store, "run-4", "d", "e", done=[], commits=False)
    lose(store)
    where = key(store)
    if where.startswith("state/"):
        where = f"{where[:19]}{sha256(content).hexdigest()[:12]}.json.gz"
    store.put(where, content)
    with pytest.raises(NewerFormatError, match=r"newer version of reconciler .* pip install --upgrade"):
        look(store)


@pytest.mark.parametrize("damage", [lose, cut], ids=["lost", "cut"])
def test_the_state_of_somebody_else_is_not_repaired(store: MemoryStore, damage: Callable[[MemoryStore], None]) -> None:
    damage(store)
    with pytest.raises(UserError, match=r"holds the state of workspace 'shop', not of workspace 'pay'"):
        look(store, owner=Owner("pay"))


def test_a_lineage_edited_by_hand_is_taken_from_the_snapshots_that_all_agree(store: MemoryStore) -> None:
    edit(store, lineage="another")
    found = repair(store)
    assert (found.former_lineage, found.lockfile.lineage, found.lockfile.serial) == ("another", "lineage-1", 3)
    assert owned(store) == ["a", "b", "c"]
    applies(store)


def test_snapshots_of_two_lineages_are_not_mixed(store: MemoryStore) -> None:
    content = orjson.loads(gzip.decompress(body(store, newest(store, 2)))) | {"lineage": "another"}
    packed = gzip.compress(orjson.dumps(content))
    store.put(f"state/000000000001-{sha256(packed).hexdigest()[:12]}.json.gz", packed)
    edit(store, lineage="another")
    with pytest.raises(UserError, match=r"belongs to lineage lineage-1, the lockfile to another.*Files of two states"):
        look(store)


def test_the_lockfile_of_another_state_is_not_taken_for_this_ones(store: MemoryStore) -> None:
    other = {"key": "state/000000000003-0123456789ab.json.gz", "sha256": "0" * 64, "bytes": 1}
    edit(store, lineage="another", state=other)
    with pytest.raises(UserError, match=r"Files of two states.*move it away.*reconciler state repair"):
        look(store)
    lose(store)
    assert repair(store).lockfile.lineage == "lineage-1"


def test_a_lease_that_is_held_is_freed_first(store: MemoryStore) -> None:
    flip(store, newest(store))
    held = {"epoch": 9, "status": "held", "beat": 0, "lease_s": 90.0, "run": "run-9", "holder": "x", "who": "eve@host"}
    edit(store, lease=held)
    with pytest.raises(LeaseError, match=r"eve@host holds the lease.*run run-9.*state unlock run-9"):
        look(store)


class _Busy(MemoryStore):
    """A store in which somebody writes the lockfile while it is looked at."""

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self.put(KEY, orjson.dumps({"nonce": prefix}))
        return super().list(prefix)


def test_a_state_that_is_being_written_is_not_judged() -> None:
    store = _Busy()
    store.put(KEY, b"{}")
    with pytest.raises(RetryableError, match=r"is being written: another apply is running"):
        read_state_files(store)
