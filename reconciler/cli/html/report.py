"""A result as a page: what it holds, and how it becomes one file that loads nothing else.

The page is a view of the JSON document: Python decides what is said and in which order, the browser only filters,
unfolds and prints. Whatever others named stands in it as text alone: made visible here, escaped in markup, and put into
the page by `textContent`. A policy in the page lets nothing run or load but its own script and style.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from reconciler.cli.text.lines import Tone
from reconciler.runtime.text import count_text, visible

if TYPE_CHECKING:
    from reconciler.process import Forge

Cells: TypeAlias = tuple[str | None, ...]
"""One field: its path, then its value on each side; `None` where that side has none."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a page. `name` is an address wherever there is one."""

    sign: str
    tone: Tone
    verb: str
    name: str
    what: tuple[str, ...] = ()
    key: str = ""
    """By which `after` of others names it."""
    kind: str = ""
    cluster: str = ""
    owner: str = ""
    flags: tuple[str, ...] = ()
    """What else it can be found by: `blocked`, `danger`."""
    notes: tuple[str, ...] = ()
    """What a reader has to know: the cost, the reason."""
    size: str = ""
    fields: tuple[Cells, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    """What a reader may want to paste, each with what it is for."""
    commit: str = ""
    after: tuple[str, ...] = ()
    source: str | None = None
    """`manifests/topics.yaml:88`."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading. Without a title they stand under that of their section."""

    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a page, the gravest first."""

    title: str
    tone: Tone
    groups: tuple[Group, ...]
    hint: str = ""
    is_open: bool = False
    """Its rows are unfolded: a reviewer has to read them before approving."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(len(group.entries) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the whole."""

    label: str
    value: str
    whole: str = ""
    """What is copied where `value` shows only its beginning."""
    is_commit: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A whole page."""

    title: str
    """With `{}` where the subject belongs."""
    subject: str
    lead: str
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]
    columns: tuple[str, ...] = ("before", "after")
    nothing: str = "There is nothing to show."
    tool: str = ""
    remarks: tuple[str, ...] = ()
    """Sentences about the whole, above all rows."""
    picture: str = ""
    """Mermaid text, or empty."""
    picture_title: str = ""
    picture_note: str = ""


def section(
    title: str, tone: Tone, entries: Iterable[Entry], *, hint: str = "", is_open: bool = False, grouped: bool = False
) -> Iterator[Section]:
    """Yield a section unless it is empty; `grouped`: with a group for each cluster and kind, as they come."""
    rows = tuple(entries)
    if not rows:
        return
    if not grouped:
        yield Section(title, tone, (Group("", rows),), hint, is_open)
        return
    groups: dict[str, list[Entry]] = {}
    for row in rows:
        groups.setdefault(" · ".join(filter(None, (row.cluster, row.kind))) or "workspace", []).append(row)
    yield Section(title, tone, tuple(Group(name, tuple(each)) for name, each in groups.items()), hint, is_open)


# The page: a head and tables that are read without a script, and the rows as data for the script.


MOST_STATIC: Final = 200
"""Rows of danger that a reader without scripts sees; the head has the counts of all."""
_HEAVY: Final = (Tone.DANGER, Tone.REMOVE)
_DATA: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "#": "\\u0023"}


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip("\n")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page_bytes(report: Report, forge: Forge | None = None) -> bytes:
    """Return the page. The same report gives the same bytes: it holds no time and no host.

    `forge`: where the files and commits that it names can be seen.
    """
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    name = text(report.title.replace("{}", report.subject))
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{name}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        *_head(report, forge),
        '<main id="main" tabindex="-1">',
        *(f'<p class="remark">{text(each)}</p>' for each in report.remarks),
        *_static(report),
        *_picture(report),
        "</main>",
        f"<footer><p>Made by reconciler {text(report.tool)}.</p></footer>",
        f'<script type="application/json" id="data">{_data(report, forge)}</script>',
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode("utf-8")


def text(words: str) -> str:
    """Return words of others as markup that is only ever text, and no command to who reads the log of a pipeline."""
    # Only before what a pipeline takes for a command: an apostrophe of others is an entity with a # by now.
    return escape(visible(words)).replace("##", "&#35;&#35;")


def _head(report: Report, forge: Forge | None) -> Iterator[str]:
    yield '<a class="skip" href="#main">Skip to the rows</a>'
    yield "<header>"
    before, _, behind = report.title.partition("{}")
    yield f"<h1>{text(before)}<bdi>{text(report.subject)}</bdi>{text(behind)}</h1>"
    yield f'<p class="lead">{text(report.lead)}</p>'
    yield '<dl class="facts">'
    for fact in report.facts:
        shown = f"<bdi>{text(fact.value)}</bdi>"
        if fact.is_commit and forge:
            shown = f'<a href="{text(forge.commits + fact.whole)}">{shown}</a>'
        if fact.whole:
            # The script makes a button of it: without one there is nothing to press.
            shown = f'<code data-copy="{text(fact.whole)}">{shown}</code>'
        yield f"<div><dt>{text(fact.label)}</dt><dd>{shown}</dd></div>"
    yield "</dl>"
    yield "</header>"


def _static(report: Report) -> Iterator[str]:
    """Yield what is read where no script runs: danger by name, the rest in numbers."""
    yield '<div id="rows">'
    if not report.sections:
        yield f"<p>{text(report.nothing)}</p>"
    for each in report.sections:
        yield f"<section><h2>{text(each.title)} ({count_text(each.count)})</h2>"
        if each.hint:
            yield f"<p>{text(each.hint)}</p>"
        if each.tone in _HEAVY or not any(group.title for group in each.groups):
            yield from _static_rows(each)
        else:
            counts = (f"{group.title}: {count_text(len(group.entries))}" for group in each.groups[:MOST_STATIC])
            yield f"<ul>{''.join(f'<li>{text(count)}</li>' for count in counts)}</ul>"
        yield "</section>"
    if report.sections:
        yield "<p>To show every row, to search and to filter, this page needs its own script.</p>"
    yield "</div>"


def _static_rows(each: Section) -> Iterator[str]:
    rows = [entry for group in each.groups for entry in group.entries]
    yield '<table><thead><tr><th scope="col">what</th><th scope="col">change</th><th scope="col">why</th></tr></thead>'
    yield "<tbody>"
    for entry in rows[:MOST_STATIC]:
        cells = (f"{entry.sign} {entry.name}", ", ".join(entry.what), ", ".join(entry.notes))
        yield f"<tr>{''.join(f'<td><bdi>{text(cell)}</bdi></td>' for cell in cells)}</tr>"
    yield "</tbody></table>"
    if len(rows) > MOST_STATIC:
        yield f"<p>And {count_text(len(rows) - MOST_STATIC)} more.</p>"


def _picture(report: Report) -> Iterator[str]:
    if not report.picture_title:
        return
    yield f'<section id="picture"><h2>{text(report.picture_title)}</h2>'
    yield f"<p>{text(report.picture_note)}</p>"
    if report.picture:
        body = "\n".join(map(text, report.picture.splitlines()))
        yield f'<pre class="drawing" tabindex="0" role="group" aria-label="{text(report.picture_title)}">{body}</pre>'
    yield "</section>"


def _data(report: Report, forge: Forge | None) -> str:
    """Return the rows as JSON that no markup can begin or end in."""
    data = {
        "columns": report.columns,
        "nothing": report.nothing,
        "sources": forge.files if forge else None,
        "commits": forge.commits if forge else None,
        "sections": [
            {
                "title": visible(each.title),
                "tone": each.tone.value,
                "hint": visible(each.hint),
                "open": each.is_open,
                "groups": [
                    {"title": visible(group.title), "rows": [dict(_shown(entry)) for entry in group.entries]}
                    for group in each.groups
                ],
            }
            for each in report.sections
        ],
    }
    body = orjson.dumps(data).decode()
    for sign, written in _DATA.items():
        body = body.replace(sign, written)
    return body


_TEXTS: Final = ("sign", "verb", "name", "key", "kind", "cluster", "owner", "size", "source", "commit")
_LISTS: Final = ("what", "flags", "notes", "fields", "facts", "copies", "after")


def _shown(entry: Entry) -> Iterator[tuple[str, Any]]:
    """Yield what a row says; what it does not say is left out."""
    yield "tone", entry.tone.value
    for name in (*_TEXTS, *_LISTS):
        value = getattr(entry, name)
        if value:
            yield name, _visible(value)


def _visible(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    return [_visible(each) for each in value] if isinstance(value, Iterable) else value


def named(workspace: str, environment: str | None) -> str:
    """Return a workspace as people name it: with its environment."""
    return f"{workspace} ({environment})" if environment else workspace


def owner_of(labels: Mapping[str, Any] | None) -> str:
    """Return who a resource belongs to, as its labels say: `owner`, else `team`."""
    found = labels or {}
    return str(found.get("owner") or found.get("team") or "")


def cells(path: str, sides: tuple[str | None, str | None]) -> Cells:
    """Return one field for a page, behind the sign of what happens to it."""
    before, after = sides
    return ("+" if before is None else "-" if after is None else "~", path, before, after)
