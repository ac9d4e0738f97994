"""`reconciler state show`."""

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
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    form: TextOrJson = "text",
) -> None:
    """Show one resource as it was last applied."""
    from reconciler.cli.documents.states import StateShowDocument
    from reconciler.cli.render.state_text import recorded_text
    from reconciler.workflow.stating.looking import state_show

    recorded = state_show(place.invocation(), files.select(), address)
    present(form, lambda: recorded_text(address, recorded), lambda: StateShowDocument.of(address, recorded))
