"""Pictures of nodes and arrows as SVG, laid out in layers without Graphviz.

Arrows lead from left to right. A node stands in the layer after the last of those it waits for (longest path); arrows
that would lead back are turned for the layout, and drawn the way they were. Words beside an arrow take a place of their
own in a layer between, so they cover nothing. The order within a layer comes from four sweeps by barycentre; heights
are then the nearest to what a node is tied to that lets none overlap (isotonic regression). All of it is linear in what
there is to draw but for the sorting, and the same picture always gets the same places.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from reconciler.cli.text.inventory_text import merged
from reconciler.cli.text.lines import width_of
from reconciler.runtime.text import counted, visible

if TYPE_CHECKING:
    from reconciler.operations.show import Picture, Shape


Point: TypeAlias = tuple[float, float]

LETTER: Final = 7.9
"""Pixels of one cell of text: of a fixed-width font of 13 pixels, rounded up."""
HEIGHT: Final = 32.0
LABEL_HEIGHT: Final = 18.0
MARGIN: Final = 16.0
_PAD: Final = 12.0
_GAP_X: Final = 56.0
_GAP_Y: Final = 14.0
_LOOP: Final = 26.0
"""Above a node that leads to itself."""
_LONGEST: Final = 46
"""Cells of a name; the middle of a longer one is left out in the picture, not in its title."""
_LONGEST_LABEL: Final = 34
_SWEEPS: Final = 4
_BENDS: Final = 4
"""Bends of arrows over many layers, for each node and arrow; with more of them they are drawn straight."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its left upper corner and size in pixels, and what of its name is shown."""

    name: str
    shape: Shape
    shown: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Line:
    """An arrow: the points it runs through, in its own direction."""

    start: str
    end: str
    points: tuple[Point, ...]
    label: str
    at: Point
    """The middle of the label."""
    by_itself: bool
    is_loop: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture with a place for everything, in pixels."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


@dataclass(slots=True)
class _Slot:
    """Something that takes room in a layer: a node, the words of an arrow, or a bend of it."""

    layer: int
    width: float
    height: float
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class _Chain:
    """An arrow as slots from left to right; `is_turned`: it leads from right to left."""

    start: str
    end: str
    slots: tuple[int, ...]
    said: str
    word: int | None
    """The slot of what it says."""
    by_itself: bool
    is_turned: bool


def drawable(picture: Picture) -> Picture:
    """Return a picture without the nodes that no arrow leads to or from."""
    tied = {name for arrow in picture.arrows for name in (arrow.start, arrow.end)}
    return replace(picture, nodes=tuple(node for node in picture.nodes if node.name in tied))


def shortened(text: str, most: int) -> str:
    """Return text for a picture: safe to see, its middle left out where it is long."""
    safe = visible(text)
    if width_of(safe) <= most:
        return safe
    half = (most - 1) // 2
    return f"{safe[:half]}…{safe[-half:]}"


def layout(picture: Picture) -> Drawing:
    """Return a place for every node and arrow; arrows to nodes that are not in the picture are left out."""
    names = {node.name: index for index, node in enumerate(picture.nodes)}
    ways = [(way, said) for way, said in merged(picture).items() if way[0] in names and way[1] in names]
    edges = [(names[start], names[end]) for (start, end, _), _ in ways if start != end]
    loops = {names[start] for (start, end, _), _ in ways if start == end}
    tied = sorted({node for edge in edges for node in edge} | loops)
    turned = _turned(tied, edges)
    forward = [(end, start) if index in turned else (start, end) for index, (start, end) in enumerate(edges)]
    layers = _layers(tied, forward)
    has_words = any(said for (start, end, _), said in ways if start != end)
    step = 2 if has_words else 1
    shown = [shortened(node.name, _LONGEST) for node in picture.nodes]
    slots = {
        node: _Slot(
            layers[node] * step,
            width_of(shown[node]) * LETTER + 2 * _PAD,
            HEIGHT + (_LOOP if node in loops else 0),
        )
        for node in tied
    }
    chains = _chains(ways, names, turned, slots, len(picture.nodes))
    rows = _ordered(slots)
    _heights(slots, rows)
    lefts = _lefts(slots, rows)
    boxes = {
        node: Box(
            picture.nodes[node].name,
            picture.nodes[node].shape,
            shown[node],
            lefts[slots[node].layer],
            slots[node].y + slots[node].height / 2 - HEIGHT,
            slots[node].width,
        )
        for node in tied
    }
    low = min((slot.y - slot.height / 2 for slot in slots.values()), default=0.0)
    boxes = {node: replace(box, y=box.y - low + MARGIN) for node, box in boxes.items()}
    for slot in slots.values():
        slot.y += MARGIN - low
    lines = [_line(chain, slots, boxes, lefts) for chain in chains]
    lines += [_loop(boxes[names[start]], said, by_itself) for (start, end, by_itself), said in ways if start == end]
    height = max((slot.y + slot.height / 2 for slot in slots.values()), default=0.0)
    width = max((box.x + box.width for box in boxes.values()), default=0.0)
    alone = [node for node in range(len(picture.nodes)) if node not in slots]
    apart = _grid(picture, alone, shown, width, height)
    everything = [boxes.get(node) or apart[node] for node in range(len(picture.nodes))]
    return Drawing(
        max((box.x + box.width for box in everything), default=0.0) + MARGIN,
        max([height, *(box.y + HEIGHT for box in everything)], default=0.0) + MARGIN,
        tuple(everything),
        tuple(lines),
    )


def _turned(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> set[int]:
    """Return the arrows that close a circle, by their index: those that lead back on a walk in the given order."""
    leads: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    for index, (start, end) in enumerate(edges):
        leads[start].append((index, end))
    found: set[int] = set()
    state = dict.fromkeys(nodes, 0)  # 1: on the way, 2: done
    for root in nodes:
        if state[root]:
            continue
        state[root] = 1
        walk = [(root, iter(leads[root]))]
        while walk:
            node, rest = walk[-1]
            for index, end in rest:
                if state[end] == 1:
                    found.add(index)
                elif state[end] == 0:
                    state[end] = 1
                    walk.append((end, iter(leads[end])))
                    break
            else:
                state[node] = 2
                walk.pop()
    return found


def _layers(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return each node's layer: one beyond the last that leads to it; what nothing leads to stands beside its next."""
    after: dict[int, list[int]] = {node: [] for node in nodes}
    missing = dict.fromkeys(nodes, 0)
    for start, end in edges:
        after[start].append(end)
        missing[end] += 1
    sources = [node for node in nodes if not missing[node]]
    layers = dict.fromkeys(nodes, 0)
    ready = list(sources)
    for node in ready:
        for end in after[node]:
            layers[end] = max(layers[end], layers[node] + 1)
            missing[end] -= 1
            if not missing[end]:
                ready.append(end)
    for node in sources:
        if after[node]:
            layers[node] = min(layers[end] for end in after[node]) - 1
    return layers


def _chains(
    ways: Sequence[tuple[tuple[str, str, bool], str]],
    names: Mapping[str, int],
    turned: set[int],
    slots: dict[int, _Slot],
    number: int,
) -> list[_Chain]:
    """Return the arrows between two nodes, and add the slots of their words and bends."""
    between = [(way, said) for way, said in ways if way[0] != way[1]]
    spans = (abs(slots[names[end]].layer - slots[names[start]].layer) - 1 for (start, end, _), _ in between)
    is_bent = sum(spans) <= _BENDS * (number + len(between)) + 1000
    chains = []
    for index, ((start, end, by_itself), said) in enumerate(between):
        first, last = (names[end], names[start]) if index in turned else (names[start], names[end])
        left, right = slots[first].layer, slots[last].layer
        word_layer = (left + right) // 2 if said else None
        chain, word = [first], None
        for layer in range(left + 1, right):
            if layer == word_layer:
                shown = width_of(shortened(said, _LONGEST_LABEL)) * LETTER * 0.9 + 8
                slot = _Slot(layer, shown, LABEL_HEIGHT)
            elif is_bent:
                slot = _Slot(layer, 0.0, 6.0)
            else:
                continue
            key = number + len(slots)
            slots[key] = slot
            chain.append(key)
            word = key if layer == word_layer else word
        chain.append(last)
        for before, after in pairwise(chain):
            slots[before].after.append(after)
            slots[after].before.append(before)
        chains.append(_Chain(start, end, tuple(chain), said, word, by_itself, index in turned))
    return chains


def _ordered(slots: Mapping[int, _Slot]) -> list[list[int]]:
    """Return the slots of each layer from top to bottom, with few crossings."""
    rows: list[list[int]] = [[] for _ in range(1 + max((slot.layer for slot in slots.values()), default=-1))]
    for key, slot in slots.items():
        rows[slot.layer].append(key)
    place = {key: float(index) for row in rows for index, key in enumerate(row)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            wish = {key: _mean(slots[key].before if is_down else slots[key].after, place, place[key]) for key in row}
            row.sort(key=wish.__getitem__)
            place.update((key, float(index)) for index, key in enumerate(row))
    return rows


def _mean(others: Sequence[int], place: Mapping[int, float], otherwise: float) -> float:
    return sum(place[each] for each in others) / len(others) if others else otherwise


def _heights(slots: Mapping[int, _Slot], rows: Sequence[Sequence[int]]) -> None:
    """Set the middle of each slot: as near to what it is tied to as its neighbours let it."""
    for row in rows:
        y = 0.0
        for key in row:
            slots[key].y = y + slots[key].height / 2
            y += slots[key].height + _GAP_Y
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            middles = {key: slots[key].y for key in row}
            wishes = []
            for key in row:
                others = [*slots[key].before, *slots[key].after] if sweep else slots[key].before
                wishes.append(sum(slots[each].y for each in others) / len(others) if others else middles[key])
            _settle([slots[key] for key in row], wishes)


def _settle(row: Sequence[_Slot], wishes: Sequence[float]) -> None:
    """Put the slots of one layer as near to their wishes as possible without overlap (pool adjacent violators)."""
    offsets = [0.0]
    for upper, lower in pairwise(row):
        offsets.append(offsets[-1] + (upper.height + lower.height) / 2 + _GAP_Y)
    pools: list[tuple[float, int]] = []  # sum and number of the wishes that share one place
    for wish, offset in zip(wishes, offsets, strict=True):
        total, count = wish - offset, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            above, many = pools.pop()
            total, count = total + above, count + many
        pools.append((total, count))
    places = [total / count for total, count in pools for _ in range(count)]
    for slot, place, offset in zip(row, places, offsets, strict=True):
        slot.y = place + offset


def _lefts(slots: Mapping[int, _Slot], rows: Sequence[Sequence[int]]) -> list[float]:
    """Return where each layer begins, and behind them where the last one ends."""
    lefts, x = [], MARGIN
    for row in rows:
        lefts.append(x)
        x += max((slots[key].width for key in row), default=0.0) + _GAP_X
    return [*lefts, x]


def _line(
    chain: _Chain,
    slots: Mapping[int, _Slot],
    boxes: Mapping[int, Box],
    lefts: Sequence[float],
) -> Line:
    first, *inner, last = chain.slots
    points: list[Point] = [(boxes[first].x + boxes[first].width, _middle(boxes[first]))]
    at = (0.0, 0.0)
    for key in inner:
        slot = slots[key]
        room = lefts[slot.layer + 1] - _GAP_X - lefts[slot.layer]
        points += [(lefts[slot.layer], slot.y), (lefts[slot.layer] + room, slot.y)]
        if key == chain.word:
            at = (lefts[slot.layer] + room / 2, slot.y)
    points.append((boxes[last].x, _middle(boxes[last])))
    if not inner or chain.word is None:
        at = ((points[0][0] + points[-1][0]) / 2, (points[0][1] + points[-1][1]) / 2)
    ordered = reversed(points) if chain.is_turned else points
    said = shortened(chain.said, _LONGEST_LABEL) if chain.said else ""
    return Line(chain.start, chain.end, tuple(ordered), said, at, chain.by_itself)


def _middle(box: Box) -> float:
    return box.y + HEIGHT / 2


def _loop(box: Box, said: str, by_itself: bool) -> Line:
    x, y = box.x + box.width / 2, box.y
    return Line(
        box.name,
        box.name,
        ((x - 12, y), (x + 12, y)),
        shortened(said, _LONGEST_LABEL) if said else "",
        (x, y - 20),
        by_itself,
        is_loop=True,
    )


def _grid(picture: Picture, alone: Sequence[int], shown: Sequence[str], width: float, height: float) -> dict[int, Box]:
    """Return places below all others for nodes that no arrow ties to anything."""
    if not alone:
        return {}
    wide = max(width_of(shown[node]) for node in alone) * LETTER + 2 * _PAD
    fitting = int((width - MARGIN) // (wide + _GAP_Y)) if width else 0
    columns = max(fitting, ceil(sqrt(len(alone) * (HEIGHT + _GAP_Y) / wide)))
    top = height + 2 * _GAP_Y if height else MARGIN
    return {
        node: Box(
            picture.nodes[node].name,
            picture.nodes[node].shape,
            shown[node],
            MARGIN + (position % columns) * (wide + _GAP_Y),
            top + (position // columns) * (HEIGHT + _GAP_Y),
            wide,
        )
        for position, node in enumerate(alone)
    }


def said_in(lines: Iterable[Line], most: int) -> str:
    """Return the first arrows of a picture in words, for who hears it."""
    said = [f"{visible(line.start)} leads to {visible(line.end)}" for line in lines]
    more = len(said) - most
    return "; ".join(said[:most]) + (f"; and {more} more" if more > 0 else "")


# The picture as SVG: one that stands by itself, or a part of a page.


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
