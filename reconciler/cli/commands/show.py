"""`reconciler show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    place: Place,
    what: Annotated[
        str | None, Argument(metavar="ADDR|PLANFILE", help="An address or a saved plan; by default everything.")
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show what is desired, recorded and observed, or a saved plan without touching a cluster."""
    if what is not None and _is_file(what):
        from reconciler.cli.planned import show_document
        from reconciler.workflow.show import show_plan

        show_document(show_plan(Path(what)), form)
        return
    from reconciler.cli.documents.inventory import ShowDocument
    from reconciler.cli.render.inventory_text import show_text
    from reconciler.workflow.show import show

    rows = show(place.invocation(), files.select(), what)
    present(form, lambda: show_text(rows, one=what is not None), lambda: ShowDocument.of(rows))


def _is_file(what: str) -> bool:
    """Tell a plan from an address: an address is no file, and a path that begins with `.` or `/` no address."""
    return what.startswith((".", "/")) or Path(what).is_file()
