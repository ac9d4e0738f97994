"""What a run has done, folded from its journal: any order of whole pages, said twice or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Create, Delete, Forget
from reconciler.state.journal import (
    ActionEnded,
    ActionRefused,
    ActionSkipped,
    Closed,
    Detached,
    Intent,
    Page,
    TakenOver,
    Written,
    fold_run,
)
from tests.planning.short import resource
from tests.state.samples import record

if TYPE_CHECKING:
    from reconciler.state.journal import Entry, Folded

NEW, OTHER, OLD = (resource({"topic": name}) for name in ("new", "other", "old"))
ACTIONS = (
    Create(address=NEW.address, after=NEW),
    Create(address=OTHER.address, after=OTHER),
    Delete(address=OLD.address, before=OLD),
    Forget(address=resource({"topic": "ghost"}).address),
)
CREATE, SECOND, DELETE, FORGET = (action.id for action in ACTIONS)
BASE = record("old", "ghost", "kept")


def fold(*pages: tuple[Entry, ...], further: tuple[Entry, ...] = ()) -> Folded:
    written = tuple(
        Page(run="r", seq=seq, epoch=1, nonce="n", entries=entries) for seq, entries in enumerate(pages, start=1)
    )
    return fold_run(BASE, ACTIONS, Written("r", written), further)


def names(folded: Folded) -> list[str]:
    return [address.rpartition("/")[2] for address in folded.record]


def test_nothing_written_is_nothing_done() -> None:
    folded = fold()
    assert folded.record == BASE
    assert (folded.done, folded.in_doubt, folded.left) == ((), (), ACTIONS)
    assert not folded.is_closed


def test_what_is_begun_and_not_ended_is_in_doubt_in_plan_order() -> None:
    folded = fold((Intent(id=DELETE), Intent(id=CREATE)))
    assert folded.in_doubt == (ACTIONS[0], ACTIONS[2])
    assert folded.left == (ACTIONS[1], ACTIONS[3])
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
    assert (folded.done, folded.in_doubt, folded.left) == ((), (), ACTIONS[2:])


def test_what_was_made_before_its_rules_were_refused_is_recorded_as_ours_without_them() -> None:
    ruled = resource({"topic": "new", "acls": [{"principal": "User:x", "operations": ["read"]}]})
    entries = (Intent(id=CREATE), ActionRefused(id=CREATE, error="no", hint="h", is_made=True, incarnation="i"))
    written = Written("r", (Page(run="r", seq=1, epoch=1, nonce="n", entries=entries),))
    folded = fold_run(BASE, (Create(address=ruled.address, after=ruled),), written)
    recorded = folded.record[NEW.address]
    assert (recorded.resource, recorded.ownership, recorded.incarnation) == (NEW, "created", "i")
    assert (folded.done, folded.in_doubt) == ((), ())


def test_an_intent_after_a_refusal_is_in_doubt_again() -> None:
    folded = fold((Intent(id=CREATE), ActionRefused(id=CREATE, error="no", hint="h"), Intent(id=CREATE)))
    assert folded.in_doubt == (ACTIONS[0],)


def test_what_was_done_under_another_epoch_after_a_takeover_counts_the_same() -> None:
    taken = TakenOver(run="s", who="them")
    folded = fold((Intent(id=CREATE),), (taken,), (ActionEnded(id=CREATE, is_settled=True),))
    assert folded.done == (CREATE,)
    assert not folded.in_doubt


def test_entries_of_actions_it_does_not_have_count_for_nothing() -> None:
    folded = fold((Intent(id="create:topic/west/strange"), ActionEnded(id="delete:topic/west/kept")))
    assert folded.record == BASE
    assert (folded.done, folded.in_doubt, folded.left) == ((), (), ACTIONS)


def test_what_could_not_be_written_counts_as_if_it_were() -> None:
    folded = fold((Intent(id=DELETE),), further=(ActionEnded(id=DELETE),))
    assert names(folded) == ["ghost", "kept"]
    assert not folded.in_doubt


def test_a_run_that_was_stopped_is_open_and_a_closed_one_is_not() -> None:
    assert not fold((Detached(left=(CREATE,)),)).is_closed
    assert fold((Detached(left=(CREATE,)),), (Closed(status="superseded"),)).is_closed


def test_the_base_stays_as_it_is() -> None:
    before = dict(BASE)
    fold((ActionEnded(id=DELETE),))
    assert before == BASE
