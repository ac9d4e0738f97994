"""Transitions and copies that die, stop, or lose their source at a step: what is said, and who goes on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionFailed, RunRecovered
from reconciler.errors import PartialError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.state_views import plan_rollback, state_history
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import (
    BACK,
    COMMANDS,
    COPY,
    MIRROR,
    SOURCE,
    TOPIC,
    asked,
    die,
    die_asking,
    give_roles,
    mirroring,
    planned,
    produce,
    status,
    upkeep,
    values,
    waiting,
    want,
)
from tests.processes import ran

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
    assert give_roles(shop.acting("mirror failover"), "failover", address).verdict is None


@pytest.mark.thorough
@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(
    ("step", "left"), [("mirror_own_mirror", "PENDING_SETUP_FOR_RESTORE"), ("truncate_mirror", "PENDING_RESTORE")]
)
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


@pytest.mark.thorough
@pytest.mark.fact("F-C-074")
@pytest.mark.parametrize("by", ["files", "command"])
def test_a_reversal_that_a_failover_broke_off_is_told_with_the_way_out(shop: Bench, by: str) -> None:
    if by == "files":
        want(shop, "reversed")
        die(shop, "mirror_own_mirror", "after")
        want(shop, "failed-over")
        assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    else:
        die_asking(shop, "mirror_own_mirror", "after", "reverse-and-start", MIRROR)
        failing_over(shop, MIRROR)
    assert (status(shop), status(shop, "west")) == ("STOPPED", "PENDING_MIRROR")
    assert (planned(shop), waiting(shop)) == ([], [])
    (told,) = [each for each in shop.plan().plan.warnings if each.address == BACK]
    assert "it is PENDING_MIRROR and takes no records: its reversal was interrupted" in told.message
    assert told.hint == f"Let it take records again with: reconciler mirror failover {BACK}"
    (topic,) = [each for each in shop.plan().plan.warnings if each.address == SOURCE]
    assert topic.hint == f"Its reversal was interrupted: reconciler mirror failover {BACK}"
    failing_over(shop, BACK)
    produce(shop, "west", "again")
    assert [each for each in shop.plan().plan.warnings if each.address == BACK] == []


STOPS = [
    (
        "mirror_own_mirror",
        "reverse-and-start",
        MIRROR,
        (f"{MIRROR} is PENDING_SYNCHRONIZE and {BACK} PENDING_MIRROR: neither takes records", BACK),
    ),
    (
        "record_source_match",
        "reverse-and-start",
        MIRROR,
        (f"{MIRROR} takes records, and {BACK} is PENDING_MIRROR", None),
    ),
    (
        "mirror_own_mirror",
        "truncate-and-restore",
        BACK,
        (f"{BACK} is PENDING_SETUP_FOR_RESTORE and takes no records", BACK),
    ),
    ("truncate_mirror", "truncate-and-restore", BACK, (f"{BACK} is PENDING_RESTORE and takes no records", BACK)),
    ("start_operation", "promote", MIRROR, (f"{MIRROR} is PENDING_STOPPED: it accepts no records yet", MIRROR)),
]


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.fact("F-C-075")
def test_what_a_stopped_reversal_says_opens_the_source_does(shop: Bench) -> None:
    asked(shop, signal.SIGINT, "mirror_own_mirror", "after", "mirror", "reverse", MIRROR, "--yes")
    failing_over(shop, BACK)
    produce(shop, "west", "again")
    assert values(shop, "west") == [*OLD, "late", "again"]


# Transitions whose process was killed at a step: what a plan says then, and who goes on with them. Real processes.


PROMOTIONS = [
    ("start_operation", "before", "ACTIVE"),
    ("start_operation", "after", "PENDING_STOPPED"),
    ("open_heads", "before", "STOPPED"),
]


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_promotion_that_died_is_waited_for_and_ended_by_run(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "record_end_offsets", "after")
    assert waiting(shop) == [(MIRROR, "PENDING_STOPPED")]
    assert f"promote:{MIRROR}" not in planned(shop)
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert shop.apply().verdict is None
    assert planned(shop) == []
    assert waiting(shop) == []


@pytest.mark.thorough
def test_a_promotion_that_died_is_ended_by_the_next_apply_before_it_plans(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    die(shop, "record_end_offsets", "after")
    done = shop.apply()
    assert done.verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, RunRecovered)]
    assert recovered.settled == {f"promote:{MIRROR}": "partial"}
    assert [action.id for action in done.planned.plan.actions] == [f"adopt:{COPY}"]
    assert planned(shop) == []


@pytest.mark.thorough
def test_a_promotion_that_died_is_left_where_it_stands_by_an_apply_that_excludes_it(shop: Bench) -> None:
    want(shop, "promoted")
    die(shop, "record_end_offsets", "after")
    assert shop.apply(Select(excludes=(MIRROR,))).verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, RunRecovered)]
    assert recovered.settled == {f"promote:{MIRROR}": "under way"}
    assert status(shop) == "PENDING_STOPPED"
    assert upkeep(shop, "mirror").verdict is None
    assert status(shop) == "STOPPED"


@pytest.mark.thorough
def test_what_is_to_be_failed_over_by_now_is_not_finished_first(shop: Bench) -> None:
    want(shop, "reversed")
    die(shop, "mirror_own_mirror", "after")
    told = drift(shop.invocation, Select())
    assert [(each.address, "accepts no records" in each.message) for each in told.warnings] == [(MIRROR, True)]
    want(shop, "failed-over")
    done = shop.apply(Select(allow=(f"failover:{MIRROR}",)))
    assert done.verdict is None
    assert f"failover:{MIRROR}" in [action.id for action in done.planned.plan.actions]
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    produce(shop, "east", "its own")


@pytest.mark.thorough
def test_the_way_back_to_a_state_that_was_failed_over_does_not_finish_a_restore_first(shop: Bench) -> None:
    want(shop, "failed-over")
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    serial = state_history(shop.invocation, Select()).rows[0].serial
    produce(shop, "east", "since then")
    want(shop, "reversed")
    die(shop, "mirror_own_mirror", "after", f"truncate-and-restore:{BACK}")
    plan_rollback(shop.invocation, Select(), serial, out=Path("back.json"))
    assert shop.apply(options=ApplyOptions(file=Path("back.json"))).verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, RunRecovered)]
    assert recovered.settled == {f"truncate-and-restore:{BACK}": "under way"}


REVERSALS = [
    ("mirror_own_mirror", "after", "PENDING_SYNCHRONIZE", "PENDING_MIRROR"),
    ("open_heads", "before", "STOPPED", "PENDING_MIRROR"),
    ("record_source_match", "after", "STOPPED", "PENDING_MIRROR"),
]


@pytest.mark.thorough
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


RESTORES = [("mirror_own_mirror", "after"), ("truncate_mirror", "after")]


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.fact("F-C-041")
def test_a_failover_that_died_before_its_heads_were_opened_is_whole_after_the_next_apply(shop: Bench) -> None:
    want(shop, "failed-over")
    die(shop, "open_heads", "before", f"failover:{MIRROR}")
    assert status(shop) == "STOPPED"
    assert shop.apply().verdict is None
    (recovered,) = [event for event in shop.events if isinstance(event, RunRecovered)]
    assert recovered.settled == {f"failover:{MIRROR}": "partial"}
    assert planned(shop) == []
    produce(shop, "east", "its own")
    assert values(shop, "east") == [*OLD, "its own"]


# The source's store goes away in the middle of things: what is said, that nothing is lost, and that all goes on. Real


LOSING = """
import importlib, os, sys, time, uuid
from pathlib import Path
from reconciler.applying.events import ActionFailed
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.run import run_once
from reconciler.operations.steps.runner import SiteOptions, Stop

folder, command, module, kind, step, *allow = sys.argv[1:]
owner = getattr(importlib.import_module(module), kind)
whole = getattr(owner, step)

def losing(*given, **named):
    source = Path(folder, ".clusters/west")
    if source.exists():
        source.rename(Path(folder, "lost"))
    return whole(*given, **named)

setattr(owner, step, losing)

def report(event):
    if isinstance(event, ActionFailed):
        print(event.id, event.error, event.hint, sep=" | ")

here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: str(uuid.uuid4()), tool="0.1.0", who="bob@laptop")
if command == "run":
    reach = SiteOptions(invocation=here, select=Select())
    verdict = run_once(reach, only=("mirror",), report=report, stop=Stop()).verdict
else:
    select = Select(allow=tuple(allow))
    verdict = apply(here, select, ApplyOptions(yes=True), Hooks(lambda _: True, report, Stop())).verdict
sys.exit(0 if verdict is None else verdict.exit_code)
"""
LINKING = ("reconciler.embedded.link_side", "ClusterLinks")
BOOK = ("reconciler.providers.models", "MirrorEntries")


def losing(shop: Bench, command: str, module: str, kind: str, step: str, *allow: str) -> tuple[int, str]:
    """Do something in a process of its own that loses the source right before a step."""
    done = ran(LOSING, str(shop.folder), command, module, kind, step, *allow)
    assert "Traceback" not in done.stderr, done.stderr
    assert (shop.folder / "lost").exists()
    return done.returncode, done.stdout


def find(shop: Bench) -> None:
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")


@pytest.mark.fact("F-C-069")
def test_during_a_copy(shop: Bench) -> None:
    code, said = losing(shop, "run", "reconciler.jobs.flows", "FlowRun", "plan_pieces")
    assert code == PartialError.exit_code
    assert said.startswith(f"mirror:{MIRROR} | ")
    assert values(shop, "east") == OLD
    again = upkeep(shop, "mirror")
    assert again.verdict is not None
    find(shop)
    upkeep(shop, "mirror")
    assert values(shop, "east") == [*OLD, "late"]
    assert status(shop) == "ACTIVE"
    assert planned(shop) == []


@pytest.mark.fact("F-C-064")
def test_while_a_mirror_catches_up_nothing_is_promoted(shop: Bench) -> None:
    want(shop, "promoted")
    code, said = losing(shop, "apply", "reconciler.jobs.flows", "FlowRun", "plan_pieces")
    assert code == PartialError.exit_code
    assert said.startswith(f"catch-up:{MIRROR} | ")
    assert status(shop) == "ACTIVE"
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        produce(shop, "east", "its own")
    find(shop)
    assert shop.apply().verdict is None
    assert values(shop, "east") == [*OLD, "late"]
    assert planned(shop) == []


@pytest.mark.fact("F-C-064", "F-C-082")
def test_during_a_promotion_it_stays_pending_and_ends_when_the_source_is_back(shop: Bench) -> None:
    want(shop, "promoted")
    code, said = losing(shop, "apply", *BOOK, "record_end_offsets")
    assert code == PartialError.exit_code
    assert said.startswith(f"promote:{MIRROR} | ")
    assert status(shop) == "PENDING_STOPPED"
    passed = upkeep(shop, "mirror")
    assert passed.verdict is not None
    assert any(isinstance(event, ActionFailed) for event in shop.events)
    assert status(shop) == "PENDING_STOPPED"
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        produce(shop, "east", "its own")
    find(shop)
    assert waiting(shop) == [(MIRROR, "PENDING_STOPPED")]
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.fact("F-C-066")
def test_a_promotion_that_lost_its_source_is_failed_over_instead(shop: Bench) -> None:
    want(shop, "promoted")
    losing(shop, "apply", *BOOK, "record_end_offsets")
    want(shop, "failed-over")
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",)), ApplyOptions(yes=True)).verdict is None
    assert status(shop) == "STOPPED"
    produce(shop, "east", "its own")
    assert planned(shop) == []


@pytest.mark.fact("F-C-065")
def test_during_a_failover_it_is_no_matter(shop: Bench) -> None:
    want(shop, "failed-over")
    code, said = losing(shop, "apply", *LINKING, "open_heads", f"failover:{MIRROR}")
    assert (code, said) == (0, "")
    assert (status(shop), values(shop, "east")) == ("STOPPED", OLD)
    produce(shop, "east", "its own")
    assert planned(shop) == []
