"""`reconciler mirror promote`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, Timeout, Yes, asked
from reconciler.cli.options import Files, Place, TextOrJson


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    yes: Yes = False,
    timeout: Timeout = None,
    form: TextOrJson = "text",
) -> None:
    """Let mirrors become ordinary topics without loss: waits for lag 0 first, and needs both clusters."""
    asked(acting, files, place, "promote", addresses, yes=yes, timeout=timeout, form=form)
