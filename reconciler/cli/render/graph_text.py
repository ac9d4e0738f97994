"""A picture as text: each node, and where it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, aligned, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.workflow.drawing.picture import Arrow, Picture

_ITSELF: Final = "by itself"
_EMPTY: Final = {
    "lifecycle": "It has no states.",
    "workspace": "No cluster is declared.",
    "plan": "Nothing is planned.",
}


def graph_text(picture: Picture) -> list[Line]:
    """Return a block for each node: what leads away from it, and what is often asked of it in vain."""
    if not picture.nodes:
        return [line(_EMPTY[picture.of])]
    blocks = [list(_block(picture, node.name)) for node in picture.nodes]
    if picture.of == "lifecycle":
        first = [line(Span(picture.name, Tone.STRONG), f": begins {picture.initial}")]
        return [*first, *[each for block in blocks for each in (EMPTY, *block)]]
    return [each for block in blocks for each in block]


def _block(picture: Picture, name: str) -> Iterator[Line]:
    yield line(Span(name, Tone.STRONG))
    rows = [_row(picture, arrow) for arrow in picture.arrows if arrow.start == name]
    rows += [
        (Span(each.verb), Span("✗", Tone.DANGER), Span(each.reason, Tone.QUIET))
        for each in picture.refusals
        if each.state == name
    ]
    yield from aligned(rows, indent="  ")


def _row(picture: Picture, arrow: Arrow) -> tuple[Span, ...]:
    condition = f"where {arrow.condition}" if arrow.condition else ""
    said = said_of(arrow)
    if picture.of == "plan":
        return Span("then", Tone.QUIET), Span("→", Tone.MOVE), Span(arrow.end)
    return Span(said), Span("→", Tone.MOVE), Span(arrow.end), Span(condition, Tone.QUIET)


def said_of(arrow: Arrow) -> str:
    """Return what stands beside an arrow: the verb, or that nobody asks for it."""
    if not arrow.by_itself:
        return arrow.label
    return f"{arrow.label}, {_ITSELF}" if arrow.label else _ITSELF
