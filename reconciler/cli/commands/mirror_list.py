"""`reconciler mirror list`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
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
        Argument(metavar="CLUSTER", help="Destinations; by default all clusters.", show_default=False),
    ] = None,
    link: Annotated[
        str | None, Option("--link", metavar="NAME", help="Only those of this link.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the mirrors of clusters, stopped ones too, with their states and how far behind they are."""
    from reconciler.cli.documents.mirrors import MirrorsDocument
    from reconciler.cli.render.mirrors_text import mirrors_text
    from reconciler.workflow.linking.commands.showing import list_mirrors

    found = list_mirrors(by_state.reach(files, place), clusters or (), link)
    present(form, lambda: mirrors_text(found), lambda: MirrorsDocument.of(found))
    raise_verdict(found.verdict)
