"""`reconciler mirror resume`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, asked
from reconciler.cli.options import Files, Place, TextOrJson


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    form: TextOrJson = "text",
) -> None:
    """Let paused mirrors go on from where they stopped; a reversal that was suspended goes on, too."""
    asked(acting, files, place, "resume", addresses, form=form)
