"""Transitions that commands began and did not end: what is said then, by them and by plans. Real processes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from reconciler.operations.apply import ApplyOptions
from reconciler.operations.mirrors.mirror_commands import ask_mirrors
from reconciler.operations.steps.invocation import Select
from tests.workflow.dying import COMMANDS, asked, die, die_asking
from tests.workflow.linkedshop import (
    BACK,
    MIRROR,
    SOURCE,
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


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways; one more waits on `west`."""
    shop = mirroring(bench)
    produce(shop, "west", "late")
    return shop


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


STOPS = [
    (
        "join",
        "reverse-and-start",
        MIRROR,
        (f"{MIRROR} is PENDING_SYNCHRONIZE and {BACK} PENDING_MIRROR: neither takes records", BACK),
    ),
    ("stand", "reverse-and-start", MIRROR, (f"{MIRROR} takes records, and {BACK} is PENDING_MIRROR", None)),
    ("join", "truncate-and-restore", BACK, (f"{BACK} is PENDING_SETUP_FOR_RESTORE and takes no records", BACK)),
    ("truncate", "truncate-and-restore", BACK, (f"{BACK} is PENDING_RESTORE and takes no records", BACK)),
    ("ask", "promote", MIRROR, (f"{MIRROR} is PENDING_STOPPED: it takes no records yet", MIRROR)),
]


@pytest.mark.fact("F-C-074", "F-C-079")
@pytest.mark.parametrize("how", [pytest.param("command", marks=pytest.mark.soak), "without state", "apply"])
@pytest.mark.parametrize(("step", "verb", "address", "told"), STOPS)
def test_what_is_stopped_half_way_says_what_stands_and_what_goes_on_with_it(
    shop: Bench, step: str, verb: str, address: str, told: tuple[str, str | None], how: str
) -> None:
    said, opens = told
    if verb == "truncate-and-restore":
        want(shop, "failed-over")
        assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
        produce(shop, "east", "since then")
    typed = ["mirror", COMMANDS[verb], address, "--yes", *(["--no-state"] if how == "without state" else [])]
    if how == "apply":
        want(shop, "promoted" if verb == "promote" else "reversed")
        typed = ["apply", "--yes", "--allow", f"{verb}:{address}"]
    done = asked(shop, signal.SIGINT, step, "after", *typed)
    assert done.returncode == 4, (done.returncode, done.stderr)
    assert "before it was begun" not in done.stderr
    assert said in " ".join(done.stderr.split())
    assert "reconciler run --once --only mirror" in done.stderr
    assert opens is None or f"reconciler mirror failover {opens}" in done.stderr
    for _ in range(2):
        assert upkeep(shop, "mirror").verdict is None
    assert status(shop) == "STOPPED"
    assert status(shop, "west") == ("" if verb == "promote" else "ACTIVE")


@pytest.mark.fact("F-C-075")
def test_what_a_stopped_reversal_says_opens_the_source_does(shop: Bench) -> None:
    asked(shop, signal.SIGINT, "join", "after", "mirror", "reverse", MIRROR, "--yes")
    failing_over(shop, BACK)
    produce(shop, "west", "again")
    assert values(shop, "west") == [*OLD, "late", "again"]
