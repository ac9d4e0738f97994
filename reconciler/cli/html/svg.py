"""A picture as SVG: one that stands by itself, or a part of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from reconciler.cli.html.graph_layout import HEIGHT, LABEL_HEIGHT, LETTER, Box, Drawing, Line, layout, said_in
from reconciler.cli.text.lines import width_of
from reconciler.runtime.text import counted, visible

if TYPE_CHECKING:
    from reconciler.operations.show import Picture

_MOST_SAID: Final = 40
"""Arrows that are told in words."""
_TONES: Final = {"create": "add", "adopt": "add", "update": "change", "delete": "remove", "forget": "quiet"}
_OF: Final = {"lifecycle": "State machine", "workspace": "Clusters of", "plan": "Order of the plan of"}
_TOLD: Final = 'aria-labelledby="graph-title" aria-describedby="graph-desc"'
_HEAD: Final = (
    '<defs><marker id="graph-head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto-start-reverse"><path class="head" d="M0 0.5 8 4 0 7.5z"/></marker></defs>'
)

STYLE: Final = """\
.graph { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #6e7781; --add: #1a7f37; --change: #855300;
  --remove: #c81e2b; --move: #0550ae; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { .graph { --paper: #0d1117; --ink: #e6edf3; --soft: #9da7b3; --line: #8b949e;
  --add: #3fb950; --change: #e3b341; --remove: #ff7b72; --move: #79c0ff; } }
.graph .paper { fill: var(--paper); }
.graph .box { fill: var(--paper); stroke: var(--line); stroke-width: 1.25; }
.graph text { fill: var(--ink); }
.graph .edge { fill: none; stroke: var(--line); stroke-width: 1.25; }
.graph .itself { stroke-dasharray: 5 4; }
.graph .head { fill: var(--line); }
.graph .said { fill: var(--soft); font-size: 12px; text-anchor: middle; }
.graph .behind { fill: var(--paper); }
.graph .add .box { stroke: var(--add); } .graph .change .box { stroke: var(--change); }
.graph .remove .box { stroke: var(--remove); } .graph .move .box { stroke: var(--move); }
.graph .quiet .box { stroke-dasharray: 3 3; }"""
"""Colours by what a person prefers; a page brings its own under the same names."""


def svg_text(picture: Picture) -> str:
    """Return a whole file: with its own colours, light and dark."""
    return f"{_svg(picture, style=STYLE, keys={})}\n"


def picture_svg(picture: Picture, *, keys: Mapping[str, str]) -> str:
    """Return a part of a page, whose style it takes; a node leads to the row of its key."""
    return _svg(picture, style="", keys=keys)


def _svg(picture: Picture, *, style: str, keys: Mapping[str, str]) -> str:
    drawing = layout(picture)
    size = f'width="{_number(drawing.width)}" height="{_number(drawing.height)}"'
    # What holds links is no image to who hears it.
    role = 'role="group"' if keys else 'role="img"'
    view = f'viewBox="0 0 {_number(drawing.width)} {_number(drawing.height)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {view} {size} {role} {_TOLD}>',
            f'<title id="graph-title">{_text(f"{_OF[picture.of]} {picture.name}")}</title>',
            f'<desc id="graph-desc">{_text(_description(picture, drawing))}</desc>',
            *([f"<style>{style}</style>"] if style else []),
            _HEAD,
            *(['<rect class="paper" width="100%" height="100%"/>'] if style else []),
            *map(_edge, drawing.lines),
            *(part for line in drawing.lines if line.label for part in _said(line)),
            *(_node(box, keys.get(box.name)) for box in drawing.boxes),
            "</svg>",
        ]
    )


def _description(picture: Picture, drawing: Drawing) -> str:
    counts = f"{counted(len(drawing.boxes), 'node')}, {counted(len(drawing.lines), 'arrow')}"
    begins = f"; begins {picture.initial}" if picture.initial else ""
    said = said_in(drawing.lines, _MOST_SAID)
    return f"{counts}{begins}{f': {said}' if said else ''}."


def _edge(line: Line) -> str:
    itself = " itself" if line.by_itself else ""
    return f'<path class="edge{itself}" d="{_way(line)}" marker-end="url(#graph-head)"/>'


def _way(line: Line) -> str:
    (x, y), *rest = line.points
    parts = [f"M{_number(x)} {_number(y)}"]
    if line.is_loop:
        ((end_x, end_y),) = rest
        corners = f"{_number(x - 8)} {_number(y - 24)} {_number(end_x + 8)} {_number(end_y - 24)}"
        return f"{parts[0]}C{corners} {_number(end_x)} {_number(end_y)}"
    for (ax, ay), (bx, by) in pairwise(line.points):
        if abs(ay - by) < 0.05:  # noqa: PLR2004 - a tenth of a pixel is what is written
            parts.append(f"H{_number(bx)}")
        else:
            middle = _number((ax + bx) / 2)
            parts.append(f"C{middle} {_number(ay)} {middle} {_number(by)} {_number(bx)} {_number(by)}")
    return "".join(parts)


def _said(line: Line) -> Iterator[str]:
    x, y = line.at
    width = width_of(line.label) * LETTER * 0.9 + 6
    corner = f'x="{_number(x - width / 2)}" y="{_number(y - LABEL_HEIGHT / 2)}"'
    yield f'<rect class="behind" {corner} width="{_number(width)}" height="{_number(LABEL_HEIGHT)}"/>'
    yield f'<text class="said" x="{_number(x)}" y="{_number(y + 4)}">{_text(line.label)}</text>'


def _node(box: Box, key: str | None) -> str:
    x, y = _number(box.x), _number(box.y)
    size = f'width="{_number(box.width)}" height="{_number(HEIGHT)}"'
    round_ = {"state": 16, "cluster": 2, "storage": 9, "action": 5}[box.shape]
    tone = f" {_TONES.get(box.name.partition(' ')[0], 'move')}" if box.shape == "action" else ""
    shape = f'<rect class="box" x="{x}" y="{y}" {size} rx="{round_}"/>'
    if box.shape == "storage":
        arc = f"M{x} {_number(box.y + 7)}q{_number(box.width / 2)} 8 {_number(box.width)} 0"
        shape += f'<path class="box" d="{arc}"/>'
    if box.shape == "cluster":
        shape += f'<path class="box" d="M{_number(box.x + 5)} {y}v{_number(HEIGHT)}"/>'
    words = f'<text x="{_number(box.x + 12)}" y="{_number(box.y + HEIGHT / 2 + 4.5)}">{_text(box.shown)}</text>'
    inside = f"<title>{_text(box.name)}</title>{shape}{words}"
    if key is None:
        return f'<g class="node {box.shape}{tone}">{inside}</g>'
    return f'<a href="#row={quote(visible(key), safe="")}" class="node {box.shape}{tone}">{inside}</a>'


def _text(words: str) -> str:
    return escape(visible(words)).replace("##", "#&#35;")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
