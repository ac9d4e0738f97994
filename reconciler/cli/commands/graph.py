"""`reconciler graph`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.options import Files, Place
from reconciler.cli.presenting import present
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.workflow.drawing.picture import Picture


@bundled
def command(
    files: Files,
    place: Place,
    plan: Annotated[
        Path | None,
        Argument(metavar="PLANFILE", help="The order of a saved plan; by default the workspace.", show_default=False),
    ] = None,
    lifecycle: Annotated[
        str | None,
        Option("--lifecycle", metavar="NAME", help="A state machine, such as mirror or mount.", show_default=False),
    ] = None,
    form: Annotated[
        Literal["text", "json", "mermaid", "dot"],
        Option("--format", help="What to print; `dot -Tsvg` of Graphviz makes a picture of dot."),
    ] = "text",
) -> None:
    """Draw the clusters with their links and mounts, the order of a plan, or a state machine; asks no cluster."""
    if plan is not None and lifecycle is not None:
        raise UsageError("a plan and a lifecycle are two pictures", hint="Give PLANFILE or --lifecycle, not both.")
    picture = _picture(files, place, plan, lifecycle)
    if form in {"text", "json"}:
        from reconciler.cli.documents.graphs import GraphDocument
        from reconciler.cli.render.graph_text import graph_text

        present("json" if form == "json" else "text", lambda: graph_text(picture), lambda: GraphDocument.made(picture))
        return
    from reconciler.cli.render.graph_languages import dot_text, mermaid_text

    out().write(mermaid_text(picture) if form == "mermaid" else dot_text(picture))


def _picture(files: Files, place: Place, plan: Path | None, lifecycle: str | None) -> Picture:
    from reconciler.workflow.drawing.draw import draw_lifecycle, draw_plan, draw_workspace

    if lifecycle is not None:
        return draw_lifecycle(lifecycle)
    if plan is not None:
        from reconciler.workflow.show import show_plan

        return draw_plan(show_plan(plan))
    return draw_workspace(place.invocation(), files.select())
