"""What a run says while it goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Approval,
    Detached,
    Event,
    LeaseLost,
    PlanMade,
    Progress,
    Recovered,
    ResultMissing,
    Summary,
)
from reconciler.cli.json.runs_json import EventDocument, event_line
from reconciler.cli.progress import Bars, Ending, Lines, reporter
from reconciler.planning.plan import Plan
from reconciler.resources.address import Address
from reconciler.state.journal import StateAdvance

if TYPE_CHECKING:
    import pytest

MIRROR = "mirror:mirror/east/shop:refunds"
ADDRESS = Address("mirror/east/shop:refunds")
EVENTS: tuple[Event, ...] = (
    Approval(("create:topic/west/c",), StateAdvance(7, 9, "r0", "apply", "bob@laptop", "2026-01-01T00:00:00Z")),
    Approval(()),
    PlanMade(Plan(workspace="shop", environment=None, base=None, tool="0.1.0", git_commit=None, actions=())),
    ActionStarted(MIRROR, ADDRESS),
    Progress(MIRROR, 1_200_000, 4_100_000, 10, 40, 10.0, 24.2),
    Progress(MIRROR, 0, 0, 0, 0, 0.0),
    ActionDone(MIRROR, ADDRESS, 12.3456, 336_776, 30 * 2**20),
    ActionDone("create:topic/west/a", Address("topic/west/a"), 0.1),
    ActionFailed("create:topic/west/[red]\x1b", Address("topic/west/b"), "no", "Mend it."),
    LeaseLost("run 7 took over"),
    Recovered("r0", "bob@laptop", {"create:topic/west/a": "done", MIRROR: "partial"}),
    Detached((MIRROR,)),
    Summary("r1", done=2, failed=1, skipped=1, not_started=0, seconds=1.5, serial=7, skipped_because={"a": "b"}),
    ResultMissing("r1", "cannot write /s/runs/r1/result.json: the disk is full", 7),
)


def test_in_json_every_event_is_one_line_that_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter("json") as report:
        for event in EVENTS:
            report(event)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["event"] for line in lines] == [
        "approved",
        "approved",
        "plan",
        "action_started",
        "progress",
        "progress",
        "action_done",
        "action_done",
        "action_failed",
        "lease_lost",
        "recovered",
        "detached",
        "summary",
        "result_missing",
    ]
    for line in lines:
        EventDocument.model_validate_json(line)
        assert json.loads(line)["format"] == "reconciler.event/1"


def test_an_event_is_the_same_line_every_time() -> None:
    assert [event_line(event) for event in EVENTS] == [event_line(event) for event in EVENTS]


def test_how_a_run_ended_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    ending = Ending()
    with reporter("text", ending) as report:
        for event in EVENTS:
            report(event)
    assert ending.summary == EVENTS[-2]
    capsys.readouterr()


def _seconds(*times: float) -> Iterator[float]:
    yield from times


def test_in_a_pipe_there_is_at_most_a_line_every_few_seconds_but_failures_come_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = _seconds(0.0, 1.0, 4.9, 5.0, 6.0, 10.1)
    lines = Lines(clock=lambda: next(times))
    for done in (1_000, 2_000, 3_000, 4_000, 5_000):
        lines.take(Progress(MIRROR, done, 10_000, 0, 0, 1.0, 60.0))
    lines.take(EVENTS[8])
    assert capsys.readouterr().err.splitlines() == [
        f"{MIRROR}: 3,000 of 10,000 records, 3,000 records/s, about 1 min left",
        f"{MIRROR}: 5,000 of 10,000 records, 5,000 records/s, about 1 min left",
        "✗ create:topic/west/[red]\\x1b: no. Mend it.",
    ]


def test_in_a_pipe_a_job_says_what_it_moved(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(clock=lambda: 0.0).take(EVENTS[6])
    assert capsys.readouterr().err == f"✓ {MIRROR}: 336,776 records, 30 MiB in 12.3 s\n"


def test_a_missing_summary_is_told_with_where_everything_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(clock=lambda: 0.0).take(EVENTS[-1])
    assert capsys.readouterr().err == (
        "! What was done is recorded as state #7. Only the summary of run r1 is missing: "
        "cannot write /s/runs/r1/result.json: the disk is full. Nothing has to be run again for it.\n"
    )


def test_bars_show_names_as_they_are_and_leave_failures_behind() -> None:
    console = Console(force_terminal=True, width=200, record=True, highlight=False, markup=False, emoji=False)
    with Bars(console) as bars:
        for event in EVENTS:
            bars.take(event)
        bars.take(Progress("mirror:[red]:ledger:\x1b[2J", 1, 2, 0, 0, 1.0, 1.0))
    shown = console.export_text()
    assert "✗ create:topic/west/[red]\\x1b: no. Mend it." in shown
    assert "Lease lost: run 7 took over" in shown
