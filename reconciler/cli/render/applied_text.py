"""What came of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import counted, took
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.plan_text import did_of
from reconciler.planning.actions import RunJob

if TYPE_CHECKING:
    from reconciler.applying.engine import RunResult
    from reconciler.applying.events import Summary
    from reconciler.workflow.apply import Applied
    from reconciler.workflow.plan import Planned


def applied_text(applied: Applied, summary: Summary | None, *, with_failures: bool = True) -> list[Line]:
    """Return what was done, what failed and why, and what was left. `summary` adds the state and the time.

    `with_failures`: whether what failed is told, or has been before the same eyes.
    """
    lines = [line(Span("- ", Tone.QUIET), f"{each}: no longer needed") for each in applied.skipped]
    if applied.advance is not None:
        lines.append(line(Span("- ", Tone.QUIET), f"{applied.advance}; nothing of the plan did"))
    result = applied.result
    if result is None:
        return [*lines, line("Nothing to do.")]
    lines += [
        line(Span("✗ ", Tone.DANGER), f"{failed.id}: {failed.error.message}. {failed.error.hint}")
        for failed in (result.failed if with_failures else ())
    ]
    lines += [line(Span("- ", Tone.QUIET), f"{each.id}: skipped, it needs {each.because}") for each in result.skipped]
    done = set(result.done)
    did = did_of(action for action in applied.planned.plan.actions if action.id in done)
    ends = [counted(len(result.failed), "failed", "failed")] if result.failed else []
    ends += [counted(len(result.skipped), "skipped", "skipped")] if result.skipped else []
    ends += _left(applied.planned, result)
    if summary is not None:
        ends += [f"state #{summary.serial}"] if summary.serial is not None else []
        ends.append(f"in {took(summary.seconds)}")
    return [*lines, line(Span("Done: ", Tone.STRONG), " · ".join([did or "nothing", *ends]))]


def _left(planned: Planned, result: RunResult) -> list[str]:
    """Return how much was not begun: for want of time, or left to another on purpose."""
    left = set(result.not_started)
    if not left:
        return []
    if result.is_stopped:
        return [counted(len(left), "not started", "not started")]
    jobs = sum(isinstance(action, RunJob) for action in planned.plan.actions if action.id in left)
    after = f" and {counted(len(left) - jobs, 'action')} after it" if len(left) > jobs else ""
    return [f"{counted(jobs, 'job')}{after} left to `apply --resume`"]
