"""What came of a run: counts first, then why, each reason once, however many actions it met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.applying.alike import alike, by_cause, first_few
from reconciler.cli.failing import FEW
from reconciler.cli.render.amounts import count_text, counted, took
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.mounting_moves import mounted_lines
from reconciler.cli.render.plan_text import did_of
from reconciler.planning.actions import RunJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.applying.alike import Alike
    from reconciler.applying.engine import RunResult
    from reconciler.applying.events import Summary
    from reconciler.workflow.apply import Applied
    from reconciler.workflow.plan import Planned

_MOST: Final = 20
"""So many reasons are told of failures, and of what was skipped; result.json has all."""


def applied_text(applied: Applied, summary: Summary | None, *, with_failures: bool = True) -> list[Line]:
    """Return what was done, what failed and why, and what was left. `summary` adds the state and the time.

    `with_failures`: whether what failed is told where it has not been told in full before the same eyes.
    """
    lines = list(_not_needed(applied.skipped))
    if applied.advance is not None:
        lines.append(line(Span("- ", Tone.QUIET), f"{applied.advance}; nothing of the plan did"))
    result = applied.result
    if result is None:
        waiting = len(applied.planned.plan.waiting)
        return [*lines, line(f"Nothing was done: {count_text(waiting)} waiting." if waiting else "Nothing to do.")]
    lines.append(line(Span("Done: ", Tone.STRONG), " · ".join(_counts(applied, result, summary))))
    done = set(result.done)
    lines += mounted_lines((action for action in applied.planned.plan.actions if action.id in done), _MOST)
    groups = alike(result.failed)
    lines += _failures(groups if with_failures else [group for group in groups if len(group.ids) > FEW])
    lines += _skipped(result)
    lines += _in_doubt(result)
    return lines


def _not_needed(skipped: Sequence[str]) -> Iterator[Line]:
    if skipped:
        yield line(Span("- ", Tone.QUIET), f"{first_few(skipped)}: no longer needed")


def _counts(applied: Applied, result: RunResult, summary: Summary | None) -> Iterator[str]:
    done = set(result.done)
    yield did_of(action for action in applied.planned.plan.actions if action.id in done) or "nothing"
    named = {
        "failed": len(result.failed) - len(result.in_doubt),
        "in doubt": len(result.in_doubt) + len(result.unanswered),
        "skipped": len(result.skipped),
    }
    yield from (f"{count_text(count)} {name}" for name, count in named.items() if count)
    yield from _left(applied.planned, result)
    if summary is not None:
        if summary.serial is not None:
            yield f"state #{summary.serial}"
        yield f"in {took(summary.seconds)}"


def _left(planned: Planned, result: RunResult) -> Iterator[str]:
    """Yield how much was not begun: for want of time, or left to another on purpose."""
    left = set(result.not_started).difference(result.unanswered)
    if not left:
        return
    if result.is_stopped:
        yield f"{count_text(len(left))} not started"
        return
    jobs = sum(isinstance(action, RunJob) for action in planned.plan.actions if action.id in left)
    after = f" and {counted(len(left) - jobs, 'action')} after it" if len(left) > jobs else ""
    yield f"{counted(jobs, 'job')}{after} left to `apply --resume`"


def _failures(groups: Sequence[Alike]) -> Iterator[Line]:
    for group in groups[:_MOST]:
        if len(group.ids) == 1:
            yield line(Span("✗ ", Tone.DANGER), f"{group.ids[0]}: {group.error}. {group.hint}")
        else:
            yield line(Span("✗ ", Tone.DANGER), f"{count_text(len(group.ids))} × {group.error}. {group.hint}")
            yield line(Span(f"    {first_few(group.ids)}", Tone.QUIET))
    yield from _rest(groups[_MOST:], "failed")


def _skipped(result: RunResult) -> Iterator[Line]:
    causes = list(by_cause(result.skipped).items())
    for cause, ids in causes[:_MOST]:
        if len(ids) == 1:
            yield line(Span("- ", Tone.QUIET), f"{ids[0]}: skipped, it needs {cause}")
        else:
            yield line(Span("- ", Tone.QUIET), f"{count_text(len(ids))} skipped, they need {cause}")
            yield line(Span(f"    {first_few(ids)}", Tone.QUIET))
    yield from _rest(causes[_MOST:], "skipped")


def _in_doubt(result: RunResult) -> Iterator[Line]:
    if ids := [*(action.id for action in result.in_doubt), *result.unanswered]:
        yield line(Span("? ", Tone.CHANGE), f"in doubt until the next apply has looked: {first_few(ids)}")


def _rest(reasons: Sequence[object], what: str) -> Iterator[Line]:
    if reasons:
        more = counted(len(reasons), "more reason", "more reasons")
        yield line(Span(f"  {what} for {more}: see result.json of the run", Tone.QUIET))
