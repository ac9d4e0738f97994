"""`reconciler drift`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Chosen, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict, warn_all


@bundled
def command(
    chosen: Chosen,
    place: Place,
    form: TextOrJson = "text",
    fail_on: Annotated[
        list[str] | None,
        Option("--fail-on", metavar="CLASS", help="Also fail on: unmanaged, pending, blocked.", show_default=False),
    ] = None,
    known: Annotated[
        Path | None,
        Option(metavar="FILE", help="Leave out what this file has seen; rewrites it.", show_default=False),
    ] = None,
) -> None:
    """Say where clusters have moved away from the files. Read-only; exits 3 where they have."""
    from reconciler.cli.documents.checks import DriftDocument
    from reconciler.cli.render.drift_text import drift_lines
    from reconciler.workflow.drift import drift

    drifted = drift(place.invocation(), chosen.select(), fail_on=tuple(fail_on or ()), known=known)
    warn_all(drifted.planned.warnings)
    present(form, lambda: drift_lines(drifted), lambda: DriftDocument.of(drifted))
    drifted.remember()
    raise_verdict(drifted.verdict)
