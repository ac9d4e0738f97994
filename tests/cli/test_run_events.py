"""`apply --format json`: one object a line on standard output and nothing else, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.objectstore.directory import DirectoryStore
from reconciler.state.lockfile import read_lockfile
from tests.cli.conftest import COMMAND, Call, environment
from tests.cli.sample_workspaces import SCHEMAS

TOPIC = "topic/west/shop:orders"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMAS["event"]))
PLAN = jsonschema.Draft202012Validator(json.loads(SCHEMAS["plan"]))
MORE = """---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: NAME, namespace: shop, cluster: west}
spec: {partitions: 1}
"""
Apply = Callable[..., tuple[int, list[dict[str, Any]], str]]


def events_of(out: str) -> list[dict[str, Any]]:
    """Return the events, each of which follows the schema."""
    assert out == "" or out.endswith("\n")
    found = [json.loads(line) for line in out.splitlines()]
    for event in found:
        VALIDATOR.validate(event)
        if event["event"] == "plan":
            PLAN.validate(event["plan"])
    return found


@pytest.fixture
def apply(call: Call) -> Apply:
    """Run `apply --format json`; returns code, events and standard error."""

    def start(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        code, out, err = call("apply", "--format", "json", *arguments)
        return code, events_of(out), err

    return start


def add(folder: Path, *names: str) -> None:
    path = folder / "manifests/example.yaml"
    path.write_text(path.read_text() + "".join(MORE.replace("NAME", name) for name in names))


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def test_what_is_done_ends_with_the_summary(apply: Apply) -> None:
    code, events, _ = apply("--yes")
    assert code == 0
    assert (events[0]["event"], events[-1]["event"]) == ("plan", "summary")
    assert kinds(events).count("action_done") == 3
    code, events, _ = apply("--yes")
    assert (code, kinds(events)) == (0, ["plan", "summary"])


def test_files_that_do_not_read_exit_1_in_one_line(apply: Apply, tmp_path: Path) -> None:
    (tmp_path / "manifests/broken.yaml").write_text("kind: [")
    code, (event,), err = apply("--yes")
    assert (code, event["event"], event["exit_code"], event["stale"]) == (1, "error", 1, None)
    assert "broken.yaml" in err


def test_a_call_that_cannot_be_exits_64_in_one_line(apply: Apply) -> None:
    for arguments in ((), ("--yes", "--lock-timeout", "soon")):
        code, (event,), _ = apply(*arguments)
        assert (code, event["exit_code"]) == (64, 64)
        assert event["hint"]


def test_a_lease_that_is_held_exits_5_in_one_line(apply: Apply, tmp_path: Path) -> None:
    assert apply("--yes")[0] == 0
    lockfile = tmp_path / ".reconciler/lockfile.json"
    held = json.loads(lockfile.read_bytes())
    held["lease"] |= {"status": "held", "run": "r0", "who": "bob@laptop", "holder": "h"}
    lockfile.write_text(json.dumps(held))
    code, (event,), err = apply("--yes", "--lock-timeout", "1s")
    assert (code, event["exit_code"]) == (5, 5)
    assert "bob@laptop" in event["error"]
    assert "bob@laptop" in err


def test_a_plan_that_is_stale_exits_6_with_what_differs_and_without_the_plan(
    apply: Apply, call: Call, tmp_path: Path
) -> None:
    assert apply("--yes")[0] == 0
    add(tmp_path, "first")
    assert call("plan", "--out", "p.json")[0] == 0
    add(tmp_path, "second")
    code, (event,), err = apply("p.json")
    assert (code, event["event"], event["exit_code"]) == (6, "error", 6)
    (found,) = event["stale"]["more"]
    assert (found["id"], found["why"]) == ("create:topic/west/shop:second", ["not_approved"])
    assert "shop:second" in err
    assert "shop:first" not in err


def test_a_plan_that_is_still_right_says_so_before_it_is_done(apply: Apply, call: Call, tmp_path: Path) -> None:
    assert apply("--yes")[0] == 0
    add(tmp_path, "first", "second")
    assert call("plan", "--out", "p.json")[0] == 0
    assert apply("--yes", "--target", "topic/west/shop:second")[0] == 0
    code, events, _ = apply("p.json")
    assert (code, kinds(events)[:2]) == (0, ["approved", "plan"])
    assert events[0]["not_needed"] == ["create:topic/west/shop:second"]
    assert (events[0]["state"]["approved"], events[0]["state"]["now"]) == (1, 2)
    code, (event,), _ = apply("p.json", "--strict")
    assert (code, event["stale"]["state"]["command"]) == (6, "apply")


def test_what_is_blocked_exits_7_with_the_plan_that_says_why(apply: Apply, tmp_path: Path) -> None:
    assert apply("--yes")[0] == 0
    text = (tmp_path / "manifests/example.yaml").read_text()
    (tmp_path / "manifests/example.yaml").write_text(text[: text.rindex("---")])
    code, events, _ = apply("--yes")
    assert (code, kinds(events)) == (7, ["plan", "error"])
    (action,) = events[0]["plan"]["actions"]
    assert action["blocked"]["allow"] == f"delete:{TOPIC}"
    assert events[-1]["exit_code"] == 7


def test_what_fails_exits_8_after_the_summary(apply: Apply) -> None:
    code, events, _ = apply("--yes", "--principal", "User:eve")
    assert (code, events[-1]["exit_code"]) == (8, 8)
    assert kinds(events)[-2:] == ["summary", "error"]
    assert [event["id"] for event in events if event["event"] == "action_failed"] == ["create:cluster/west"]
    assert events[-2]["skipped_because"][f"create:{TOPIC}"] == "create:cluster/west"


@pytest.mark.thorough
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_run_that_is_told_to_end_says_what_is_left(call: Call, tmp_path: Path, unbuffered: str) -> None:
    assert call("validate")[0] == 0
    add(tmp_path, *(f"topic-{number}" for number in range(200)))
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        # The plan is more than a pipe holds: until we read on, the run stands still in the middle of it.
        first = process.stdout.read(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    events = events_of((first + out).decode())
    assert process.returncode == 4, err
    assert (kinds(events)[0], kinds(events)[-1], events[-1]["exit_code"]) == ("plan", "error", 4)
    (left,) = [event["left"] for event in events if event["event"] == "detached"]
    assert len(left) == 203
    found = read_lockfile(DirectoryStore(tmp_path / ".reconciler"))
    assert found is not None
    assert found.lockfile.lease.status == "free"


def test_with_verbose_both_streams_are_json_lines_but_for_the_last_words(apply: Apply) -> None:
    code, events, err = apply("--yes", "--verbose")
    assert (code, events[-1]["event"]) == (0, "summary")
    assert all(line.startswith("{") for line in err.splitlines())
