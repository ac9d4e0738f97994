"""A small plan as a picture: what waits for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.escaping import visible
from reconciler.cli.render.markdown import block
from reconciler.cli.render.readers import mark, title

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan

MOST: Final = 25
"""Actions a picture can hold and still be read."""


def picture(plan: Plan) -> list[str]:
    """Return the plan's order as a mermaid block; nothing where nothing waits or too much happens."""
    names = {action.id: f"a{position}" for position, action in enumerate(plan.actions)}
    arrows = [
        f"  {names[before]} --> {names[action.id]}"
        for action in plan.actions
        for before in action.depends_on
        if before in names
    ]
    if not arrows or len(plan.actions) > MOST:
        return []
    nodes = [f'  {names[action.id]}["{_label(f"{mark(action)[0]} {title(action)}")}"]' for action in plan.actions]
    return [*block("mermaid", ["graph LR", *nodes, *arrows]), ""]


def _label(text: str) -> str:
    """Return a label in which every sign that mermaid or the page could read is an entity."""
    return "".join(each if each.isalnum() or each in " /:.-_+~±✗»▶=…" else f"#{ord(each)};" for each in visible(text))
