"""`reconciler mount list`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict
from reconciler.cli.reaching import ByState


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    clusters: Annotated[
        list[str] | None,
        Argument(metavar="CLUSTER", help="By default all that have object storage.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List what can be mounted, what is mounted since it was detached, and what is on its way, with their owners."""
    from reconciler.cli.documents.mounts import MountsDocument
    from reconciler.cli.render.mountables_text import mountables_text
    from reconciler.workflow.mounting.listing import list_mounts

    found = list_mounts(by_state.reach(files, place), clusters or ())
    present(form, lambda: mountables_text(found, width=out().width), lambda: MountsDocument.of(found))
    raise_verdict(found.verdict)
