"""A plan as one comment on a pull request: danger first and never folded away, never longer than a comment may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import count_text
from reconciler.cli.render.comments import LIMIT, NamedLine, as_many_as_fit, named_lines
from reconciler.cli.render.lines import text_of
from reconciler.cli.render.markdown import block, cell, code, comment_safe, row
from reconciler.cli.render.mermaid import picture
from reconciler.cli.render.ordinary_markdown import (
    MOST_ROWS,
    as_many_rows_as_fit,
    few_counts,
    ordinary_counts,
    ordinary_rows,
)
from reconciler.cli.render.plan_text import back_lines, last_lines, totals
from reconciler.cli.render.sections import Row, Sections, sections
from reconciler.planning.actions import Risk
from reconciler.planning.document.rows import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.plan import Plan


def plan_markdown(plan: Plan) -> str:
    """Return the comment. What is ordinary shrinks to counts before anything dangerous loses a word."""
    found = sections(plan)
    text = ""
    for parts in _from_full_to_bare(plan, found):
        text = "\n".join(parts) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
    return text


def _from_full_to_bare(plan: Plan, found: Sections) -> Iterator[list[str]]:
    """Yield the comment in ever shorter forms; the last one fits whatever the plan."""
    head, errors = _head(plan), _errors(found.errors)
    if len(found.danger) < MOST_ROWS:
        danger, tail = _danger(found.danger, with_words=True), _tail(plan)
        if len(found.changes) + len(found.jobs) < MOST_ROWS:
            rest = ordinary_rows(found)
            yield [*head, *errors, *danger, *rest, *picture(plan), *tail]
            yield [*head, *errors, *danger, *rest, *tail]
        room = LIMIT - len("\n".join([*head, *errors, *danger, *tail]).encode())
        yield [*head, *errors, *danger, *as_many_rows_as_fit(found, room), *tail]
    for rest in (ordinary_counts(found), few_counts(found)):
        room = LIMIT - len("\n".join([*head, *rest, *_end(plan)]).encode())
        if len(found.danger) < MOST_ROWS:
            yield [*head, *errors, *_danger(found.danger, with_words=False), *rest, *_end(plan)]
        # Every address is named for as long as it fits; a line says how many do not.
        yield [*head, *_named(found, room), *rest, *_end(plan)]


def _named(found: Sections, room: int) -> list[str]:
    """Return errors and dangers as nothing but where and who: addresses that begin alike share a line."""
    lines = [NamedLine(line, 0) for line in _heading(len(found.errors), "Errors") if found.errors]
    lines += [NamedLine(f"- {code(each.name)}", 1) for each in found.errors]
    lines += [NamedLine(line, 0) for line in ("", *_heading(len(found.danger), "⚠ Danger")) if found.danger]
    by_head: dict[str, list[str]] = {}
    for each in sorted(found.danger, key=_gravest_first):
        verb = name_of(each.action) if each.action else ""
        by_head.setdefault(f"{each.sign} {verb}{' **blocked**' if _is_blocked(each) else ''}", []).append(each.name)
    for head, names in by_head.items():
        lines += named_lines(head, names)
    return [*as_many_as_fit(lines, room), ""]


def _gravest_first(each: Row) -> tuple[bool, int]:
    risk = each.action.risk if each.action else Risk.NONE
    return not _is_blocked(each), -list(Risk).index(risk)


def _heading(count: int, title: str) -> list[str]:
    return [f"#### {title} ({count_text(count)})", ""]


def _head(plan: Plan) -> list[str]:
    environment = f" environment={comment_safe(plan.environment)}" if plan.environment else ""
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    return [
        f"<!-- reconciler:plan workspace={comment_safe(plan.workspace)}{environment} digest={plan.digest} -->",
        f"### Plan for {code(name)}",
        "",
        *([text_of(back_lines(plan))] if plan.back_to is not None else []),
        f"**{totals(plan)}**",
        "",
    ]


def _errors(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = [row((cell(each.name), cell(each.whole))) for each in rows]
    return [f"#### Errors ({len(rows)})", "", "| where | what |", "| --- | --- |", *lines, ""]


def _danger(rows: Sequence[Row], *, with_words: bool) -> list[str]:
    if not rows:
        return []
    head = [f"#### ⚠ Danger ({count_text(len(rows))})", ""]
    if not with_words:
        return [*head, *(_brief(each) for each in rows), ""]
    return [*head, "| | address | change | why | |", "| --- | --- | --- | --- | --- |", *map(_whole, rows), ""]


def _whole(each: Row) -> str:
    last = f"**{cell(each.blocked)}**" if _is_blocked(each) else cell(each.blocked)
    return row((each.sign, cell(each.name), cell(each.whole), cell(each.note), last))


def _brief(each: Row) -> str:
    return f"- {each.sign} {code(each.name)}{' **blocked**' if _is_blocked(each) else ''}"


def _is_blocked(each: Row) -> bool:
    return each.action is not None and each.action.blocked is not None


def _tail(plan: Plan) -> list[str]:
    return [*block("", text_of(last_lines(plan)).splitlines()), *_end(plan)[1:]]


def _end(plan: Plan) -> list[str]:
    return ["", f"<sub>digest {code(plan.digest[:8])} · made by reconciler {code(plan.tool)}</sub>"]
