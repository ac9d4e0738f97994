"""The state commands as people call them: undo, changes of what is recorded, repair; texts, JSON, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.conftest import Call, Said
from tests.cli.sample_workspaces import SCHEMAS

TOPIC = "topic/west/shop:orders"
STATE = Path(".reconciler")
LOCKFILE = STATE / "lockfile.json"


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in one workspace with two states: retention 7d, then 9d."""
    assert typed("init").code == 0
    edit("partitions: 3", "partitions: 3\n  configs: {retention.ms: 7d}")
    assert typed("apply", "--yes").code == 0
    edit("7d", "9d")
    assert typed("apply", "--yes").code == 0
    return typed


def edit(before: str, after: str) -> None:
    path = Path("manifests/example.yaml")
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def follows(schema: str, said: Said) -> Any:
    """Return the JSON a command printed, having seen that it is of its schema."""
    assert said.code == 0, said.err
    printed = json.loads(said.out)
    jsonschema.validate(printed, json.loads(SCHEMAS[schema]))
    return printed


def newest(back: int = 0) -> Path:
    return sorted((STATE / "state").iterdir(), reverse=True)[back]


# -- looking and undo


def test_what_changed_since_a_state_is_shown(call: Call) -> None:
    said = call("state", "diff", "1")
    assert said.out == f"State #1 → #2 · 1 changed\n\n~ {TOPIC}\n    retention.ms 7d → 9d\n"
    printed = follows("state-diff", call("state", "diff", "1", "--format", "json"))
    assert printed["differences"] == [
        {
            "address": TOPIC,
            "change": "changed",
            "fields": [{"path": "configs.retention.ms", "before": "604800000", "after": "777600000"}],
            "facts": [],
            "origins": [],
        }
    ]
    assert call("state", "diff", "2").out == "State #2 → #2 · no difference\n"
    assert f"\n+ {TOPIC}  created\n" in call("state", "diff", "0", "1").out
    assert f"\n- {TOPIC}  was created\n" in call("state", "diff", "1", "0").out


def test_history_shows_the_newest_and_how_many_older_ones_there_are(call: Call) -> None:
    said = call("state", "history", "--limit", "1")
    assert re.search(r"^ *#2 +now .*\n… and 1 older state: --limit 0 shows all$", said.out, re.MULTILINE)
    assert follows("state-history", call("state", "history", "--limit", "1", "--format", "json"))["older"] == 1
    assert "#1" in call("state", "history", "--limit", "0").out


def test_a_plan_back_is_shown_saved_and_applied(call: Call) -> None:
    said = call("state", "rollback-plan", "1", "--out", "back.json")
    assert said.code == 0
    assert "\nBack to what was applied as state #1. Change the files too, or the next plan undoes it.\n" in said.out
    assert "retention.ms 9d → 7d" in said.out
    assert "reconciler apply back.json" in said.err
    shown = call("show", "./back.json").out
    assert "Back to what was applied as state #1." in shown
    applied = call("apply", "back.json")
    assert applied.code == 0, applied.err
    assert "Back to what was applied as state #1." in applied.out
    assert call("state", "diff", "1").out == "State #1 → #3 · no difference\n"
    assert "retention.ms 7d → 9d" in call("plan").out


@pytest.mark.parametrize("form", ["text", "json", "markdown", "junit", "sarif"])
def test_a_plan_back_has_every_form_of_a_plan(call: Call, form: str) -> None:
    said = call("state", "rollback-plan", "1", "--format", form)
    assert said.code == 0, said.err
    assert ("retention.ms" in said.out) is (form != "sarif")  # which lists only what asks for a look
    if form == "json":
        printed = json.loads(said.out)
        jsonschema.validate(printed, json.loads(SCHEMAS["plan"]))
        assert printed["back_to"] == 1
    if form in ("text", "markdown"):
        assert "Back to what was applied as state #1." in said.out


# -- what is recorded


def test_a_resource_is_recorded_under_another_address(call: Call) -> None:
    rehearsed = call("state", "mv", TOPIC, "topic/west/shop:bookings", "--dry-run")
    assert (rehearsed.code, "topic/west/shop:bookings" in rehearsed.out) == (0, True)
    said = call("state", "mv", TOPIC, "topic/west/shop:bookings", "--yes")
    assert (said.code, said.out) == (0, f"» {TOPIC} → topic/west/shop:bookings\n")
    printed = follows(
        "state-moves", call("state", "move", "topic/west/shop:bookings", TOPIC, "--yes", "--format", "json")
    )
    assert printed["moves"] == [{"before": "topic/west/shop:bookings", "after": TOPIC}]
    assert "nothing to do" in call("plan").out


def test_a_resource_is_forgotten_and_adopted_again(call: Call) -> None:
    plan = follows("plan", call("state", "rm", TOPIC, "--dry-run", "--format", "json"))
    assert [(action["action"], action["address"]) for action in plan["actions"]] == [("forget", TOPIC)]
    said = call("state", "rm", TOPIC, "--yes")
    assert said.out == (
        f"- {TOPIC}\nForgot 1 resource; what is on the clusters stays, and this workspace does not own it. "
        "What the files still declare, the next apply adopts again\n"
    )
    assert call("apply", "--yes").code == 0
    printed = follows(
        "state-removal", call("state", "forget", "cluster/west", "--recursive", "--yes", "--format", "json")
    )
    assert printed["forgotten"] == [TOPIC, "namespace/west/shop", "cluster/west"]


# -- the lease


def test_a_free_lease_is_left_free(call: Call) -> None:
    printed = follows("state-unlock", call("state", "force-unlock", "--yes", "--format", "json"))
    assert (printed["was_free"], printed["in_doubt"]) == (True, [])


# -- repair


def test_a_lost_lockfile_is_made_anew(call: Call) -> None:
    LOCKFILE.unlink()
    said = call("state", "repair", "--yes")
    assert said.code == 0, said.err
    assert "lockfile.json is missing" in said.out
    assert re.search(
        r"→ continue from state #2 of run \S+, 3 resources\n→ write the lockfile again, under epoch 3\n", said.out
    )
    assert said.out.endswith("Repaired: state #2, epoch 3\nLook at it next:  reconciler plan\n")
    assert "nothing to do" in call("plan").out
    assert call("state", "repair").out == "There is nothing to repair\n"


def test_a_damaged_lockfile_is_kept_beside_the_new_one(call: Call) -> None:
    LOCKFILE.write_bytes(LOCKFILE.read_bytes()[:-30])
    damaged = LOCKFILE.read_bytes()
    printed = follows("state-repair", call("state", "repair", "--yes", "--format", "json"))
    assert (STATE / printed["kept"]).read_bytes() == damaged
    assert (printed["base"], printed["serial"], printed["epoch"]) == (2, 2, 3)
    assert follows("state-repair", call("state", "repair", "--format", "json"))["problems"] == []


def test_going_back_to_an_older_state_says_what_is_forgotten(call: Call) -> None:
    newest().write_bytes(b"damaged")
    for journal in (STATE / "runs").glob("*/journal/*"):
        journal.unlink()
    asked = call("state", "repair", "--yes")
    assert asked.code == 1
    assert re.search(
        r"is damaged: .*\n  hint: .*to continue from it.*: reconciler state repair --snapshot 1$",
        asked.err,
        re.MULTILINE,
    )
    said = call("state", "repair", "--snapshot", "1", "--yes")
    assert said.code == 0, said.err
    assert re.search(
        rf"! forget what run \S+ \(apply, .*\) did; it stays on the clusters:\n +update:{TOPIC}\n", said.out
    )
    assert "retention.ms" not in call("state", "diff", "1").out


def test_a_snapshot_that_is_gone_comes_back_from_the_journal_and_serials_go_on(call: Call) -> None:
    newest().unlink()
    said = call("state", "repair", "--yes")
    assert re.search(r"→ add what the journal of run \S+ says, as state #3\n", said.out), said.out
    assert "Repaired: state #3" in said.out
    assert call("apply", "--yes").code == 0
    assert "nothing to do" in call("plan").out


def test_a_snapshot_whose_run_is_gone_too_is_asked_about(call: Call) -> None:
    newest().unlink()
    results = {path.parent.name: path for path in (STATE / "runs").glob("*/result.json")}
    run = next(name for name, path in results.items() if json.loads(path.read_text())["serial"] == 2)
    for path in (STATE / "runs" / run).rglob("*.json"):
        if path.name != "result.json":
            path.unlink()
    asked = call("state", "repair", "--yes")
    assert asked.code == 1
    assert re.search(rf"has no state #2 any more.*forgets what run {run[-8:]} did.*--snapshot 1$", asked.err, re.DOTALL)
    said = call("state", "repair", "--snapshot", "1", "--yes")
    assert f"! forget what run {run[-8:]} did; it stays on the clusters:\n    update:{TOPIC}\n" in said.out
    assert "Repaired: state #3" in said.out


# -- bad input


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _edit(**fields: object) -> None:
    LOCKFILE.write_text(json.dumps({**json.loads(LOCKFILE.read_text()), **fields}))


def _restore(call: Call) -> None:
    """Put the lockfile of the second state back after two more."""
    old = LOCKFILE.read_bytes()
    for days in ("10d", "11d"):
        edit("9d" if days == "10d" else "10d", days)
        assert call("apply", "--yes").code == 0
    LOCKFILE.write_bytes(old)


def _restore_last(call: Call) -> None:
    """Put the lockfile of the second state back after one more."""
    old = LOCKFILE.read_bytes()
    edit("9d", "10d")
    assert call("apply", "--yes").code == 0
    LOCKFILE.write_bytes(old)


def everything() -> dict[Path, object]:
    """Return every file of the state; of a lockfile that can be read, all but whose turn it was."""
    found: dict[Path, object] = {path: path.read_bytes() for path in STATE.rglob("*") if path.is_file()}
    with suppress(ValueError, FileNotFoundError):
        read = json.loads(LOCKFILE.read_text())
        found[LOCKFILE] = {key: value for key, value in read.items() if key not in ("lease", "nonce")}
    return found


DAMAGE = [
    ("edited by hand", lambda _: _edit(serial=7), r"lockfile\.json cannot be read: .*serial is 7", "state repair"),
    ("truncated", lambda _: _cut(LOCKFILE), r"lockfile\.json cannot be read", "state repair"),
    ("empty", lambda _: LOCKFILE.write_bytes(b""), r"lockfile\.json cannot be read", "state repair"),
    (
        "of a newer format",
        lambda _: _edit(format="reconciler.lockfile/2"),
        r"written by a newer version of reconciler \(reconciler\.lockfile/2\)",
        "pip install --upgrade",
    ),
    ("deleted", lambda _: LOCKFILE.unlink(), r"lockfile\.json is missing.*the state is lost, not new", "state repair"),
    ("restored from a backup", _restore, r"lockfile\.json says state #2, but .* it is an old copy", "state repair"),
    (
        "restored from a backup one state old",
        _restore_last,
        r"lockfile\.json says state #2, but run \S+ ended with #3: it is an old copy",
        "state repair",
    ),
    ("a snapshot whose digest is wrong", lambda _: _cut(newest()), r"is damaged: its sha256 is", "state repair"),
    ("a snapshot that is gone", lambda _: newest().unlink(), r"is missing, and the lockfile names it", "state repair"),
]


@pytest.mark.parametrize("restore", [_restore, _restore_last], ids=["two states old or more", "one state old"])
@pytest.mark.parametrize("looking", [("plan",), ("drift",), ("state", "history"), ("state", "diff", "1")])
def test_who_only_looks_at_an_old_copy_is_warned(
    call: Call, restore: Callable[[Call], None], looking: tuple[str, ...]
) -> None:
    restore(call)
    said = call(*looking)
    warned = r"Warning: .*lockfile\.json says state #2, but .*: it is an old copy\. .*reconciler state repair"
    assert re.search(warned, said.err), said.err


@pytest.mark.parametrize(("damage", "says", "way"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_bad_state_files_have_an_exit_code_a_sentence_and_a_way_on(
    call: Call, damage: Callable[[Call], object], says: str, way: str
) -> None:
    damage(call)
    before = everything()
    said = call("apply", "--yes")
    assert said.code == 1
    assert re.search(says, said.err)
    assert re.search(rf"hint: .*{re.escape(way)}", said.err)
    assert everything() == before
    if way == "state repair":
        assert call("state", "repair", "--yes").code == 0
        assert call("apply", "--yes").code == 0
        assert "nothing to do" in call("plan").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("diff", "9"), 1, r"has no state #9.*\n.*hint: .*state history"),
        (("diff", "x"), 64, r"it is a whole number"),
        (("rollback-plan", "0"), 1, r"state #0 is the empty one"),
        (("rollback-plan", "9"), 1, r"has no state #9"),
        (("rollback-plan", "1", "-o", "json"), 64, r"-o is --out here"),
        (("show", "topic/west/shop:order"), 1, rf"is not recorded\n.*Did you mean {TOPIC}"),
        (("mv", TOPIC, "topic/east/shop:orders"), 64, r"lives on cluster west"),
        (("mv", TOPIC, "topic/west/shop:x"), 64, r"there is no terminal to confirm on; nothing was done"),
        (("rm", TOPIC), 64, r"there is no terminal to confirm on; nothing was done"),
        (("rm", "topic/*", "--yes"), 64, r"may name more than one resource\n.*--recursive"),
        (("rm", "topic/west/none", "--yes"), 1, r"is not recorded"),
        (("repair", "--snapshot", "1"), 0, r"^$"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_done_is_said_with_its_exit_code(
    call: Call, arguments: tuple[str, ...], code: int, says: str
) -> None:
    said = call("state", *arguments)
    assert said.code == code
    assert re.search(says, said.err)


def test_repair_asks_before_it_writes(call: Call) -> None:
    LOCKFILE.unlink()
    said = call("state", "repair")
    assert said.code == 64
    assert "continue from state #2" in said.out
    assert not LOCKFILE.exists()
