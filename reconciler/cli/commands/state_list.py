"""`reconciler state list`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(files: Files, place: Place, form: TextOrJson = "text") -> None:
    """List what this workspace owns."""
    from reconciler.cli.documents.states import StateListDocument
    from reconciler.cli.render.state_text import listing_text
    from reconciler.workflow.stating.looking import state_list

    listing = state_list(place.invocation(), files.select())
    present(form, lambda: listing_text(listing), lambda: StateListDocument.of(listing))
