"""`reconciler explain`."""

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
    """Say where each value of a resource comes from, and why an action is planned for it."""
    from reconciler.cli.documents.inventory import ExplainDocument
    from reconciler.cli.render.inventory_text import explain_text
    from reconciler.workflow.explain import explain

    explained = explain(place.invocation(), files.select(), address)
    present(form, lambda: explain_text(explained), lambda: ExplainDocument.of(explained))
