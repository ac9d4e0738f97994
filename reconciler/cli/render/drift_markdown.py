"""Drift as one comment: what fails is never folded away, never longer than a comment may be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.comments import LIMIT, NamedLine, as_many_as_fit, named_lines
from reconciler.cli.render.drift_text import what_of
from reconciler.cli.render.markdown import block, cell, code, comment_safe, folded, row
from reconciler.workflow.drifting.finding import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.workflow.drift import Drifted
    from reconciler.workflow.drifting.finding import Found


def drift_markdown(drifted: Drifted) -> str:
    """Return the comment. What fails nobody shrinks to counts before anything that fails loses a word."""
    text = ""
    for parts in _from_full_to_bare(drifted):
        text = "\n".join(parts) + "\n"
        if len(text.encode()) <= LIMIT:
            return text
    return text


def _from_full_to_bare(drifted: Drifted) -> Iterator[list[str]]:
    """Yield the comment in ever shorter forms; the last one fits whatever was found."""
    fails = drifted.failing
    marks = {found.fingerprint for found in fails}
    rest = [found for found in drifted.findings if found.fingerprint not in marks]
    head, errors = _head(drifted), _errors(drifted)
    yield [*head, *errors, *_table(fails), *_folded(rest)]
    yield [*head, *errors, *_table(fails)]
    named = [NamedLine(line, 0) for line in errors]
    for kind in CLASSES:
        named += named_lines(kind, [found.address for found in fails if found.kind == kind])
    room = LIMIT - len("\n".join(head).encode()) - 2
    yield [*head, *as_many_as_fit(named, room)]


def _head(drifted: Drifted) -> list[str]:
    plan = drifted.planned.plan
    environment = f" environment={comment_safe(plan.environment)}" if plan.environment else ""
    name = f"{plan.workspace} ({plan.environment})" if plan.environment else plan.workspace
    counts = Counter(found.kind for found in drifted.findings)
    said = ", ".join(f"{count_text(counts[kind])} {kind}" for kind in CLASSES if counts[kind])
    errors = [counted(len(drifted.errors), "error")] if drifted.errors else []
    return [
        f"<!-- reconciler:drift workspace={comment_safe(plan.workspace)}{environment} -->",
        f"### Drift of {code(name)}",
        "",
        f"**{' · '.join([said or 'nothing found', *errors])}**",
        "",
    ]


def _errors(drifted: Drifted) -> list[str]:
    lines = [
        f"- {code(found.source or found.address or 'workspace')} {code(f'{found.message}. {found.hint}')}"
        for found in drifted.errors
    ]
    return ["#### Not compared", "", *lines, ""] if lines else []


def _table(fails: Sequence[Found]) -> list[str]:
    lines = [row((found.kind, cell(found.address), cell(what_of(found)))) for found in fails]
    return ["| | address | what |", "| --- | --- | --- |", *lines, ""] if lines else []


def _folded(rest: Sequence[Found]) -> list[str]:
    if not rest:
        return []
    lines = [f"{found.kind}  {found.address}  {what_of(found)}" for found in rest]
    title = counted(len(rest), "finding that fails nothing", "findings that fail nothing")
    return [*folded(title, block("", lines)), ""]
