"""`reconciler state mv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.surgery import surgery

if TYPE_CHECKING:
    from reconciler.resources.address import Address


@bundled
def command(
    files: Files,
    place: Place,
    before: Annotated[str, Argument(metavar="ADDR", help="What is recorded, for example topic/west/shop:orders.")],
    after: Annotated[str, Argument(metavar="ADDR", help="Its address from now on, of the same kind and cluster.")],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10m",
    form: TextOrJson = "text",
) -> None:
    """Record a resource under another address, a namespace with all in it. Touches no cluster."""
    from reconciler.cli.documents.states import StateMovesDocument
    from reconciler.cli.render.state_text import moves_text
    from reconciler.workflow.stating.moving import state_mv

    def confirm(moves: tuple[tuple[Address, Address], ...]) -> bool:
        return approved(moves_text(moves), "Record them like that?", yes=yes, form=form)

    with surgery(files, place, "state mv", lock_timeout) as cut:
        moves = state_mv(cut, before, after, confirm=confirm)
    present(form, list, lambda: StateMovesDocument.of(moves))
