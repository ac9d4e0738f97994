"""`run` as text: tables of one pass, or a line for each of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import bytes_text, count_text, counted, took
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.workflow.upkeep.outcomes import JobOutcome, Upkeep


def upkeep_text(upkeep: Upkeep, *, with_failures: bool = True) -> list[Line]:
    """Return what each mirror took over, what each job did, and what failed and why where that was not told before."""
    failures = list(_failures(upkeep)) if with_failures else []
    blocks = [block for block in (_mirrors(upkeep), _jobs(upkeep), failures) if block]
    if not blocks and not any(each.errors for each in upkeep.outcomes):
        did = f"Nothing to do: {counted(len(upkeep.jobs), 'job')}, {counted(len(upkeep.synced), 'mirror')}."
        return [line(f"{did} {_left(upkeep)}".rstrip())]
    return [part for block in blocks for part in (*block, EMPTY)][:-1]


def _left(upkeep: Upkeep) -> str:
    """Say which mirrors were not copied, and that none was forgotten."""
    states = ", ".join(f"{count_text(count)} {state}" for state, count in upkeep.left.items())
    return f"Not copied: {counted(sum(upkeep.left.values()), 'mirror')} ({states})." if states else ""


def pass_line(upkeep: Upkeep, number: int) -> Line:
    """Return one pass as one line."""
    did = [f"{counted(sum(each.records for each in upkeep.synced), 'record')} mirrored"] if upkeep.synced else []
    did += [f"{each.job} {_amount(each)}" for each in upkeep.jobs if _is_news(each)]
    failed = [each.name for each in upkeep.outcomes if each.errors]
    text = f"pass {number}: {', '.join(did) or 'nothing to do'} in {took(upkeep.seconds)}"
    return line(text, *([Span(f"; failed: {', '.join(failed)}", Tone.DANGER)] if failed else []))


def _mirrors(upkeep: Upkeep) -> list[Line]:
    cells = [
        (each.address, count_text(each.records), bytes_text(each.bytes), took(each.seconds))
        for each in upkeep.synced
        if each.error is None
    ]
    return table(("mirror", "records", "size", "took"), cells, numbers=(1, 2, 3)) if cells else []


def _jobs(upkeep: Upkeep) -> list[Line]:
    cells = [
        (
            each.job,
            each.cluster,
            counted(each.upkept.done, each.upkept.unit),
            count_text(each.upkept.records) if each.upkept.records or not each.upkept.bytes else "-",
            bytes_text(each.upkept.bytes) if each.upkept.bytes else "-",
            took(each.seconds),
        )
        for each in upkeep.jobs
        if each.upkept is not None and each.upkept.done
    ]
    return table(("job", "cluster", "done", "records", "size", "took"), cells, numbers=(3, 4, 5)) if cells else []


def _failures(upkeep: Upkeep) -> Iterator[Line]:
    for each in upkeep.outcomes:
        for error in each.errors:
            yield line(Span("✗ ", Tone.DANGER), f"{each.name}: {error.message}. {error.hint}")


def _is_news(outcome: JobOutcome) -> bool:
    return outcome.upkept is not None and outcome.upkept.done > 0


def _amount(outcome: JobOutcome) -> str:
    upkept = outcome.upkept
    if upkept is None:
        return ""
    # Some jobs write and delete nothing: a segment that is one part already is only marked as one.
    size = f" ({bytes_text(upkept.bytes)})" if upkept.bytes else ""
    return f"{counted(upkept.done, upkept.unit)}{size}"
