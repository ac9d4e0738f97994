"""A run that is killed leaves nothing that the next one cannot finish."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LeaseError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.state.lockfile import read_lockfile
from reconciler.workflow.apply import ApplyOptions
from reconciler.workflow.invocation import Select
from reconciler.workflow.stating.unlocking import state_unlock

if TYPE_CHECKING:
    from conftest import Bench

# The dying process is a real one: it is killed in the middle of a callback, with its lease held.
DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.workflow.apply import ApplyOptions, apply
from reconciler.workflow.invocation import Invocation, Select
from reconciler.workflow.stopping import Stop

def die(event):
    if type(event).__name__ == sys.argv[2] and getattr(event, "id", "") == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
apply(here, Select(), ApplyOptions(yes=True), confirm=lambda _: True, report=die, stop=Stop())
"""


def die_at(bench: Bench, event: str, action: str = "") -> None:
    command = [sys.executable, "-c", DYING, str(bench.folder), event, action]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr


def unlock(bench: Bench) -> None:
    freed = state_unlock(bench.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=bench.stop)
    assert (freed.was_free, freed.run, freed.who) == (False, "the-dead-run", "bob@laptop")


@pytest.mark.parametrize(
    ("event", "action", "first"),
    [
        ("PlanMade", "", "create:cluster/west"),
        ("ActionStarted", "create:cluster/west", "create:cluster/west"),
        ("ActionDone", "create:cluster/west", "adopt:cluster/west"),
        ("ActionDone", "create:namespace/west/shop", "adopt:cluster/west"),
        ("ActionDone", "create:topic/west/shop:orders", "adopt:cluster/west"),
    ],
)
def test_what_was_made_and_not_recorded_is_adopted_and_the_rest_is_made(
    bench: Bench, event: str, action: str, first: str
) -> None:
    die_at(bench, event, action)
    with pytest.raises(LeaseError, match=r"bob@laptop.*the-dead-run"):
        bench.apply(options=ApplyOptions(yes=True, lock_timeout_s=0))
    unlock(bench)
    planned = bench.plan()
    assert planned.plan.actions[0].id == first
    assert not planned.plan.errors
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty


def test_a_run_that_died_after_its_commit_leaves_nothing_to_do(bench: Bench) -> None:
    die_at(bench, "Summary")
    found = read_lockfile(DirectoryStore(bench.folder / ".reconciler"))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.serial) == ("free", 1)
    assert bench.plan().plan.is_empty


def test_a_plan_reads_beside_a_dead_run(bench: Bench) -> None:
    die_at(bench, "ActionDone", "create:cluster/west")
    assert [action.id for action in bench.plan().plan.actions] == [
        "adopt:cluster/west",
        "create:namespace/west/shop",
        "create:topic/west/shop:orders",
    ]


def test_unlocking_what_is_free_asks_nobody(applied: Bench) -> None:
    freed = state_unlock(applied.invocation, Select(), None, confirm=pytest.fail, stop=applied.stop)
    assert freed.was_free


def test_unlocking_another_run_than_the_one_that_holds_it_is_refused(bench: Bench) -> None:
    die_at(bench, "ActionDone", "create:cluster/west")
    with pytest.raises(LeaseError, match="the-dead-run"):
        state_unlock(bench.invocation, Select(), "another-run", confirm=lambda _line: True, stop=bench.stop)
