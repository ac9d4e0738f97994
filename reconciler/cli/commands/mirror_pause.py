"""`reconciler mirror pause`."""

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
    """Stop mirrors from fetching; they keep what they have, and are read as before."""
    asked(acting, files, place, "pause", addresses, form=form)
