"""The journal: slots that are filled once, group commit, fencing, and what a damaged one gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LeaseError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Create, Delete, Forget
from reconciler.state.journal import (
    ActionEnded,
    ActionRefused,
    ActionSkipped,
    Entry,
    Intent,
    Journal,
    JournalContents,
    Page,
    RunClosed,
    RunDetached,
    RunProgress,
    RunTakenOver,
    build_detached_entries,
    compute_run_progress,
    journal_key,
    read_journal,
    take_over_journal,
)
from reconciler.state.lease import Lease, LeasePatience, acquire
from tests.planning.short import resource
from tests.state.samples import claim, record
from tests.state.simulation import Simulation, simulated

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, Version


class Faulty(MemoryStore):
    """A store that does to the journal's writes what it is told to, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.harms: list[str] = []

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        harm = self.harms.pop(0) if self.harms and "/journal/" in key else ""
        if harm == "refuse":
            raise UserError("denied", hint="Ask for the right.")
        if harm == "fail":
            raise RetryableError("not now", hint="Run it again.")
        version = super().swap(key, body, expected=expected)
        if harm == "lose":
            raise UnansweredError("no answer", hint="Run it again.")
        return version


def intents(*names: str) -> list[Intent]:
    return [Intent(id=name) for name in names]


def written(store: MemoryStore, run: str = "one") -> list[list[str]]:
    return [[getattr(entry, "id", entry.type) for entry in page.entries] for page in read_journal(store, run).pages]


async def begun(store: MemoryStore) -> tuple[Lease, Simulation, Journal]:
    effects = Simulation()
    lease = await acquire(store, effects, claim("one"))
    return lease, effects, Journal(lease, effects, "one")


@simulated
async def test_what_waits_while_a_page_is_written_goes_into_the_next_one_together() -> None:
    store = MemoryStore()
    _, effects, journal = await begun(store)
    first = effects.start_task(journal.append(intents("0")))
    await effects.sleep(0)
    await effects.sleep(0)
    await asyncio.gather(first, *(journal.append(intents(f"{number}")) for number in range(1, 50)))
    assert written(store) == [["0"], [f"{number}" for number in range(1, 50)]]


@simulated
async def test_nothing_to_write_writes_nothing() -> None:
    store = MemoryStore()
    _, _, journal = await begun(store)
    await journal.append([])
    assert written(store) == []


@simulated
async def test_a_page_is_at_most_a_mebibyte() -> None:
    store = MemoryStore()
    _, _, journal = await begun(store)
    await journal.append(intents(*(f"{number:0100000}" for number in range(25))))
    sizes = [len(page.to_bytes()) for page in read_journal(store, "one").pages]
    assert len(sizes) == 3
    assert max(sizes) < 1_100_000


@simulated
async def test_what_is_left_to_others_is_written_in_pages_of_a_mebibyte_too() -> None:
    store = MemoryStore()
    left = tuple(f"create:topic/west/{number:0100}" for number in range(20_000))
    _, _, journal = await begun(store)
    await journal.append(build_detached_entries(left))
    found = read_journal(store, "one")
    assert max(len(page.to_bytes()) for page in found.pages) <= 1 << 20
    assert tuple(name for entry in found.entries if isinstance(entry, RunDetached) for name in entry.left) == left


@pytest.mark.parametrize("harms", [["lose"], ["fail"], ["fail", "lose"], ["fail"] * 12])
@simulated
async def test_a_page_whose_answer_was_lost_is_written_once(harms: list[str]) -> None:
    store = Faulty()
    _, _, journal = await begun(store)
    store.harms = list(harms)
    await journal.append(intents("a"))
    await journal.append(intents("b"))
    assert written(store) == [["a"], ["b"]]


@simulated
async def test_a_journal_that_could_not_be_written_writes_nothing_more() -> None:
    store = Faulty()
    _, _, journal = await begun(store)
    store.harms = ["refuse"]
    with pytest.raises(UserError):
        await journal.append(intents("a"))
    with pytest.raises(UserError):
        await journal.append(intents("b"))
    assert written(store) == []


@simulated
async def test_whoever_was_taken_over_finds_its_slot_taken_and_stops() -> None:
    store = MemoryStore()
    slow, quick = Simulation(1), Simulation(2)
    lease = await acquire(store, slow, claim("one"))
    journal = Journal(lease, slow, "one")
    await journal.append(intents("a"))
    slow.freeze(200)
    theirs = await acquire(store, quick, claim("two"), LeasePatience(lock_timeout_s=300))
    found = await take_over_journal(theirs, quick, "one")
    assert [entry.type for entry in found.entries] == ["intent", "takeover"]
    lease._sent = slow.read_clock() + 1000  # its clock stood still: it does not know that it is too late
    with pytest.raises(LeaseError, match="another run has taken over: it wrote entry 2"):
        await journal.append(intents("b"))
    with pytest.raises(LeaseError):
        await journal.append(intents("c"))
    assert written(store) == [["a"], ["takeover"]]


@simulated
async def test_a_page_that_lands_before_the_takeover_is_read_by_it() -> None:
    class Landing(MemoryStore):
        """Something lands right after it was looked what is there."""

        def list(self, prefix: str) -> Iterator[ListedObject]:
            found = [*super().list(prefix)]
            if prefix.endswith("/journal/") and not found:
                self.put(journal_key("one", 1), late.to_bytes())
            return iter(found)

    store = Landing()
    late = Page(run="one", seq=1, epoch=1, nonce="late", entries=(Intent(id="a"),))
    lease, effects, _ = await begun(store)
    found = await take_over_journal(lease, effects, "one")
    assert found.entries == (Intent(id="a"), RunTakenOver(run="one", who="one@host"))


@simulated
async def test_a_closed_journal_is_not_taken_over() -> None:
    store = MemoryStore()
    lease, effects, journal = await begun(store)
    await journal.append([RunClosed(status="done")])
    assert (await take_over_journal(lease, effects, "one")).is_closed
    assert len(written(store)) == 1


def filled(pages: int = 3) -> MemoryStore:
    store = MemoryStore()
    for seq in range(1, pages + 1):
        page = Page(run="one", seq=seq, epoch=1, nonce=f"{seq}", entries=(ActionEnded(id=f"{seq}"),))
        store.put(journal_key("one", seq), page.to_bytes())
    return store


def test_a_journal_with_a_hole_names_what_is_missing() -> None:
    store = filled()
    store.delete([journal_key("one", 2)])
    with pytest.raises(UserError, match=r"runs/one/journal/000002\.json is missing, and later entries"):
        read_journal(store, "one")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "cannot be read"),
        (b'{"format": "reconciler.journal/1"', "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"format": "reconciler.journal/2"}', "was written by a newer version"),
        (b'{"format": "something"}', "cannot be read"),
    ],
)
def test_a_damaged_page_is_refused_by_name(body: bytes, message: str) -> None:
    store = filled()
    store.put(journal_key("one", 2), body)
    with pytest.raises(UserError, match=message) as caught:
        read_journal(store, "one")
    assert "000002.json" in str(caught.value)


def test_a_page_under_a_foreign_name_is_refused() -> None:
    store = filled()
    page = store.get(journal_key("one", 1))
    assert page is not None
    store.put(journal_key("one", 2), page.body)
    with pytest.raises(UserError, match="it is entry 1 of run one"):
        read_journal(store, "one")


CUT = ["nothing", "half", "all but one byte", "within a letter"]


def cut_off(store: MemoryStore, run: str, seq: int, how: str) -> None:
    """Leave what some stores keep of a page whose writer was killed."""
    page = Page(run=run, seq=seq, epoch=1, nonce="é", entries=tuple(intents("never")))
    body = page.to_bytes()
    length = {"nothing": 0, "half": len(body) // 2, "all but one byte": len(body) - 1}.get(how, body.index(b"\xc3") + 1)
    store.put(journal_key(run, seq), body[:length])


@pytest.mark.parametrize("how", CUT)
@simulated
async def test_a_last_slot_that_was_cut_off_counts_as_free_and_is_written_next(how: str) -> None:
    store = MemoryStore()
    _, _, journal = await begun(store)
    await journal.append(intents("a"))
    cut_off(store, "one", 2, how)
    assert written(store) == [["a"]]
    await journal.append(intents("b"))
    await journal.append(intents("c"))
    assert written(store) == [["a"], ["b"], ["c"]]


@simulated
async def test_a_slot_that_was_cut_off_is_written_though_the_store_fails_once_meanwhile() -> None:
    store = Faulty()
    _, _, journal = await begun(store)
    cut_off(store, "one", 1, "half")
    store.harms = ["", "fail"]
    await journal.append(intents("a"))
    assert written(store) == [["a"]]


@pytest.mark.parametrize("how", CUT)
@simulated
async def test_of_two_who_find_a_slot_cut_off_one_has_it_and_the_other_is_fenced(how: str) -> None:
    store = MemoryStore()
    lease, effects, journal = await begun(store)
    await journal.append(intents("a"))
    cut_off(store, "one", 2, how)
    found = await take_over_journal(lease, effects, "one")
    assert found.next_seq == 3
    with pytest.raises(LeaseError, match="it wrote entry 2 of our journal"):
        await journal.append(intents("b"))
    assert [entry.type for page in read_journal(store, "one").pages for entry in page.entries] == ["intent", "takeover"]


@simulated
async def test_a_slot_that_is_cut_off_before_others_was_written_once_and_is_damaged() -> None:
    store = MemoryStore()
    _, _, journal = await begun(store)
    await journal.append(intents("a"))
    await journal.append(intents("b"))
    cut_off(store, "one", 1, "nothing")
    with pytest.raises(UserError, match="there is nothing in it"):
        read_journal(store, "one")


# What a run has done, folded from its journal: any order of whole pages, said twice or not at all.


NEW, OTHER, OLD = (resource({"topic": name}) for name in ("new", "other", "old"))
ACTIONS = (
    Create(address=NEW.address, after=NEW),
    Create(address=OTHER.address, after=OTHER),
    Delete(address=OLD.address, before=OLD),
    Forget(address=resource({"topic": "ghost"}).address),
)
CREATE, SECOND, DELETE, FORGET = (action.id for action in ACTIONS)
BASE = record("old", "ghost", "kept")


def fold(*pages: tuple[Entry, ...], further: tuple[Entry, ...] = ()) -> RunProgress:
    written = tuple(
        Page(run="r", seq=seq, epoch=1, nonce="n", entries=entries) for seq, entries in enumerate(pages, start=1)
    )
    return compute_run_progress(BASE, ACTIONS, JournalContents("r", written), further)


def names(folded: RunProgress) -> list[str]:
    return [address.rpartition("/")[2] for address in folded.record]


def test_nothing_written_is_nothing_done() -> None:
    folded = fold()
    assert folded.record == BASE
    assert (folded.done, folded.in_doubt, folded.remaining) == ((), (), ACTIONS)
    assert not folded.is_closed


def test_what_is_begun_and_not_ended_is_in_doubt_in_plan_order() -> None:
    folded = fold((Intent(id=DELETE), Intent(id=CREATE)))
    assert folded.in_doubt == (ACTIONS[0], ACTIONS[2])
    assert folded.remaining == (ACTIONS[1], ACTIONS[3])
    assert folded.record == BASE


def test_what_is_done_is_recorded_with_what_the_platform_said() -> None:
    folded = fold((Intent(id=CREATE),), (ActionEnded(id=CREATE, incarnation="i", physical_name="p"),))
    recorded = folded.record[NEW.address]
    assert (recorded.incarnation, recorded.physical_name, recorded.run) == ("i", "p", "r")
    assert folded.done == (CREATE,)


def test_what_only_changes_the_record_has_no_intent() -> None:
    assert names(fold((ActionEnded(id=FORGET),))) == ["old", "kept"]


def test_an_end_that_is_said_twice_counts_once_and_the_first_is_what_holds() -> None:
    folded = fold((ActionEnded(id=CREATE, incarnation="i"),), (ActionEnded(id=CREATE, incarnation="j"),))
    assert folded.record[NEW.address].incarnation == "i"
    assert folded.done == (CREATE,)


def test_what_was_refused_or_skipped_is_not_done_nor_in_doubt_nor_left() -> None:
    folded = fold(
        (Intent(id=CREATE),), (ActionRefused(id=CREATE, error="no", hint="h"), ActionSkipped(id=SECOND, because=CREATE))
    )
    assert folded.record == BASE
    assert (folded.done, folded.in_doubt, folded.remaining) == ((), (), ACTIONS[2:])


def test_what_was_made_before_its_rules_were_refused_is_recorded_as_ours_without_them() -> None:
    ruled = resource({"topic": "new", "acls": [{"principal": "User:x", "operations": ["read"]}]})
    entries = (Intent(id=CREATE), ActionRefused(id=CREATE, error="no", hint="h", is_made=True, incarnation="i"))
    written = JournalContents("r", (Page(run="r", seq=1, epoch=1, nonce="n", entries=entries),))
    folded = compute_run_progress(BASE, (Create(address=ruled.address, after=ruled),), written)
    recorded = folded.record[NEW.address]
    assert (recorded.resource, recorded.ownership, recorded.incarnation) == (NEW, "created", "i")
    assert (folded.done, folded.in_doubt) == ((), ())


def test_an_intent_after_a_refusal_is_in_doubt_again() -> None:
    folded = fold((Intent(id=CREATE), ActionRefused(id=CREATE, error="no", hint="h"), Intent(id=CREATE)))
    assert folded.in_doubt == (ACTIONS[0],)


def test_what_was_done_under_another_epoch_after_a_takeover_counts_the_same() -> None:
    taken = RunTakenOver(run="s", who="them")
    folded = fold((Intent(id=CREATE),), (taken,), (ActionEnded(id=CREATE, is_settled=True),))
    assert folded.done == (CREATE,)
    assert not folded.in_doubt


def test_entries_of_actions_it_does_not_have_count_for_nothing() -> None:
    folded = fold((Intent(id="create:topic/west/strange"), ActionEnded(id="delete:topic/west/kept")))
    assert folded.record == BASE
    assert (folded.done, folded.in_doubt, folded.remaining) == ((), (), ACTIONS)


def test_what_could_not_be_written_counts_as_if_it_were() -> None:
    folded = fold((Intent(id=DELETE),), further=(ActionEnded(id=DELETE),))
    assert names(folded) == ["ghost", "kept"]
    assert not folded.in_doubt


def test_a_run_that_was_stopped_is_open_and_a_closed_one_is_not() -> None:
    assert not fold((RunDetached(left=(CREATE,)),)).is_closed
    assert fold((RunDetached(left=(CREATE,)),), (RunClosed(status="superseded"),)).is_closed


def test_the_base_stays_as_it_is() -> None:
    before = dict(BASE)
    fold((ActionEnded(id=DELETE),))
    assert before == BASE
