"""Any prefix of a journal folds into a valid record, and a rerun from it converges."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.state.journal import (
    JournalContents,
    Page,
    UnfinishedRun,
    compute_run_progress,
    journal_key,
    read_journal,
    read_open_run,
)
from reconciler.state.snapshots import encode_snapshot, read_snapshot_of
from tests.simulation.checks import ALWAYS, nothing_is_left_to_do, the_run_is_closed, wrong
from tests.simulation.machine import WRITES, Fault
from tests.simulation.scenarios import Scenario, each, play, steps
from tests.simulation.world import Visit, World

few = settings(deadline=None, max_examples=40)


@cache
def died_at(point: int) -> World:
    """Return the world as a run leaves it that dies at one of its writes."""
    return play(Scenario((Visit("a", (Fault(point, "crash"),)),)))


@cache
def left_open() -> tuple[int, ...]:
    """Return the writes at which a run dies that has begun and not ended."""
    ends = [number for number, (_, what) in enumerate(steps()) if what.endswith("swap lockfile.json")]
    return tuple(fault.at for fault in each(steps(), WRITES, "crash") if ends[-3] < fault.at < ends[-1])


def unfinished(world: World) -> UnfinishedRun:
    assert world.history.lockfile is not None
    found = read_open_run(world.state, world.history.lockfile)
    assert found is not None
    return found


@cache
def whole() -> UnfinishedRun:
    """Return a run with all of its journal but the state's last commit."""
    found = unfinished(died_at(left_open()[-1]))
    assert found.written.is_closed
    return found


def prefix(found: UnfinishedRun, length: int) -> JournalContents:
    return JournalContents(found.file.run, found.written.pages[:length])


def test_folding_a_longer_prefix_knows_what_a_shorter_one_knew() -> None:
    found = whole()
    before = compute_run_progress(found.base, found.actions, prefix(found, 0))
    assert before.record == found.base
    assert not before.in_doubt
    for length in range(1, len(found.written.pages) + 1):
        now = compute_run_progress(found.base, found.actions, prefix(found, length))
        assert now.done[: len(before.done)] == before.done
        assert {action.id for action in now.remaining} <= {action.id for action in before.remaining}
        assert len(now.done) + len(now.in_doubt) + len(now.remaining) == len(found.actions)
        before = now
    assert not before.in_doubt
    assert not before.remaining


@few
@given(st.data())
def test_what_a_prefix_folds_into_can_be_written_and_read_as_a_state(data: st.DataObject) -> None:
    found = whole()
    cut = prefix(found, data.draw(st.integers(0, len(found.written.pages))))
    world = died_at(left_open()[0]).fork()
    lockfile = world.history.lockfile
    assert lockfile is not None
    record = compute_run_progress(found.base, found.actions, cut).record
    pointer, body = encode_snapshot(lockfile, "a#1", record)
    world.state.put(pointer.key, body)
    pointed = lockfile.model_copy(update={"state": pointer, "serial": lockfile.serial + 1})
    assert read_snapshot_of(world.state, pointed).record == record


@few
@given(st.data())
def test_folding_what_is_known_already_changes_nothing(data: st.DataObject) -> None:
    found = whole()
    cut = prefix(found, data.draw(st.integers(0, len(found.written.pages))))
    once = compute_run_progress(found.base, found.actions, cut)
    assert compute_run_progress(found.base, found.actions, cut, [e for e in cut.entries if e.type == "done"]) == once


@few
@given(st.data())
def test_pages_cut_anywhere_are_still_read(data: st.DataObject) -> None:
    world = died_at(left_open()[-1]).fork()
    length = _cut(world, data.draw(st.integers(0, len(whole().written.pages))))
    assert len(read_journal(world.state, "a#1").pages) == length


@pytest.mark.thorough
@settings(few, max_examples=25)
@given(st.data())
def test_a_rerun_from_any_prefix_of_what_any_crash_left_converges(data: st.DataObject) -> None:
    """Also from one that says less than was written down: then what is there is found and owned."""
    world = died_at(data.draw(st.sampled_from(left_open()))).fork()
    _cut(world, data.draw(st.integers(0, len(unfinished(world).written.pages))))
    world.play([Visit("b", resumes=data.draw(st.booleans())), Visit("c", after="b")])
    assert world.ended["c"].outcome in {"done", "nothing"}
    assert wrong(world, (*ALWAYS, nothing_is_left_to_do, the_run_is_closed)) == []
    record, observed = world.snapshot().record, world.plan().observed
    assert {address: item.incarnation for address, item in record.items()} == {
        address: item.incarnation for address, item in observed.items()
    }


def _cut(world: World, length: int) -> int:
    pages: tuple[Page, ...] = read_journal(world.state, "a#1").pages
    world.state.delete([journal_key("a#1", page.seq) for page in pages[length:]])
    return length
