"""A picture in the languages that draw: mermaid, as pages show it, and dot, of which Graphviz makes any other form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.graph_text import said_of
from reconciler.cli.render.mermaid import label
from reconciler.foreign import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.workflow.drawing.picture import Arrow, Node, Picture

_MERMAID: Final = {"state": ("(", ")"), "cluster": ("[", "]"), "storage": ("[(", ")]"), "action": ("[", "]")}
_DOT: Final = {"state": "box, style=rounded", "cluster": "box3d", "storage": "cylinder", "action": "box"}


def mermaid_text(picture: Picture) -> str:
    """Return a picture as mermaid, without the fence that a page puts around it."""
    lines = _states(picture) if picture.of == "lifecycle" else _flow(picture)
    return "".join(f"{each}\n" for each in lines)


def dot_text(picture: Picture) -> str:
    """Return a picture as dot."""
    names = _names(picture)
    lines = [
        f"digraph {_quoted(picture.name)} {{",
        f"  rankdir={'TB' if picture.of == 'lifecycle' else 'LR'};",
        *(f"  {names[node.name]} [label={_quoted(node.name)}, shape={_DOT[node.shape]}];" for node in picture.nodes),
        *(
            f"  {names[start]} -> {names[end]} [label={_quoted(said)}{', style=dashed' if by_itself else ''}];"
            for (start, end, by_itself), said in _merged(picture).items()
        ),
        "}",
    ]
    return "".join(f"{each}\n" for each in lines)


def _states(picture: Picture) -> Iterator[str]:
    """Yield a state machine. Its names are ours, plain words: they stand as they are."""
    yield "stateDiagram-v2"
    yield from (f"  {node.name}" for node in picture.nodes)
    if picture.initial is not None:
        yield f"  [*] --> {picture.initial}"
    for (start, end, _), said in _merged(picture).items():
        yield f"  {start} --> {end} : {said}"


def _flow(picture: Picture) -> Iterator[str]:
    names = _names(picture)
    yield "graph LR"
    yield from (f"  {_shaped(node, names[node.name])}" for node in picture.nodes)
    for (start, end, _), said in _merged(picture).items():
        beside = f'|"{label(said)}"|' if said else ""
        yield f"  {names[start]} -->{beside} {names[end]}"


def _shaped(node: Node, name: str) -> str:
    before, after = _MERMAID[node.shape]
    return f'{name}{before}"{label(node.name)}"{after}'


def _merged(picture: Picture) -> dict[tuple[str, str, bool], str]:
    """Return one arrow for all that leads the same way: many verbs make one line, not many."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for arrow in picture.arrows:
        found.setdefault((arrow.start, arrow.end, arrow.by_itself), []).append(_said(arrow))
    return {way: " or ".join(dict.fromkeys(said)) for way, said in found.items()}


def _said(arrow: Arrow) -> str:
    return f"{said_of(arrow)} where {arrow.condition}" if arrow.condition else said_of(arrow)


def _names(picture: Picture) -> dict[str, str]:
    """Return what nodes are called in the text: what a user named is only ever a label."""
    return {node.name: f"n{position}" for position, node in enumerate(picture.nodes)}


def _quoted(text: str) -> str:
    safe = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'
