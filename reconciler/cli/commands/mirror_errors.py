"""`reconciler mirror errors`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict
from reconciler.cli.reaching import ByState


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    addresses: Annotated[
        list[str] | None,
        Argument(metavar="ADDR", help="Mirrors or links; by default all there are.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List what is wrong: of links and their tasks, and what keeps mirrors from fetching or transitions from ending."""
    from reconciler.cli.documents.mirrors import MirrorErrorsDocument
    from reconciler.cli.render.mirrors_text import errors_text
    from reconciler.workflow.linking.commands.showing import mirror_errors

    found = mirror_errors(by_state.reach(files, place), tuple(addresses or ()))
    present(form, lambda: errors_text(found), lambda: MirrorErrorsDocument.of(found))
    raise_verdict(found.verdict)
