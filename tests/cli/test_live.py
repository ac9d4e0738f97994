"""What moves on a terminal while a command works, and that nothing of it is left."""

from __future__ import annotations

import io
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, Event, PlanMade, Progress
from reconciler.cli.live import LiveTable
from reconciler.planning.actions import Create
from reconciler.resources.address import Address
from reconciler.resources.topic import Topic
from tests.cli.conftest import Call, Run
from tests.cli.sample_results import empty
from tests.cli.terminals import Size, hides_cursor, pictures

OnTerminal = Callable[..., tuple[int, str]]

ORDERS = Address("mirror/east/shop:orders")
MIRROR = f"mirror:{ORDERS}"
STARTED = [ActionStarted(MIRROR, ORDERS), ActionStarted("create:topic/west/x", Address("topic/west/x"))]
HALF = Progress(MIRROR, 1_200_000, 4_100_000, 35 * 2**20, 70 * 2**20, 10.0, 10.0, partitions_done=3, partitions=12)


def plan_of(count: int) -> PlanMade:
    topic = Topic.model_validate({"metadata": {"name": "x", "cluster": "west"}, "spec": {"partitions": 1}})
    made = empty()
    object.__setattr__(made, "actions", (Create(address=topic.address, after=topic),) * count)
    return PlanMade(made)


def seen(events: Sequence[Event], size: Size, now: float = 125.9) -> tuple[list[str], list[str]]:
    """Return the table after some events, and the lines that are kept above it."""
    kept = Console(file=io.StringIO(), width=size.columns, height=size.lines)
    times = [0.0]
    table = LiveTable(kept, clock=lambda: times[-1])
    times.append(1.0)
    with table:
        for event in events:
            table.handle_event(event)
        times.append(now)
        drawn = Console(width=size.columns, height=size.lines, file=io.StringIO())
        drawn.print(table.build_table())
    lines = [console.file.getvalue().splitlines() for console in (drawn, kept)]  # type: ignore[attr-defined]
    return [line.rstrip() for line in lines[0]], [line.rstrip() for line in lines[1] if line.strip()]


def test_each_action_under_way_has_a_row_with_all_that_is_known_of_it() -> None:
    rows, kept = seen([plan_of(3), *STARTED, HALF], Size(120, 24))
    assert [" ".join(row.split()) for row in rows] == [
        "0 of 3 actions done, 2 min 4 s",
        f"{MIRROR} ━━━╸ 1.2 M of 4.1 M 3.5 MiB/s 3 of 12 p about 10 s left 2 min 4 s",
        "create:topic/west/x 2 min 4 s",
    ]
    assert not kept


@pytest.mark.parametrize("size", [Size(120, 24), Size(40, 20)], ids=str)
def test_a_job_says_that_it_starts_spark_before_records_move(size: Size) -> None:
    starts = Progress(MIRROR, 0, 4_100_000, 0, 70 * 2**20, 0.0, phase="starting Spark")
    rows, _ = seen([plan_of(3), *STARTED, starts], size)
    assert " ".join(rows[1].split()).endswith("starting Spark 2 min 4 s")


def test_a_narrow_screen_has_names_cut_and_a_share_in_place_of_counts() -> None:
    rows, _ = seen([plan_of(3), *STARTED, HALF], Size(40, 20))
    assert max(map(len, rows)) <= 40
    assert rows[1].split()[1:] == ["29", "%", "2", "min", "4", "s"]
    assert rows[1].startswith("  mirror:mirror/east/")
    assert "…" in rows[1]


def test_more_actions_than_a_screen_has_lines_are_counted() -> None:
    many = [ActionStarted(f"create:topic/west/t{n}", Address(f"topic/west/t{n}")) for n in range(256)]
    rows, _ = seen(many, Size(80, 24))
    assert len(rows) == 23
    assert rows[-1] == "  and 235 more in progress"


def test_what_failed_moved_records_or_took_long_is_kept_and_the_rest_is_counted() -> None:
    ended: list[Event] = [
        ActionDone(MIRROR, ORDERS, 12.0, 4_100_000, 70 * 2**20),
        ActionDone("create:topic/west/x", Address("topic/west/x"), 0.1),
        ActionFailed("create:topic/west/y", Address("topic/west/y"), "no", "Mend it"),
    ]
    rows, kept = seen([plan_of(3), *STARTED, HALF, *ended], Size(100, 24))
    assert rows == ["3 of 3 actions done, 1 failed, 2 min 4 s"]
    assert kept == [
        f"✓ {MIRROR}: 4,100,000 records, 70 MiB in 12 s (341,667 records/s)",
        "✗ create:topic/west/y: no. Mend it",
    ]


def test_names_are_text_and_move_nothing() -> None:
    odd = "mirror:[red]:ledger:\x1b[2J\u202e"
    rows, kept = seen(
        [ActionStarted(odd, ORDERS), ActionFailed("create:[bold]\x1b", ORDERS, "\x1b]0;x\x07", "")], Size(120, 24)
    )
    assert rows[1].startswith(r"  mirror:[red]:ledger:\x1b[2J\u202e")
    assert kept[0].startswith(r"✗ create:[bold]\x1b: \x1b]0;x\x07")


ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, termios
from reconciler.applying.events import ActionDone, Summary
from reconciler.cli import signals
from reconciler.cli.progress import open_reporter
from tests.cli.test_live import HALF, MIRROR, ORDERS, STARTED, plan_of
flags = termios.tcgetattr(0)
flags[3] &= ~(termios.ECHO | termios.ICANON)
termios.tcsetattr(0, termios.TCSANOW, flags)
signals.install_handlers()
with open_reporter("text") as report:
    for event in (plan_of(2), *STARTED, HALF):
        report(event)
    os.read(0, 1)
    report(ActionDone(MIRROR, ORDERS, 12.0, 4_100_000, 70 * 2**20))
    report(Summary("r1", 2, 0, 0, 0, 12.0))
print("The end")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("size", [Size(80, 24), Size(40, 20)], ids=str)
def test_the_table_is_gone_when_the_run_has_ended(on_terminal: OnTerminal, size: Size) -> None:
    code, shown = on_terminal(
        command=[sys.executable, "-c", PROGRAM], cwd=ROOT, types=[("actions done", b"x")], size=size
    )
    assert code == 0, shown
    *drawn, last = pictures(shown, size)
    assert any(picture[0].startswith("0 of 2 actions done") and MIRROR[:15] in picture[1] for picture in drawn)
    assert "".join(last) == f"✓ {MIRROR}: 4,100,000 records, 70 MiB in 12 s (341,667 records/s)The end"
    assert not hides_cursor(shown)


@pytest.mark.thorough
def test_ctrl_c_leaves_a_clean_terminal(on_terminal: OnTerminal) -> None:
    size = Size(80, 24)
    code, shown = on_terminal(
        command=[sys.executable, "-c", PROGRAM], cwd=ROOT, types=[("actions done", b"\x03")], size=size
    )
    assert code != 0
    assert not any("actions done" in line for line in pictures(shown, size)[-1])
    assert not hides_cursor(shown)


@pytest.mark.thorough
@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"CI": "true"}, {"GITHUB_ACTIONS": "true"}], ids=str)
def test_nothing_is_drawn_over_where_each_line_stays(on_terminal: OnTerminal, environ: dict[str, str]) -> None:
    program = PROGRAM.replace("os.read(0, 1)", "")
    code, shown = on_terminal(command=[sys.executable, "-c", program], cwd=ROOT, environ=environ)
    assert code == 0, shown
    assert "\x1b[?25l" not in shown
    assert "\x1b[1A" not in shown
    assert "\x1b[2K" not in shown


# Before a plan is there: what is being done.


SILENT = """\
---
kind: Cluster
apiVersion: reconciler/v1
metadata: {{name: silent}}
spec: {{provider: kafka, kafka: {{bootstrapServers: ["127.0.0.1:{port}"]}}}}
---
kind: Topic
apiVersion: reconciler/v1
metadata: {{name: orders, cluster: silent}}
spec: {{partitions: 1}}
"""


@pytest.fixture
def silent(call: Call, tmp_path: Path) -> Iterator[None]:
    """A workspace with a cluster that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        manifest = tmp_path / "manifests" / "example.yaml"
        manifest.write_text(manifest.read_text() + SILENT.format(port=server.getsockname()[1]))
        done = call("validate")
        assert done.code == 0, done
        yield


@pytest.mark.thorough
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("size", [Size(80, 24), Size(40, 20)], ids=str)
@pytest.mark.parametrize("command", ["plan", "drift", "apply"])
def test_a_plan_says_which_clusters_it_waits_for_and_ctrl_c_takes_that_away(
    on_terminal: OnTerminal, command: str, size: Size
) -> None:
    code, shown = on_terminal(command, types=[("observing clusters 1 of 2", b"\x03")], size=size)
    assert code == 130, shown
    line = re.findall(r"observing clusters 1 of 2[^\r\x1b]*", shown)[0]
    assert line.startswith("observing clusters 1 of 2, waiting for silent (" if size.columns > 60 else "observing")
    assert len(line) < size.columns
    last = "".join(pictures(shown, size)[-1])
    assert "Interrupted" in last
    assert "observing" not in last


@pytest.mark.thorough
@pytest.mark.usefixtures("silent")
def test_where_lines_stay_nothing_is_said_of_what_is_being_done(on_terminal: OnTerminal, run: Run) -> None:
    _, shown = on_terminal("plan", "--exclude", "*/silent/*", environ={"CI": "1"})
    done = run("plan", "--exclude", "*/silent/*")
    assert (done.returncode, done.stderr) == (0, "")
    assert "observing" not in shown + done.stdout


# What is longer than the screen: through a pager where one is set, and never before a question.


@pytest.mark.thorough
def test_a_pager_is_asked_for_and_gets_what_is_longer_than_the_screen(
    call: Call, on_terminal: OnTerminal, tmp_path: Path
) -> None:
    assert call("validate").code == 0
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "paged $1"; cat\n')
    pager.chmod(0o755)
    asked = {"RECONCILER_PAGER": f"{pager} 'with options'"}
    _, shown = on_terminal("plan", environ=asked, size=Size(80, 5))
    assert "paged with options\r\n\x1b[1mWorkspace" in shown
    for environ, size in ((asked, Size(80, 60)), ({}, Size(80, 5)), ({"RECONCILER_PAGER": "/no/such"}, Size(80, 5))):
        _, shown = on_terminal("plan", environ=environ, size=size)
        assert "paged" not in shown
        assert "3 to add" in shown
    code, shown = on_terminal("apply", environ=asked, size=Size(80, 5), types=[("Type 'yes' to continue: ", b"no\n")])
    assert (code, "paged" in shown) == (1, False)


@pytest.mark.thorough
def test_standard_output_only_ever_goes_on_whatever_is_forced(call: Call, run: Run) -> None:
    assert call("validate").code == 0
    shown = (
        run("plan", environ={"FORCE_COLOR": "1"}).stdout + run("apply", "--yes", environ={"FORCE_COLOR": "1"}).stdout
    )
    assert "\x1b[32m+ " in shown
    assert not re.sub(r"\x1b\[[\d;]*m", "", shown).count("\x1b")
    assert "\r" not in shown
