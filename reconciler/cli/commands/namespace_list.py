"""`reconciler namespace list`."""

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
    cluster: Annotated[
        str | None, Argument(metavar="CLUSTER", help="By default all of the workspace.", show_default=False)
    ] = None,
    under: Annotated[
        str | None, Argument(metavar="UNDER", help="Only those below this namespace.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the namespaces on the clusters."""
    from reconciler.cli.documents.clusters import NamespacesDocument
    from reconciler.cli.render.listings import namespaces_text
    from reconciler.workflow.namespaces.listing import list_namespaces

    rows = list_namespaces(place.invocation(), files.select(), cluster, under)
    present(form, lambda: namespaces_text(rows), lambda: NamespacesDocument.of(rows))
