"""A plan as a comment on a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from reconciler.cli.text.action_words import choose_action_mark, name_action
from reconciler.cli.text.amounts import format_json
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.plan_text import NAMED, format_plan_totals, format_rollback_warning, list_allowances
from reconciler.cli.text.sections import PlanRow, Sections, sort_plan_rows
from reconciler.forges.protocol import Marker
from reconciler.planning.actions import Create, Risk, is_dangerous
from reconciler.planning.plan import SHORT_COMMIT
from reconciler.planning.plan_rows import find_kind_name, format_totals
from reconciler.resources.address import kind_of
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_invisible, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan
    from reconciler.process import Forge


def format_code_span(text: str) -> str:
    """Format a code span, in which forges interpret nothing."""
    safe = escape_invisible(text)
    if safe and "`" not in safe:
        return f"`{safe}`"
    fence = "`" * (_measure_longest_run(safe) + 1)
    pad = " " if safe.startswith("`") or safe.endswith("`") or not safe else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def format_code_cell(text: str) -> str:
    """Format a code span for a table, with pipes escaped."""
    return format_code_span(text).replace("|", "\\|") if text else ""


_PLAIN_WORD: Final = re.compile(r"\(?[^\W\d_]+(?:['-][^\W\d_]+)*[.,:;)]*|\(?\d+(?:[.,]\d+)*[.,:;)%]*|[→±×]|…\)?")
"""A word in which forges interpret no Markdown, mention, link or emoji."""


def format_sentence(text: str) -> str:
    """Format a sentence with code spans for words that forges could interpret."""
    parts: list[str] = []
    quoted: list[str] = []
    for word in [*escape_invisible(text).split(" "), ""]:
        if word and not _PLAIN_WORD.fullmatch(word):
            quoted.append(word)
            continue
        if quoted:
            whole = " ".join(quoted)
            end = whole[len(whole.rstrip(".,:;")) :]
            parts.append(format_code_span(whole.removesuffix(end)) + end)
            quoted = []
        parts.append(word)
    return " ".join(filter(None, parts))


def format_table_row(cells: Iterable[str]) -> str:
    """Format a table row of Markdown cells."""
    return f"| {' | '.join(cells)} |"


def fence_block(language: str, lines: Sequence[str]) -> list[str]:
    """Format a code block; its fence is longer than any in `lines`."""
    safe = [escape_invisible(line) for line in lines]
    fence = "`" * max(3, 1 + max((_measure_longest_run(line) for line in safe), default=0))
    return [f"{fence}{language}", *safe, fence]


def build_fold(summary: str, lines: Sequence[str]) -> list[str]:
    """Format a `<details>` element; `summary` is not escaped."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _measure_longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


LIMIT: Final = 50_000
"""Largest comment in bytes; GitHub accepts 65,536 characters."""

_NAMES_PER_LINE: Final = 20
_RESERVED_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line of Markdown, and its number of names."""

    text: str
    names: int


def group_addresses(head: str, addresses: Iterable[str]) -> list[NamedLine]:
    """Format addresses, those with a common prefix on one line."""
    by_start: dict[str, list[str]] = {}
    for address in addresses:
        cut = max(address.rfind(":"), address.rfind("/")) + 1
        by_start.setdefault(address[:cut], []).append(address[cut:])
    lines: list[NamedLine] = []
    for start, names in by_start.items():
        for position in range(0, len(names), _NAMES_PER_LINE):
            some = names[position : position + _NAMES_PER_LINE]
            text = (
                format_code_span(start + some[0])
                if len(some) == 1
                else f"{format_code_span(start)} {format_code_span(' '.join(some))}"
            )
            lines.append(NamedLine(f"- {head} {text}", len(some)))
    return lines


def fit_names(lines: Sequence[NamedLine], room: int) -> list[str]:
    """Return lines up to `room` bytes; the last line counts omitted names."""
    if sum(len(line.text.encode()) + 1 for line in lines) <= room:
        return [line.text for line in lines]
    texts: list[str] = []
    used = _RESERVED_BYTES
    for position, line in enumerate(lines):
        used += len(line.text.encode()) + 1
        if used > room:
            missing = pluralize(sum(omitted.names for omitted in lines[position:]), "more row", "more rows")
            return [*texts, "", f"**{missing} of danger do not fit here: read the whole of it first.**"]
        texts.append(line.text)
    return texts


MOST: Final = 25


def draw_dependencies(plan: Plan) -> list[str]:
    """Draw dependencies as Mermaid; empty if none, or too many."""
    by_id = {action.id: action for action in plan.actions}
    pairs = [(before, action.id) for action in plan.actions for before in action.depends_on if before in by_id]
    shown = [name for name in by_id if any(name in pair for pair in pairs)]
    if not shown or len(by_id) > MOST:
        return []
    names = {name: f"a{position}" for position, name in enumerate(shown)}
    nodes = [
        f'  {names[name]}["{escape_mermaid_label(f"{choose_action_mark(by_id[name])[0]} {name_action(by_id[name])}")}"]'
        for name in shown
    ]
    arrows = [f"  {names[before]} --> {names[after]}" for before, after in pairs]
    return [*fence_block("mermaid", ["graph LR", *nodes, *arrows]), ""]


def escape_mermaid_label(text: str) -> str:
    """Escape characters that Mermaid or HTML could interpret."""
    return "".join(
        character if character.isalnum() or character in " /:.-_+~±≠»▶=…" else f"#{ord(character)};"
        for character in escape_invisible(text)
    )


MOST_ROWS: Final = LIMIT // 20
"""Maximum rows in a comment: each takes at least 20 bytes."""

_FOLD_BYTES: Final = 200
_DIFF_SIGNS: Final = {"+": "+", "-": "-", "=": "+", "≠": "-"}


def format_ordinary_rows(parts: Sections) -> list[str]:
    """Format ordinary, drifted and waiting rows."""
    return _fold_rows(_list_ordinary_rows(parts), parts.drift, parts.waiting)


def fit_rows(parts: Sections, room: int) -> list[str]:
    """Format rows of at most `room` bytes, drifted and waiting ones first; count the rest."""
    room -= len("\n".join(format_row_counts(parts)).encode()) + _FOLD_BYTES
    chosen: list[Sequence[PlanRow]] = []
    for rows in (parts.drift, parts.waiting, _list_ordinary_rows(parts)):
        count, used = _count_fitting(rows, room - _FOLD_BYTES)
        chosen.append(rows[:count])
        room -= used + _FOLD_BYTES if count else 0
    drift, waiting, ordinary = chosen
    if not any(chosen):
        return format_row_counts(parts)
    rest = _format_counts(
        _list_ordinary_rows(parts)[len(ordinary) :], parts.drift[len(drift) :], parts.waiting[len(waiting) :]
    )
    return [
        *_fold_rows(ordinary, drift, waiting),
        *(["And these, which do not fit here:", "", *rest] if rest else []),
    ]


def format_row_counts(parts: Sections) -> list[str]:
    """Count rows by sign, kind and cluster."""
    return _format_counts(_list_ordinary_rows(parts), parts.drift, parts.waiting)


def format_row_totals(parts: Sections) -> list[str]:
    """Count ordinary and drifted rows in one line."""
    rows = (len(_list_ordinary_rows(parts)), "ordinary change", None), (len(parts.drift), "drifted field", None)
    others = [pluralize(number, noun, many) for number, noun, many in rows if number]
    return [f"{', '.join(others)}.", ""] if others else []


def _list_ordinary_rows(parts: Sections) -> Sequence[PlanRow]:
    return (*parts.changes, *parts.jobs)


def _count_fitting(rows: Sequence[PlanRow], room: int) -> tuple[int, int]:
    used = 0
    for count, entry in enumerate(rows[:MOST_ROWS]):
        length = sum(len(escape_invisible(text).encode()) + len("\n") for text in _format_diff(entry))
        if used + length > room:
            return count, used
        used += length
    return min(len(rows), MOST_ROWS), used


def _fold_rows(ordinary: Sequence[PlanRow], drift: Sequence[PlanRow], waiting: Sequence[PlanRow]) -> list[str]:
    named = (
        (ordinary, pluralize(len(ordinary), "ordinary change")),
        (drift, pluralize(len(drift), "drifted field")),
        (waiting, pluralize(len(waiting), "resource unfinished", "resources unfinished")),
    )
    parts = [
        line
        for rows, title in named
        if rows
        for line in build_fold(title, fence_block("diff", [text for entry in rows for text in _format_diff(entry)]))
    ]
    return [*parts, ""] if parts else []


def _format_diff(entry: PlanRow) -> list[str]:
    sign = _DIFF_SIGNS.get(entry.sign, "!")
    own = "" if sign == entry.sign else f"{entry.sign} "
    more = entry.more if isinstance(entry.action, Create) else ()
    cells = (
        f"{sign} {own}{entry.name}",
        entry.what if more else entry.full_text,
        entry.note,
        entry.blocked,
        entry.after,
    )
    return ["  ".join(filter(None, cells)), *(f"{sign}       {text}" for text in more)]


def _format_counts(ordinary: Sequence[PlanRow], drift: Sequence[PlanRow], waiting: Sequence[PlanRow]) -> list[str]:
    groups = Counter(
        (entry.sign, kind_of(entry.action.address), entry.action.cluster or "") for entry in ordinary if entry.action
    )
    lines = [
        format_table_row((sign, kind, format_code_cell(cluster), format_count(count)))
        for (sign, kind, cluster), count in sorted(groups.items())
    ]
    table = ["| | kind | cluster | count |", "| --- | --- | --- | ---: |", *lines, ""] if lines else []
    others = [pluralize(len(drift), "drifted field")] if drift else []
    others += [pluralize(len(waiting), "resource unfinished", "resources unfinished")] if waiting else []
    return [*table, *([f"{', '.join(others)}.", ""] if others else [])]


def format_plan_comment(plan: Plan, forge: Forge | None = None, today: date | None = None) -> str:
    """Format a plan as a comment of at most `LIMIT` bytes.

    Ordinary changes are reduced to counts before dangers are shortened.
    """
    plan_sections = sort_plan_rows(plan)
    text = ""
    for parts in _list_comment_forms(plan, plan_sections, forge, today):
        text = "\n".join(parts) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
    return text


def _list_comment_forms(
    plan: Plan, plan_sections: Sections, forge: Forge | None, today: date | None
) -> Iterator[list[str]]:
    head, errors = _format_head(plan, forge), _format_errors(plan_sections.errors)
    if len(plan_sections.danger) < MOST_ROWS:
        danger, tail = _format_danger(plan_sections.danger, forge, with_words=True), _format_tail(plan, today)
        if len(plan_sections.changes) + len(plan_sections.jobs) < MOST_ROWS:
            rest = format_ordinary_rows(plan_sections)
            yield [*head, *errors, *danger, *rest, *draw_dependencies(plan), *tail]
            yield [*head, *errors, *danger, *rest, *tail]
        room = LIMIT - len("\n".join([*head, *errors, *danger, *tail]).encode())
        yield [*head, *errors, *danger, *fit_rows(plan_sections, room), *tail]
    for rest in (format_row_counts(plan_sections), format_row_totals(plan_sections)):
        room = LIMIT - len("\n".join([*head, *rest, *_format_footer(plan)]).encode())
        if len(plan_sections.danger) < MOST_ROWS:
            yield [
                *head,
                *errors,
                *_format_danger(plan_sections.danger, with_words=False),
                *rest,
                *_format_footer(plan),
            ]
        yield [*head, *_format_addresses(plan_sections, room), *rest, *_format_footer(plan)]


def _format_addresses(plan_sections: Sections, room: int) -> list[str]:
    lines = [
        NamedLine(line, 0) for line in _format_heading(len(plan_sections.errors), "Errors") if plan_sections.errors
    ]
    lines += [NamedLine(f"- {format_code_span(entry.name)}", 1) for entry in plan_sections.errors]
    lines += [
        NamedLine(line, 0)
        for line in ("", *_format_heading(len(plan_sections.danger), "⚠ Danger"))
        if plan_sections.danger
    ]
    by_head: dict[str, list[str]] = {}
    for entry in sorted(plan_sections.danger, key=_rank_danger):
        verb = find_kind_name(entry.action) if entry.action else ""
        by_head.setdefault(
            f"{format_code_span(entry.sign)} {verb}{' **blocked**' if _is_blocked(entry) else ''}", []
        ).append(entry.name)
    for head, names in by_head.items():
        lines += group_addresses(head, names)
    return [*fit_names(lines, room), ""]


def _rank_danger(entry: PlanRow) -> tuple[bool, int]:
    risk = entry.action.risk if entry.action else Risk.NONE
    return not _is_blocked(entry), -list(Risk).index(risk)


def _format_heading(count: int, title: str) -> list[str]:
    return [f"#### {title} ({format_count(count)})", ""]


def _format_head(plan: Plan, forge: Forge | None) -> list[str]:
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    return [
        Marker(
            "plan",
            plan.workspace,
            plan.environment,
            plan.digest,
            _count_items(plan),
            plan.approvers,
            _find_verdict(plan),
        ).line,
        f"### Plan for {format_code_span(name)}",
        "",
        *([to_plain_text(format_rollback_warning(plan))] if plan.back_to is not None else []),
        f"**{format_totals(plan)}**{_link_commit_and_run(forge)}",
        "",
        *_format_approvals(plan),
    ]


def _link_commit_and_run(forge: Forge | None) -> str:
    if forge is None or not forge.commit:
        return ""
    run = f" · [run]({forge.run})" if forge.run else ""
    return f" · commit [{format_code_span(forge.commit[:SHORT_COMMIT])}]({forge.commits}{forge.commit}){run}"


def _format_approvals(plan: Plan) -> list[str]:
    messages = [warning.message for warning in plan.warnings if warning.concerns_approval]
    return [line for message in messages for line in (f"**{format_code_cell(message)}**", "")]


def _find_verdict(plan: Plan) -> str:
    if plan.errors:
        return "errors"
    return "blocked" if plan.blocked else "danger" if any(map(is_dangerous, plan.actions)) else ""


def _count_items(plan: Plan) -> int:
    return len(plan.actions) + len(plan.waiting) + len(plan.errors)


def _format_errors(rows: Sequence[PlanRow]) -> list[str]:
    if not rows:
        return []
    lines = [f"- {format_code_span(entry.name)}<br>{format_sentence(entry.full_text)}" for entry in rows]
    return [f"#### Errors ({format_count(len(rows))})", "", *lines, ""]


def _format_danger(rows: Sequence[PlanRow], forge: Forge | None = None, *, with_words: bool) -> list[str]:
    if not rows:
        return []
    lines = [_format_danger_item(entry, forge) if with_words else _format_brief_danger(entry) for entry in rows]
    return [f"#### ⚠ Danger ({format_count(len(rows))})", "", *lines, ""]


def _format_danger_item(entry: PlanRow, forge: Forge | None) -> str:
    blocked = format_sentence(entry.blocked)
    texts = [", ".join(format_code_span(text) for text in (entry.what, *entry.more)), format_sentence(entry.note)]
    texts.append(f"**{blocked}**" if blocked and _is_blocked(entry) else blocked)
    return f"- {format_code_span(entry.sign)} {_link_address(entry, forge)}<br>{' · '.join(filter(None, texts))}"


def _link_address(entry: PlanRow, forge: Forge | None) -> str:
    name, source = format_code_span(entry.name), None if entry.action is None else entry.action.source
    if forge is None or not source:
        return name
    path, _, number = source.rpartition(":")
    return f"[{name}]({forge.files}{quote(path, errors='surrogateescape')}#L{number})" if number.isdecimal() else name


def _format_brief_danger(entry: PlanRow) -> str:
    return (
        f"- {format_code_span(entry.sign)} {format_code_span(entry.name)}{' **blocked**' if _is_blocked(entry) else ''}"
    )


def _is_blocked(entry: PlanRow) -> bool:
    return entry.action is not None and entry.action.blocked is not None


def _format_tail(plan: Plan, today: date | None) -> list[str]:
    # The comment's head shows the first line.
    _, *rest = to_plain_text(format_plan_totals(plan)).splitlines()
    return [*_format_allowances(plan, today), *(fence_block("", rest) if rest else []), *_format_footer(plan)]


_ALLOWANCE_DAYS: Final = 14


def _format_allowances(plan: Plan, today: date | None) -> list[str]:
    allows = list_allowances(plan)
    if not allows or today is None:
        return []
    until = today + timedelta(days=_ALLOWANCE_DAYS)
    rows = [f'      - {{action: {format_json(allow)}, until: {until}, reason: "why"}}' for allow in allows[:NAMED]]
    rows += [f"      # and {format_count(len(allows) - NAMED)} more"] if len(allows) > NAMED else []
    title = "Allow it in this pull request: add this to reconciler.yaml, with the reason"
    return [*build_fold(title, fence_block("yaml", ["spec:", "  guards:", "    allow:", *rows])), ""]


def _format_footer(plan: Plan) -> list[str]:
    return [
        "",
        f"<sub>digest {format_code_span(plan.digest[:8])} · created by reconciler {format_code_span(plan.tool)}</sub>",
    ]
