"""`reconciler mirror failover`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, Yes, asked
from reconciler.cli.options import Files, Place, TextOrJson, pairs
from reconciler.errors import UsageError


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    yes: Yes = False,
    cluster: Annotated[
        list[str] | None,
        Option(
            "--cluster",
            metavar="NAME=URL",
            help="Where an embedded cluster is, in place of a workspace; with --no-state.",
            show_default=False,
        ),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Let mirrors take records at once, with what they have: what they lack is lost. Needs neither source nor state."""
    places = pairs("--cluster", cluster)
    if places and (not acting.no_state or acting.state is not None):
        raise UsageError(
            "--cluster is for where there is neither a workspace nor a state",
            hint="Give --no-state with it, and no --state.",
        )
    asked(acting, files, place, "failover", addresses, yes=yes, at=places, form=form)
