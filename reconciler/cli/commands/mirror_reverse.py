"""`reconciler mirror reverse`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, Yes, asked
from reconciler.cli.options import Files, Place, TextOrJson

if TYPE_CHECKING:
    from reconciler.workflow.linking.commands.readying import Verb


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    pause: Annotated[bool, Option("--pause", help="Leave the new mirror paused.")] = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Let mirrors and their sources change roles without loss, over a bidirectional link."""
    verb: Verb = "reverse-and-pause" if pause else "reverse-and-start"
    asked(acting, files, place, verb, addresses, yes=yes, form=form)
