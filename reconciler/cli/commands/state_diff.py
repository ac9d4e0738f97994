"""`reconciler state diff`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    place: Place,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="A state, as `state history` numbers them.")],
    other: Annotated[
        int | None,
        Argument(metavar="[SERIAL]", min=0, help="Another one; by default the current one.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show what two states say differently. Asks no cluster."""
    from reconciler.cli.documents.states import StateDiffDocument
    from reconciler.cli.render.state_text import diff_text
    from reconciler.workflow.stating.diff import state_diff

    found = state_diff(place.invocation(), files.select(), serial, other)
    present(form, lambda: diff_text(found), lambda: StateDiffDocument.of(found))
