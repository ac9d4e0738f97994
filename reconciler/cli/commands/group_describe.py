"""`reconciler group describe`."""

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
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    form: TextOrJson = "text",
) -> None:
    """Describe one consumer group: what it has committed, its lag, and whether it is reading."""
    from reconciler.cli.documents.groups import GroupDocument
    from reconciler.cli.render.groups_text import group_text
    from reconciler.workflow.groups import describe_group

    described = describe_group(place.invocation(), files.select(), cluster, group)
    present(form, lambda: group_text(described), lambda: GroupDocument.of(described))
