"""`reconciler group list`."""

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
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    form: TextOrJson = "text",
) -> None:
    """List the consumer groups of a cluster."""
    from reconciler.cli.documents.groups import GroupsDocument
    from reconciler.cli.render.groups_text import names_text
    from reconciler.workflow.groups import list_groups

    found = list_groups(place.invocation(), files.select(), cluster)
    present(form, lambda: names_text(found), lambda: GroupsDocument.of(found))
