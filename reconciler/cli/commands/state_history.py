"""`reconciler state history`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    place: Place,
    limit: Annotated[int, Option("--limit", metavar="N", min=0, help="Show the newest N; 0 shows all.")] = 20,
    form: TextOrJson = "text",
) -> None:
    """List the snapshots of the state, newest first."""
    from reconciler.cli.documents.states import StateHistoryDocument
    from reconciler.cli.render.state_text import history_text
    from reconciler.workflow.stating.history import state_history

    found = state_history(place.invocation(), files.select(), limit=limit or None)
    present(form, lambda: history_text(found), lambda: StateHistoryDocument.of(found))
