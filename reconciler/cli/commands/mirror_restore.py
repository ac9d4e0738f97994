"""`reconciler mirror restore`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, Yes, asked
from reconciler.cli.options import Files, Place, TextOrJson


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Let original sources of stopped mirrors become mirrors of them: what only they have is cut off, and lost."""
    asked(acting, files, place, "truncate-and-restore", addresses, yes=yes, form=form)
