"""A plan as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from reconciler.cli.text.lines import (
    EMPTY,
    Line,
    Span,
    Tone,
    align_rows,
    break_lines,
    make_line,
    measure_width,
    pack_cells,
)
from reconciler.cli.text.sections import PlanRow, Sections, sort_plan_rows
from reconciler.planning.actions import Action, Delete, Reason
from reconciler.planning.allowances import group_allowances
from reconciler.planning.plan import SHORT_COMMIT
from reconciler.planning.plan_rows import format_totals
from reconciler.resources.address import kind_of
from reconciler.runtime.text import format_count, format_elapsed, pluralize

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan


_MAX_COLUMN_WIDTHS: Final = (72, 48, 48, 28, 48)
_MAX_NAMES_SHARE: Final = 0.45
NAMED: Final = 20
_SHORT_DIGEST: Final = 8


class ReadStatistics(Protocol):
    """Counts and duration of cluster reads."""

    @property
    def topics(self) -> int:
        """Number of topics read."""
        ...

    @property
    def clusters(self) -> int:
        """Number of clusters read."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds spent on reading."""
        ...

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of unreadable clusters."""
        ...


def format_plan(plan: Plan, reading: ReadStatistics | None = None, *, width: int | None = None) -> list[Line]:
    """Format a plan, wrapped at `width`; an order's plan has no header."""
    plan_sections = sort_plan_rows(plan)
    head = [_format_header(plan, reading), *format_rollback_warning(plan)] if plan.workspace else []
    lines = [*break_lines(head, width), EMPTY] if head else []
    for name, rows, tone in _order_sections(plan_sections):
        if rows:
            lines.append(make_line(Span(f"{name:<8}{format_count(len(rows))}", tone)))
            lines.extend(_format_section(rows, width))
    if plan.unmanaged:
        lines.append(
            make_line(Span(f"{pluralize(len(plan.unmanaged), 'resource')} not in the files, left alone", Tone.QUIET))
        )
    if lines and lines[-1] != EMPTY:
        lines.append(EMPTY)
    return [*lines, *format_plan_totals(plan, width)]


def format_rollback_warning(plan: Plan) -> list[Line]:
    """Format a warning if the plan restores an earlier state."""
    if plan.back_to is None:
        return []
    where = f"Back to what was applied as state #{plan.back_to}. "
    return [make_line(Span(where, Tone.DANGER), "Change the files too, or the next plan undoes it.")]


def format_plan_totals(plan: Plan, width: int | None = None) -> list[Line]:
    """Format counts, digest, and the `--allow` options for blocked actions."""
    counts = format_totals(plan, with_blocked=False)
    lines = [make_line(Span("Plan: ", Tone.STRONG), counts, f" · digest {plan.digest[:_SHORT_DIGEST]}")]
    allows = list_allowances(plan)
    allows += [plan.applied.allow] if plan.applied and plan.applied.allow else []
    if allows:
        # Without a blocked action, older files block the apply.
        what = "Allow once with" if plan.blocked else "Apply is blocked; allow once with"
        flags = [f"--allow {shlex.quote(name)}" for name in allows]
        lines.append(make_line(Span(f"{what}: ", Tone.DANGER), _join_first(flags)))
        if width is not None and sum(measure_width(span.text) for span in lines[-1]) > width:
            shown = _join_first(flags, " \\\n  ").split("\n")
            lines[-1:] = [
                make_line(Span(f"{what}:", Tone.DANGER)),
                make_line("  ", shown[0]),
                *map(make_line, shown[1:]),
            ]
    if stuck := [action.id for action in plan.blocked if action.blocked and action.blocked.allow is None]:
        lines.append(make_line(Span("No --allow lifts: ", Tone.DANGER), _join_first(stuck)))
    return break_lines([*lines, *_format_alternative(plan)], width)


def _format_alternative(plan: Plan) -> list[Line]:
    deletes = [action for action in plan.blocked if kind_of(action.address) == "topic"]
    alternatives = [(action, block.instead) for action in deletes if (block := action.blocked) and block.instead]
    if not alternatives:
        return []
    (action, yaml), more = alternatives[0], len(alternatives) - 1
    others = f" (and {pluralize(more, 'more topic')} likewise)" if more else ""
    text = f"to keep its records in object storage declare, in place of {action.id}{others}:  {yaml}"
    return [make_line(Span("Safer: ", Tone.STRONG), text)]


def _join_first(words: list[str], gap: str = " ") -> str:
    more = len(words) - NAMED
    return gap.join(words[:NAMED]) + (f" … and {format_count(more)} more" if more > 0 else "")


def list_allowances(plan: Plan) -> list[str]:
    """List the values of `--allow` that unblock a plan. Similar ones become a pattern."""
    allowed = {action.blocked.allow: action for action in plan.blocked if action.blocked and action.blocked.allow}
    # Patterns do not lift `guards.maxDeletes`, which counts all deletes outside destroys.
    others = [name for name, action in allowed.items() if not _is_counted(action)]
    short = group_allowances(others)
    return list(allowed) if short == others else [*short, *(name for name in allowed if name not in others)]


def _is_counted(action: Action) -> bool:
    return isinstance(action, Delete) and Reason.DESTROYED not in action.reasons


def _format_header(plan: Plan, reading: ReadStatistics | None) -> Line:
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    parts = [f"state #{plan.base.serial}" if plan.base else "no state yet"]
    parts += [f"desired {plan.git_commit[:SHORT_COMMIT]}"] if plan.git_commit and plan.back_to is None else []
    if reading is not None:
        where = f"{pluralize(reading.topics, 'topic')} on {pluralize(reading.clusters, 'cluster')}"
        parts.append(f"read {where} in {format_elapsed(reading.seconds)}")
        parts += [f"not read: {', '.join(reading.unread)}"] if reading.unread else []
    return make_line(Span(f"Workspace {name}", Tone.STRONG), Span("".join(f" · {part}" for part in parts), Tone.QUIET))


def _order_sections(plan_sections: Sections) -> tuple[tuple[str, tuple[PlanRow, ...], Tone], ...]:
    return (
        ("ERRORS", plan_sections.errors, Tone.DANGER),
        ("DANGER", plan_sections.danger, Tone.DANGER),
        ("CHANGES", plan_sections.changes, Tone.STRONG),
        ("JOBS", plan_sections.jobs, Tone.STRONG),
        ("DRIFT", plan_sections.drift, Tone.STRONG),
        ("WAITING", plan_sections.waiting, Tone.STRONG),
    )


def _format_section(rows: Sequence[PlanRow], width: int | None) -> list[Line]:
    cells = [cells for row in rows for cells in (_build_row_cells(row), *map(_build_detail_cells, row.more))]
    columns = [column for column in range(len(cells[0])) if any(row[column].text for row in cells)]
    limits = [0, *_MAX_COLUMN_WIDTHS]
    lines = align_rows(
        [[row[column] for column in columns] for row in cells], limits=[limits[c] or 99 for c in columns], indent="  "
    )
    if width is None:
        return lines
    longest = max(measure_width(row.name) for row in rows)
    return [part for whole, row in zip(lines, cells, strict=True) for part in _wrap_row(whole, row, width, longest)]


def _build_detail_cells(text: str) -> list[Span]:
    return [Span(""), Span(text), Span(""), Span(""), Span("")]


def _build_row_cells(row: PlanRow) -> list[Span]:
    return [
        Span(f"{row.sign} {row.name}", row.tone),
        Span(row.what),
        Span(row.note, Tone.CHANGE if row.note else Tone.PLAIN),
        Span(row.blocked, Tone.DANGER if row.blocked.startswith("blocked") else Tone.QUIET),
        Span(row.after, Tone.QUIET),
    ]


def _wrap_row(whole: Line, cells: Sequence[Span], width: int, longest: int) -> list[Line]:
    if sum(measure_width(span.text) for span in whole) <= width:
        return [whole]
    name, *rest = cells
    column = len("  + ") + longest + len("  ")
    longest_word = max((measure_width(word) for cell in rest for word in cell.text.split()), default=0)
    has_column = column <= width * _MAX_NAMES_SHARE and column + len("  ") + longest_word <= width
    indent = column if has_column else len("  + ") + 2
    body = pack_cells(rest, width - indent)
    if has_column:
        first = Span(name.text + " " * (column - 2 - measure_width(name.text)), name.tone)
        return [make_line("  ", first, *body[0]), *(make_line(" " * indent, *part) for part in body[1:])]
    return [*([make_line("  ", name)] if name.text else []), *(make_line(" " * indent, *part) for part in body)]
