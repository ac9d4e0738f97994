"""On a terminal there are colours and one question; in a pipe there is neither."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from reconciler.cli.main import main
from tests.cli import terminals
from tests.cli.conftest import COMMAND, Call, Run, environment
from tests.cli.terminals import pictures

pytestmark = pytest.mark.thorough

OnTerminal = Callable[..., tuple[int, str]]
QUESTION = "Type 'yes' to continue: "
ESCAPE = "\x1b["
CTRL_C = b"\x03"
CTRL_D = b"\x04"


Here = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command in this process, which is quicker, and return what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        capsys.readouterr()
        assert main(arguments) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def workspace(here: Here, tmp_path: Path) -> Path:
    """A workspace with everything still to make."""
    here("init")
    return tmp_path


def _serial(here: Here) -> str:
    return here("state", "list").split(" · ")[0]


@pytest.mark.usefixtures("workspace")
def test_yes_goes_on(on_terminal: OnTerminal, here: Here) -> None:
    code, shown = on_terminal("apply", types=[(QUESTION, b"yes\n")])
    assert code == 0, shown
    assert shown.index("Plan: ") < shown.index(QUESTION) < shown.index("Done: ")
    assert _serial(here) == "State #1"


@pytest.mark.parametrize(
    "answer", [b"y\n", *(pytest.param(each, marks=pytest.mark.soak) for each in (b"\n", b"yes please\n"))]
)
@pytest.mark.usefixtures("workspace")
def test_anything_else_does_nothing_and_exits_1(on_terminal: OnTerminal, here: Here, answer: bytes) -> None:
    code, shown = on_terminal("apply", types=[(QUESTION, answer)])
    assert code == 1, shown
    assert "not confirmed" in shown
    assert _serial(here) == "State #0"


@pytest.mark.parametrize(
    ("command", "key"), [("apply", CTRL_C), ("apply", CTRL_D), ("destroy", CTRL_C)], ids=["Ctrl-C", "Ctrl-D", "destroy"]
)
@pytest.mark.usefixtures("workspace")
def test_leaving_the_question_exits_130_and_starts_nothing(
    on_terminal: OnTerminal, here: Here, key: bytes, command: str
) -> None:
    if command == "destroy":
        here("apply", "--yes")
    before = _serial(here)
    code, shown = on_terminal(command, "--allow", "delete:*", types=[(QUESTION, key)])
    assert code == 130, shown
    assert "Interrupted" in shown
    assert "Traceback" not in shown
    assert _serial(here) == before
    assert here("state", "unlock", "--yes").startswith("The lease is free")


@pytest.mark.usefixtures("workspace")
def test_a_terminal_has_colours_and_no_color_takes_them_away(on_terminal: OnTerminal) -> None:
    code, coloured = on_terminal("plan")
    assert code == 0, coloured
    assert f"{ESCAPE}32m+ topic/west/shop:orders" in coloured
    for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        code, plain = on_terminal("plan", environ=quiet)
        assert code == 0, plain
        assert re.search(r"\x1b\[[\d;]*m", plain) is None
        assert ESCAPE not in plain or "TERM" not in quiet  # a line of progress is taken away by an escape
        seen = [pictures(text, terminals.WIDE)[-1] for text in (coloured, plain)]
        timeless = [re.sub(r" in [\d.]+ s", "", "\n".join(lines)) for lines in seen]
        assert timeless[0] == timeless[1]


@pytest.mark.usefixtures("workspace")
def test_bars_leave_only_the_result_on_a_terminal(on_terminal: OnTerminal) -> None:
    code, shown = on_terminal("apply", "--yes", environ={"NO_COLOR": "1"})
    assert code == 0
    assert re.search(r"Done: 3 added · state #1 · in [\d.]+ s\r\n$", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)), shown


def test_a_question_that_nobody_can_answer_is_not_asked(run: Run, workspace: Path) -> None:
    done = run("apply", stdin="yes\n")
    assert done.returncode == 64
    assert not done.stdout
    assert "--yes" in done.stderr
    assert not (workspace / ".clusters").exists()


def test_a_reader_that_goes_early_does_not_stop_an_apply(here: Here, workspace: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "apply", "--yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=workspace, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    on_its_way = re.compile(r"(\d+ actions? done\n)*")  # said now and then, where the machine is slow
    assert process.returncode == 0
    assert on_its_way.fullmatch(said), said
    assert _serial(here) == "State #1"


def test_output_that_does_not_fit_is_an_error_of_one_line(workspace: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "plan"], stdout=full, stderr=subprocess.PIPE, cwd=workspace, env=environment(), check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("Error: standard output: No space left on device\n  hint: ")
    assert b"Traceback" not in done.stderr


def test_a_signal_before_anything_started_exits_130(workspace: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "topic", "produce", "topic/west/x", "--input", "-", "--input-format", "jsonl"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=workspace,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        _wait_until_signals_are_handled(process.pid)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read().decode()
    assert (process.returncode, "Traceback" in said) == (130, False), said


def _wait_until_signals_are_handled(pid: int) -> None:
    """Wait until the process catches SIGTERM, as the kernel tells of it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
    raise AssertionError("the process never handled SIGTERM")


# What people are told while somebody else holds the lease, when they give up, and when they take over.


LOCKFILE = Path(".reconciler/lockfile.json")


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in one workspace that was applied, and whose lease is free."""
    assert typed("init").code == 0
    assert typed("apply", "--yes").code == 0
    return typed


def hold(lease_s: float) -> None:
    """Let a run that is dead hold the lease."""
    body = orjson.loads(LOCKFILE.read_bytes())
    lease = {"status": "held", "lease_s": lease_s, "run": "r-7", "holder": "h", "who": "anna@build-7"}
    body["lease"] |= lease | {"ci_url": "https://ci/7", "since": "2026-01-01T00:00:00Z"}
    LOCKFILE.write_bytes(orjson.dumps(body))


def test_whoever_waits_reads_who_holds_it_since_when_and_for_what_and_exits_5(call: Call) -> None:
    hold(lease_s=90)
    said = call("apply", "--yes", "--lock-timeout", "1s")
    assert said.code == 5
    assert said.err.count("the lease is held by anna@build-7") == 2
    lines = said.err.splitlines()
    assert lines[0].startswith("Warning: the lease is held by anna@build-7 (https://ci/7) since 2026-01-01T00:00:00Z")
    assert "planning; run r-7; waiting up to 1 s, 0 s so far" in " ".join(lines)
    assert "reconciler state unlock r-7" in " ".join(lines)


def test_a_takeover_is_one_line_on_standard_error(call: Call) -> None:
    hold(lease_s=0.5)
    said = call("apply", "--yes")
    assert said.code == 0
    told = [line for line in said.err.splitlines() if "took over" in line]
    assert len(told) == 1
    assert re.fullmatch(r"Warning: took over the lease of run r-7 of anna@build-7, silent for \d+ s", told[0])
    assert "took over" not in said.out
    assert "took over" not in call("apply", "--yes").err


def test_a_takeover_stands_in_the_log(call: Call) -> None:
    hold(lease_s=0.5)
    said = call("apply", "--yes", "--verbose")
    noted = [json.loads(line) for line in said.err.splitlines()]
    (facts,) = [entry["facts"] for entry in noted if entry["message"] == "took over"]
    assert (facts["run"], facts["who"]) == ("r-7", "anna@build-7")
    assert facts["silent_s"] >= 0.5
