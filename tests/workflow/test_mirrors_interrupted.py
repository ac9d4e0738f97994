"""Transitions whose process was killed at a step: what a plan says then, and who goes on with them. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import Recovered
from reconciler.state.lockfile import read_lockfile
from reconciler.workflow.apply import ApplyOptions
from reconciler.workflow.beginning.invocation import Select
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.drift import drift
from reconciler.workflow.linking.asking import ask_mirrors
from reconciler.workflow.stating.unlocking import state_unlock
from tests.workflow.linkedshop import (
    BACK,
    COPY,
    MIRROR,
    SOURCE,
    TOPIC,
    mirroring,
    planned,
    produce,
    status,
    upkeep,
    values,
    waiting,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

OLD = [f"a{number}" for number in range(5)]
RESUME = ApplyOptions(yes=True, resumes=True)

DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.embedded.linking.linking import Linking
from reconciler.workflow.apply import ApplyOptions, apply
from reconciler.workflow.beginning.invocation import Invocation, Select
from reconciler.workflow.running.stopping import Stop

folder, step, when, *allow = sys.argv[1:]
whole = getattr(Linking, step)

def dying(*given, **named):
    if when == "after":
        whole(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Linking, step, dying)
here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
select = Select(allow=tuple(allow))
apply(here, select, ApplyOptions(yes=True), confirm=lambda _: True, report=lambda _: None, stop=Stop())
"""


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways; one more waits on `west`."""
    shop = mirroring(bench)
    produce(shop, "west", "late")
    return shop


def die(shop: Bench, step: str, when: str, *allow: str) -> None:
    """Apply in a process of its own that is killed before or after a step of a cluster, and free its lease."""
    command = [sys.executable, "-c", DYING, str(shop.folder), step, when, *allow]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    state_unlock(shop.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=shop.stop)


ASKING = """
import os, signal, sys
from reconciler.cli.main import main
from reconciler.embedded.linking.linking import Linking

step, when, number, *typed = sys.argv[1:]
whole = getattr(Linking, step)

def dying(*given, **named):
    setattr(Linking, step, whole)
    done = whole(*given, **named) if when == "after" else None
    os.kill(os.getpid(), int(number))
    return done if when == "after" else whole(*given, **named)

setattr(Linking, step, dying)
sys.exit(main(typed))
"""
COMMANDS = {"reverse-and-start": "reverse", "truncate-and-restore": "restore", "promote": "promote"}


def asked(shop: Bench, by: signal.Signals, step: str, when: str, *typed: str) -> subprocess.CompletedProcess[str]:
    """Type a command that is sent a signal before or after a step of a cluster."""
    command = [sys.executable, "-c", ASKING, step, when, str(by.value), *typed]
    return subprocess.run(
        command, cwd=shop.folder, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=60.0
    )


def die_asking(shop: Bench, step: str, when: str, verb: str, address: str) -> None:
    """Ask a verb by its command, which is killed, and free its lease."""
    done = asked(shop, signal.SIGKILL, step, when, "mirror", COMMANDS[verb], address, "--yes")
    assert done.returncode == -9, done.stderr
    site = open_state(shop.invocation, Select())
    held = read_lockfile(site.state, owner=site.owner)
    assert held is not None
    state_unlock(shop.invocation, Select(), held.lockfile.lease.run, confirm=lambda _line: True, stop=shop.stop)


PROMOTIONS = [
    ("ask", "before", "ACTIVE"),
    ("ask", "after", "PENDING_STOPPED"),
    ("open_heads", "before", "STOPPED"),
]


@pytest.mark.parametrize(("step", "when", "left"), PROMOTIONS)
def test_a_promotion_that_died_is_resumed_with_the_topic_it_frees(shop: Bench, step: str, when: str, left: str) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, step, when)
    assert status(shop) == left
    assert shop.apply(options=RESUME).verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert planned(shop) == []
    produce(shop, "east", "its own")


def test_a_promotion_that_died_is_waited_for_and_ended_by_run(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "aim", "after")
    assert waiting(shop) == [(MIRROR, "PENDING_STOPPED")]
    assert f"promote:{MIRROR}" not in planned(shop)
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert shop.apply().verdict is None
    assert planned(shop) == []
    assert waiting(shop) == []


def test_a_promotion_that_died_is_ended_by_the_next_apply_before_it_plans(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "aim", "after")
    done = shop.apply()
    assert done.verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, Recovered)]
    assert recovered.settled == {f"promote:{MIRROR}": "partial"}
    assert [action.id for action in done.planned.plan.actions] == [f"adopt:{COPY}"]
    assert planned(shop) == []


def test_what_is_to_be_failed_over_by_now_is_not_finished_first(shop: Bench) -> None:
    want(shop, "reversed")
    die(shop, "join", "after")
    told = drift(shop.invocation, Select())
    assert [(each.address, "takes no records" in each.message) for each in told.warnings] == [(MIRROR, True)]
    want(shop, "failed-over")
    done = shop.apply(Select(allow=(f"failover:{MIRROR}",)))
    assert done.verdict is None
    assert f"failover:{MIRROR}" in [action.id for action in done.planned.plan.actions]
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    produce(shop, "east", "its own")


REVERSALS = [
    ("join", "after", "PENDING_SYNCHRONIZE", "PENDING_MIRROR"),
    ("open_heads", "before", "STOPPED", "PENDING_MIRROR"),
    ("stand", "after", "STOPPED", "PENDING_MIRROR"),
]


@pytest.mark.fact("F-C-074")
@pytest.mark.parametrize(("step", "when", "east", "west"), REVERSALS)
def test_a_reversal_that_died_is_resumed_and_loses_nothing(
    shop: Bench, step: str, when: str, east: str, west: str
) -> None:
    want(shop, "reversed")
    die(shop, step, when)
    assert (status(shop), status(shop, "west")) == (east, west)
    assert shop.apply(options=RESUME).verdict is None
    upkeep(shop, "mirror")
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert planned(shop) == []
    produce(shop, "east", "over there")
    upkeep(shop, "mirror")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "late", "over there"]


RESTORES = [("join", "after"), ("truncate", "after")]


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(("step", "when"), RESTORES)
def test_a_restore_that_died_cuts_once_and_is_ended_by_run(shop: Bench, step: str, when: str) -> None:
    want(shop, "failed-over")
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    produce(shop, "east", "since then")
    want(shop, "reversed")
    die(shop, step, when, f"truncate-and-restore:{BACK}")
    assert [address for address, _ in waiting(shop)] == [BACK]
    assert planned(shop) == []
    for _ in range(2):
        assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "since then"]
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.fact("F-C-041")
def test_a_failover_that_died_before_its_heads_were_opened_is_whole_after_the_next_apply(shop: Bench) -> None:
    want(shop, "failed-over")
    die(shop, "open_heads", "before", f"failover:{MIRROR}")
    assert status(shop) == "STOPPED"
    assert shop.apply().verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, Recovered)]
    assert recovered.settled == {f"failover:{MIRROR}": "partial"}
    assert planned(shop) == []
    produce(shop, "east", "its own")
    assert values(shop, "east") == [*OLD, "its own"]


def failing_over(shop: Bench, address: str) -> None:
    done = ask_mirrors(shop.acting("mirror failover"), "failover", [address], confirm=lambda _ready: True)
    assert done.verdict is None


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(("step", "left"), [("join", "PENDING_SETUP_FOR_RESTORE"), ("truncate", "PENDING_RESTORE")])
@pytest.mark.parametrize("by", ["files", "command"])
def test_a_restore_by_command_that_died_is_waited_for_whatever_the_files_say(
    shop: Bench, step: str, left: str, by: str
) -> None:
    if by == "files":
        want(shop, "failed-over")
        assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    else:
        failing_over(shop, MIRROR)
    produce(shop, "east", "since then")
    die_asking(shop, step, "after", "truncate-and-restore", BACK)
    assert planned(shop) == []
    assert waiting(shop) == [(BACK, left)]
    assert upkeep(shop, "mirror").verdict is None
    assert waiting(shop) == []
    assert values(shop, "west") == values(shop, "east")


@pytest.mark.fact("F-C-074")
@pytest.mark.parametrize("by", ["files", "command"])
def test_a_reversal_that_a_failover_broke_off_is_told_with_the_way_out(shop: Bench, by: str) -> None:
    if by == "files":
        want(shop, "reversed")
        die(shop, "join", "after")
        want(shop, "failed-over")
        assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    else:
        die_asking(shop, "join", "after", "reverse-and-start", MIRROR)
        failing_over(shop, MIRROR)
    assert (status(shop), status(shop, "west")) == ("STOPPED", "PENDING_MIRROR")
    assert (planned(shop), waiting(shop)) == ([], [])
    (told,) = [each for each in shop.plan().plan.warnings if each.address == BACK]
    assert "it is PENDING_MIRROR and takes no records: its reversal was broken off" in told.message
    assert told.hint == f"Let it take records again with: reconciler mirror failover {BACK}"
    (topic,) = [each for each in shop.plan().plan.warnings if each.address == SOURCE]
    assert topic.hint == f"Its reversal was broken off: reconciler mirror failover {BACK}"
    failing_over(shop, BACK)
    produce(shop, "west", "again")
    assert [each for each in shop.plan().plan.warnings if each.address == BACK] == []
