"""`reconciler state rm`."""

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
    from reconciler.resources.inventory import Recorded


@bundled
def command(
    files: Files,
    place: Place,
    addresses: Annotated[
        list[str], Argument(metavar="ADDR...", help="What to forget; with --recursive also patterns with *.")
    ],
    recursive: Annotated[
        bool, Option("--recursive", help="Also what lies in these namespaces and on these clusters.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10m",
    form: TextOrJson = "text",
) -> None:
    """Stop owning resources. Touches no cluster; what the files still declare, the next apply adopts again."""
    from reconciler.cli.documents.states import StateRemovalDocument
    from reconciler.cli.render.state_text import forgetting_text, forgotten_text
    from reconciler.workflow.stating.forgetting import state_rm

    def confirm(rows: tuple[tuple[Address, Recorded], ...]) -> bool:
        return approved(forgetting_text(rows), "Forget them?", yes=yes, form=form)

    with surgery(files, place, "state rm", lock_timeout) as cut:
        forgotten = state_rm(cut, addresses, recursive=recursive, confirm=confirm)
    present(form, lambda: forgotten_text(forgotten), lambda: StateRemovalDocument.of(forgotten))
