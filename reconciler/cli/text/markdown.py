"""A plan as one comment on a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.action_words import mark, title
from reconciler.cli.text.lines import text_of
from reconciler.cli.text.plan_text import back_lines, last_lines
from reconciler.cli.text.sections import Row, Sections, sections
from reconciler.forges.protocol import Marker
from reconciler.planning.actions import Create, Risk
from reconciler.planning.plan_rows import name_of, totals
from reconciler.resources.address import kind_of
from reconciler.runtime.text import count_text, counted, visible

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan


def code(text: str) -> str:
    """Return `text` as a code span. In code no HTML, mention, link or emoji is read."""
    safe = visible(text)
    if safe and "`" not in safe:
        return f"`{safe}`"
    fence = "`" * (_longest_run(safe) + 1)
    pad = " " if safe.startswith("`") or safe.endswith("`") or not safe else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def cell(text: str) -> str:
    """Return `text` as a code span inside a table, where a pipe would end the cell even in code."""
    return code(text).replace("|", "\\|") if text else ""


def row(cells: Iterable[str]) -> str:
    """Return one row of a table; the cells are markdown already."""
    return f"| {' | '.join(cells)} |"


def block(language: str, lines: Sequence[str]) -> list[str]:
    """Return a fenced block that nothing inside it can end."""
    safe = [visible(line) for line in lines]
    fence = "`" * max(3, 1 + max((_longest_run(line) for line in safe), default=0))
    return [f"{fence}{language}", *safe, fence]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return a part that is shut until someone opens it. `summary` is ours."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


# What fits into one comment: names as densely as they can still be read, and how many of them do not fit.


LIMIT: Final = 50_000
"""Bytes of UTF-8 a comment may have; the page itself takes 65,536 characters."""

_A_LINE: Final = 20
"""Names in one line: what does not fit is left out by the line."""
_ROOM: Final = 200
"""Bytes for the line that says what is missing."""


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line of markdown, and how many names are in it."""

    text: str
    names: int


def named_lines(head: str, addresses: Iterable[str]) -> list[NamedLine]:
    """Return addresses in as few bytes as they can be read in: those that begin alike behind one beginning."""
    by_start: dict[str, list[str]] = {}
    for address in addresses:
        cut = max(address.rfind(":"), address.rfind("/")) + 1
        by_start.setdefault(address[:cut], []).append(address[cut:])
    lines: list[NamedLine] = []
    for start, names in by_start.items():
        for position in range(0, len(names), _A_LINE):
            some = names[position : position + _A_LINE]
            text = code(start + some[0]) if len(some) == 1 else f"{code(start)} {code(' '.join(some))}"
            lines.append(NamedLine(f"- {head} {text}", len(some)))
    return lines


def as_many_as_fit(lines: Sequence[NamedLine], room: int) -> list[str]:
    """Return lines up to `room` bytes, and where some do not fit one that says how many names are in those."""
    if sum(len(line.text.encode()) + 1 for line in lines) <= room:
        return [line.text for line in lines]
    kept: list[str] = []
    used = _ROOM
    for position, line in enumerate(lines):
        used += len(line.text.encode()) + 1
        if used > room:
            missing = counted(sum(each.names for each in lines[position:]), "more row", "more rows")
            return [*kept, "", f"**{missing} of danger do not fit here: read the whole of it first.**"]
        kept.append(line.text)
    return kept


# A small plan as a picture: what waits for what.


MOST: Final = 25
"""Actions a picture can hold and still be read."""


def picture(plan: Plan) -> list[str]:
    """Return the plan's order as a mermaid block; nothing where nothing waits or too much happens."""
    by_id = {action.id: action for action in plan.actions}
    pairs = [(before, action.id) for action in plan.actions for before in action.depends_on if before in by_id]
    # What waits for nothing and is not waited for says nothing here.
    shown = [name for name in by_id if any(name in pair for pair in pairs)]
    if not shown or len(by_id) > MOST:
        return []
    names = {name: f"a{position}" for position, name in enumerate(shown)}
    nodes = [f'  {names[name]}["{label(f"{mark(by_id[name])[0]} {title(by_id[name])}")}"]' for name in shown]
    arrows = [f"  {names[before]} --> {names[after]}" for before, after in pairs]
    return [*block("mermaid", ["graph LR", *nodes, *arrows]), ""]


def label(text: str) -> str:
    """Return a label in which every sign that mermaid or the page could read is an entity."""
    return "".join(each if each.isalnum() or each in " /:.-_+~±✗»▶=…" else f"#{ord(each)};" for each in visible(text))


# What of a plan needs no decision, in a comment: all of it, as much as fits, or only its counts.


MOST_ROWS: Final = LIMIT // 20
"""A row takes 20 bytes at least: with more of them there is no need to try."""

_FRAME: Final = 200
"""Bytes of what stands around the rows of one part: its fold, its title, its fence."""

_DIFF_SIGNS: Final = {"+": "+", "✗": "-", "=": "+", "-": "-"}
"""How a line of a diff begins so that the page colours it; anything else is a change."""


def ordinary_rows(found: Sections) -> list[str]:
    """Return every row."""
    return _rows(_ordinary(found), found.drift, found.waiting)


def as_many_rows_as_fit(found: Sections, room: int) -> list[str]:
    """Return rows up to `room` bytes, what drifted and what is half-way first, and counts of the others by kind."""
    room -= len("\n".join(ordinary_counts(found)).encode()) + _FRAME
    kept: list[Sequence[Row]] = []
    for rows in (found.drift, found.waiting, _ordinary(found)):
        count, used = _fitting(rows, room - _FRAME)
        kept.append(rows[:count])
        room -= used + _FRAME if count else 0
    drift, waiting, ordinary = kept
    if not any(kept):
        return ordinary_counts(found)
    rest = _counts(_ordinary(found)[len(ordinary) :], found.drift[len(drift) :], found.waiting[len(waiting) :])
    return [*_rows(ordinary, drift, waiting), *(["And these, which do not fit here:", "", *rest] if rest else [])]


def ordinary_counts(found: Sections) -> list[str]:
    """Return counts by sign, kind and cluster."""
    return _counts(_ordinary(found), found.drift, found.waiting)


def few_counts(found: Sections) -> list[str]:
    """Return ordinary rows as one number: where there are so many clusters that a table of them is too long."""
    rows = (len(_ordinary(found)), "ordinary change", None), (len(found.drift), "drifted field", None)
    others = [counted(number, noun, many) for number, noun, many in rows if number]
    return [f"{', '.join(others)}.", ""] if others else []


def _ordinary(found: Sections) -> Sequence[Row]:
    return (*found.changes, *found.jobs)


def _fitting(rows: Sequence[Row], room: int) -> tuple[int, int]:
    """Return how many rows fit, and how many bytes those take."""
    used = 0
    for count, each in enumerate(rows[:MOST_ROWS]):
        length = sum(len(visible(text).encode()) + len("\n") for text in _diff_lines(each))
        if used + length > room:
            return count, used
        used += length
    return min(len(rows), MOST_ROWS), used


def _rows(ordinary: Sequence[Row], drift: Sequence[Row], waiting: Sequence[Row]) -> list[str]:
    named = (
        (ordinary, counted(len(ordinary), "ordinary change")),
        (drift, counted(len(drift), "drifted field")),
        (waiting, counted(len(waiting), "resource half-way", "resources half-way")),
    )
    parts = [
        line
        for rows, title in named
        if rows
        for line in folded(title, block("diff", [text for each in rows for text in _diff_lines(each)]))
    ]
    return [*parts, ""] if parts else []


def _diff_lines(each: Row) -> list[str]:
    sign = _DIFF_SIGNS.get(each.sign, "!")
    own = "" if sign == each.sign else f"{each.sign} "
    more = each.more if isinstance(each.action, Create) else ()
    cells = (f"{sign} {own}{each.name}", each.what if more else each.whole, each.note, each.blocked, each.after)
    return ["  ".join(filter(None, cells)), *(f"{sign}       {text}" for text in more)]


def _counts(ordinary: Sequence[Row], drift: Sequence[Row], waiting: Sequence[Row]) -> list[str]:
    groups = Counter(
        (each.sign, kind_of(each.action.address), each.action.cluster or "") for each in ordinary if each.action
    )
    lines = [
        row((sign, kind, cell(cluster), count_text(count))) for (sign, kind, cluster), count in sorted(groups.items())
    ]
    table = ["| | kind | cluster | count |", "| --- | --- | --- | ---: |", *lines, ""] if lines else []
    others = [counted(len(drift), "drifted field")] if drift else []
    others += [counted(len(waiting), "resource half-way", "resources half-way")] if waiting else []
    return [*table, *([f"{', '.join(others)}.", ""] if others else [])]


# A plan as one comment on a pull request: danger first and never folded away, never longer than a comment may be.


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
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    return [
        Marker("plan", plan.workspace, plan.environment, plan.digest, _items(plan), plan.approvers).line,
        f"### Plan for {code(name)}",
        "",
        *([text_of(back_lines(plan))] if plan.back_to is not None else []),
        f"**{totals(plan)}**",
        "",
        *_approvals(plan),
    ]


def _approvals(plan: Plan) -> list[str]:
    """Return that an apply will ask for approvers: who reads the comment is who approves."""
    asked = [each.message for each in plan.warnings if each.is_of_approval]
    return [line for message in asked for line in (f"**{cell(message)}**", "")]


def _items(plan: Plan) -> int:
    return len(plan.actions) + len(plan.waiting) + len(plan.errors)


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
