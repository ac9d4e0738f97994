"""A small plan as a picture: what waits for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.markdown import block
from reconciler.cli.render.readers import mark, title
from reconciler.foreign import visible

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan

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
