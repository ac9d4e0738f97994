"""`reconciler state history`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(files: Files, place: Place, form: TextOrJson = "text") -> None:
    """List the snapshots of the state, newest first."""
    from reconciler.cli.documents.inventory import StateHistoryDocument
    from reconciler.cli.render.state_text import history_text
    from reconciler.workflow.state import state_history

    rows = state_history(place.invocation(), files.select())
    present(form, lambda: history_text(rows), lambda: StateHistoryDocument.of(rows))
