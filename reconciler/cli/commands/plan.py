"""`reconciler plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import err
from reconciler.cli.options import AnyForm, Chosen, Place
from reconciler.cli.presenting import blocked_above, raise_verdict
from reconciler.cli.render.lines import line
from reconciler.errors import BlockedError


@bundled
def command(
    chosen: Chosen,
    place: Place,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Save the plan for `apply FILE`.", show_default=False),
    ] = None,
    form: AnyForm = "text",
    detailed_exitcode: Annotated[
        bool, Option("--detailed-exitcode", help="Exit 7 if anything is blocked, else 2 if anything would change.")
    ] = False,
) -> None:
    """Show what would change. Changes nothing and takes no lock."""
    from reconciler.cli.outputs import checked_output

    file = None if out is None else checked_output("--out", out, "a saved plan")
    invocation = place.invocation()
    from reconciler.cli.planned import show_planned
    from reconciler.workflow.plan import plan

    planned = plan(invocation, chosen.select(), out=file)
    show_planned(planned, form)
    if file is not None:
        err().show([line(f"Saved. To do exactly this:  reconciler apply {file}")])
    verdict = planned.verdict(detailed=detailed_exitcode)
    raise_verdict(blocked_above(planned.plan) if isinstance(verdict, BlockedError) else verdict)
