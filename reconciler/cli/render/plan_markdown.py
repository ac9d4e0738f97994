"""A plan as one comment on a pull request: danger first and never folded away, never longer than a comment may be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.comments import LIMIT, NamedLine, as_many_as_fit, named_lines
from reconciler.cli.render.lines import text_of
from reconciler.cli.render.markdown import block, cell, code, comment_safe, folded, row
from reconciler.cli.render.mermaid import picture
from reconciler.cli.render.plan_text import back_lines, last_lines, totals
from reconciler.cli.render.sections import Row, Sections, sections
from reconciler.planning.actions import Risk
from reconciler.planning.document.rows import name_of
from reconciler.resources.address import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.plan import Plan

_MOST_ROWS: Final = LIMIT // 20
"""A row takes 20 bytes at least: with more of them there is no need to try."""

_DIFF_SIGNS: Final = {"+": "+", "✗": "-", "=": "+", "-": "-"}
"""How a line of a diff begins so that the page colours it; anything else is a change."""


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
    ordinary = (*found.changes, *found.jobs)
    if len(found.danger) < _MOST_ROWS:
        danger, tail = _danger(found.danger, with_words=True), _tail(plan)
        if len(ordinary) < _MOST_ROWS:
            rest = _rest(found, ordinary)
            yield [*head, *errors, *danger, *rest, *picture(plan), *tail]
            yield [*head, *errors, *danger, *rest, *tail]
        yield [*head, *errors, *danger, *_counts(found, ordinary), *tail]
    for rest in (_counts(found, ordinary), _few_counts(found, ordinary)):
        room = LIMIT - len("\n".join([*head, *rest, *_end(plan)]).encode())
        if len(found.danger) < _MOST_ROWS:
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
    lines = [row((cell(each.name), cell(each.what))) for each in rows]
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
    return row((each.sign, cell(each.name), cell(each.what), cell(each.note), last))


def _brief(each: Row) -> str:
    return f"- {each.sign} {code(each.name)}{' **blocked**' if _is_blocked(each) else ''}"


def _is_blocked(each: Row) -> bool:
    return each.action is not None and each.action.blocked is not None


def _rest(found: Sections, ordinary: Sequence[Row]) -> list[str]:
    parts: list[str] = []
    if ordinary:
        parts += folded(
            counted(len(ordinary), "ordinary change"), block("diff", [_diff_line(each) for each in ordinary])
        )
    for rows, noun in ((found.drift, "drifted field"), (found.waiting, "resource half-way")):
        if rows:
            title = counted(len(rows), noun, "resources half-way" if rows is found.waiting else None)
            parts += folded(title, block("diff", [_diff_line(each) for each in rows]))
    return [*parts, ""] if parts else []


def _diff_line(each: Row) -> str:
    sign = _DIFF_SIGNS.get(each.sign, "!")
    own = "" if sign == each.sign else f"{each.sign} "
    return "  ".join(
        part for part in (f"{sign} {own}{each.name}", each.what, each.note, each.blocked, each.after) if part
    )


def _counts(found: Sections, ordinary: Sequence[Row]) -> list[str]:
    """Return ordinary rows as counts by sign, kind and cluster."""
    groups = Counter(
        (each.sign, kind_of(each.action.address), each.action.cluster or "") for each in ordinary if each.action
    )
    lines = [
        row((sign, kind, cell(cluster), count_text(count))) for (sign, kind, cluster), count in sorted(groups.items())
    ]
    table = ["| | kind | cluster | count |", "| --- | --- | --- | ---: |", *lines, ""] if lines else []
    others = [counted(len(found.drift), "drifted field")] if found.drift else []
    others += [counted(len(found.waiting), "resource half-way", "resources half-way")] if found.waiting else []
    return [*table, *([f"{', '.join(others)}.", ""] if others else [])]


def _few_counts(found: Sections, ordinary: Sequence[Row]) -> list[str]:
    """Return ordinary rows as one number: where there are so many clusters that a table of them is too long."""
    rows = (len(ordinary), "ordinary change", None), (len(found.drift), "drifted field", None)
    others = [counted(number, noun, many) for number, noun, many in rows if number]
    return [f"{', '.join(others)}.", ""] if others else []


def _tail(plan: Plan) -> list[str]:
    return [*block("", text_of(last_lines(plan)).splitlines()), *_end(plan)[1:]]


def _end(plan: Plan) -> list[str]:
    return ["", f"<sub>digest {code(plan.digest[:8])} · made by reconciler {code(plan.tool)}</sub>"]
