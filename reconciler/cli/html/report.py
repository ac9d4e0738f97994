"""Model and rendering of a self-contained HTML page, whose script only filters and unfolds rows."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from reconciler.cli.text.lines import Tone
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_invisible, format_count

if TYPE_CHECKING:
    from reconciler.process import Forge

Cells: TypeAlias = tuple[str | None, ...]
"""Sign, path and values of a field; `None` for a missing value."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row of a page; `name` is usually an address."""

    sign: str
    tone: Tone
    verb: str
    name: str
    what: tuple[str, ...] = ()
    key: str = ""
    """Id of the row, which other rows name in `after`."""
    kind: str = ""
    cluster: str = ""
    owner: str = ""
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    size: str = ""
    fields: tuple[Cells, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    commit: str = ""
    after: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows, under a heading if `title` is not empty."""

    title: str
    entries: tuple[PageRow, ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of a page."""

    title: str
    tone: Tone
    groups: tuple[RowGroup, ...]
    hint: str = ""
    is_open: bool = False

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(group.entries) for group in self.groups)


@dataclass(frozen=True, slots=True)
class PageFact:
    """A property of the result, such as its environment."""

    label: str
    value: str
    whole: str = ""
    """Full text if `value` is shortened."""
    is_commit: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Content of a page."""

    title: str
    """Title, with `{}` for the subject."""
    subject: str
    lead: str
    facts: tuple[PageFact, ...]
    sections: tuple[PageSection, ...]
    columns: tuple[str, ...] = ("before", "after")
    nothing: str = "There is nothing to show."
    tool: str = ""
    remarks: tuple[str, ...] = ()
    picture: str = ""
    picture_title: str = ""
    picture_note: str = ""


def build_sections(
    title: str, tone: Tone, entries: Iterable[PageRow], *, hint: str = "", is_open: bool = False, grouped: bool = False
) -> Iterator[PageSection]:
    """Yield a section if it has rows; `grouped` groups them by cluster and kind."""
    rows = tuple(entries)
    if not rows:
        return
    if not grouped:
        yield PageSection(title, tone, (RowGroup("", rows),), hint, is_open)
        return
    groups: dict[str, list[PageRow]] = {}
    for row in rows:
        groups.setdefault(" · ".join(filter(None, (row.cluster, row.kind))) or "workspace", []).append(row)
    yield PageSection(
        title, tone, tuple(RowGroup(name, tuple(members)) for name, members in groups.items()), hint, is_open
    )


MOST_STATIC: Final = 200
_DANGEROUS_TONES: Final = (Tone.DANGER, Tone.REMOVE)
_DATA: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "#": "\\u0023"}


@cache
def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip("\n")


def _hash_for_csp(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def render_page(report: Report, forge: Forge | None = None) -> bytes:
    """Render the page; equal reports give equal bytes. `forge` supplies URLs."""
    style, script = _read_asset("page.css"), _read_asset("page.js")
    sources = f"default-src 'none'; style-src {_hash_for_csp(style)}; script-src {_hash_for_csp(script)}"
    policy = f"{sources}; base-uri 'none'; form-action 'none'"
    name = escape_html(report.title.replace("{}", report.subject))
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
        *_render_head(report, forge),
        '<main id="main" tabindex="-1">',
        *(f'<p class="remark">{escape_html(remark)}</p>' for remark in report.remarks),
        *_render_static(report),
        *_render_picture(report),
        "</main>",
        f"<footer><p>Made by reconciler {escape_html(report.tool)}.</p></footer>",
        f'<script type="application/json" id="data">{_format_rows(report, forge)}</script>',
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode("utf-8")


def escape_html(words: str) -> str:
    """Escape text for HTML and CI runners."""
    # Replaced after `escape`, because its entities such as `&#x27;` contain #.
    return escape(escape_invisible(words)).replace("##", "&#35;&#35;")


def _render_head(report: Report, forge: Forge | None) -> Iterator[str]:
    yield '<a class="skip" href="#main">Skip to the rows</a>'
    yield "<header>"
    before, _, behind = report.title.partition("{}")
    yield f"<h1>{escape_html(before)}<bdi>{escape_html(report.subject)}</bdi>{escape_html(behind)}</h1>"
    yield f'<p class="lead">{escape_html(report.lead)}</p>'
    yield '<dl class="facts">'
    for fact in report.facts:
        shown = f"<bdi>{escape_html(fact.value)}</bdi>"
        if fact.is_commit and forge:
            shown = f'<a href="{escape_html(forge.commits + fact.whole)}">{shown}</a>'
        if fact.whole:
            shown = f'<code data-copy="{escape_html(fact.whole)}">{shown}</code>'
        yield f"<div><dt>{escape_html(fact.label)}</dt><dd>{shown}</dd></div>"
    yield "</dl>"
    yield "</header>"


def _render_static(report: Report) -> Iterator[str]:
    yield '<div id="rows">'
    if not report.sections:
        yield f"<p>{escape_html(report.nothing)}</p>"
    for part in report.sections:
        yield f"<section><h2>{escape_html(part.title)} ({format_count(part.count)})</h2>"
        if part.hint:
            yield f"<p>{escape_html(part.hint)}</p>"
        if part.tone in _DANGEROUS_TONES or not any(group.title for group in part.groups):
            yield from _render_static_table(part)
        else:
            counts = (f"{group.title}: {format_count(len(group.entries))}" for group in part.groups[:MOST_STATIC])
            yield f"<ul>{''.join(f'<li>{escape_html(count)}</li>' for count in counts)}</ul>"
        yield "</section>"
    if report.sections:
        yield "<p>To show every row, to search and to filter, this page needs its own script.</p>"
    yield "</div>"


def _render_static_table(part: PageSection) -> Iterator[str]:
    rows = [entry for group in part.groups for entry in group.entries]
    yield '<table><thead><tr><th scope="col">what</th><th scope="col">change</th><th scope="col">why</th></tr></thead>'
    yield "<tbody>"
    for entry in rows[:MOST_STATIC]:
        cells = (f"{entry.sign} {entry.name}", ", ".join(entry.what), ", ".join(entry.notes))
        yield f"<tr>{''.join(f'<td><bdi>{escape_html(cell)}</bdi></td>' for cell in cells)}</tr>"
    yield "</tbody></table>"
    if len(rows) > MOST_STATIC:
        yield f"<p>And {format_count(len(rows) - MOST_STATIC)} more.</p>"


def _render_picture(report: Report) -> Iterator[str]:
    if not report.picture_title:
        return
    yield f'<section id="picture"><h2>{escape_html(report.picture_title)}</h2>'
    yield f"<p>{escape_html(report.picture_note)}</p>"
    if report.picture:
        body = "\n".join(map(escape_html, report.picture.splitlines()))
        label = escape_html(report.picture_title)
        yield f'<pre class="drawing" tabindex="0" role="group" aria-label="{label}">{body}</pre>'
    yield "</section>"


def _format_rows(report: Report, forge: Forge | None) -> str:
    data = {
        "columns": report.columns,
        "nothing": report.nothing,
        "sources": forge.files if forge else None,
        "commits": forge.commits if forge else None,
        "sections": [
            {
                "title": escape_invisible(part.title),
                "tone": part.tone.value,
                "hint": escape_invisible(part.hint),
                "open": part.is_open,
                "groups": [
                    {
                        "title": escape_invisible(group.title),
                        "rows": [dict(_list_entry_fields(entry)) for entry in group.entries],
                    }
                    for group in part.groups
                ],
            }
            for part in report.sections
        ],
    }
    body = orjson.dumps(data).decode()
    for sign, written in _DATA.items():
        body = body.replace(sign, written)
    return body


_TEXTS: Final = ("sign", "verb", "name", "key", "kind", "cluster", "owner", "size", "source", "commit")
_LISTS: Final = ("what", "flags", "notes", "fields", "facts", "copies", "after")


def _list_entry_fields(entry: PageRow) -> Iterator[tuple[str, Any]]:
    yield "tone", entry.tone.value
    for name in (*_TEXTS, *_LISTS):
        value = getattr(entry, name)
        if value:
            yield name, _make_visible(value)


def _make_visible(value: object) -> object:
    if isinstance(value, str):
        return escape_invisible(value)
    return [_make_visible(item) for item in value] if isinstance(value, Iterable) else value


def format_workspace_title(workspace: str, environment: str | None) -> str:
    """Format a workspace's name and environment."""
    return f"{workspace} ({environment})" if environment else workspace


def read_owner_label(labels: Mapping[str, Any] | None) -> str:
    """Return the label `owner`, else `team`, else ""."""
    values = labels or {}
    return str(values.get("owner") or values.get("team") or "")


def build_cells(path: str, sides: tuple[str | None, str | None]) -> Cells:
    """Build a field's cells from old and new value."""
    before, after = sides
    return ("+" if before is None else "-" if after is None else "~", path, before, after)
