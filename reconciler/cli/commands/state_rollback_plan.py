"""`reconciler state rollback-plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import err
from reconciler.cli.options import AnyForm, Files, Place
from reconciler.cli.presenting import raise_verdict
from reconciler.cli.render.lines import line


@bundled
def command(
    files: Files,
    place: Place,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="A state, as `state history` numbers them.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Save the plan for `apply FILE`.", show_default=False),
    ] = None,
    target: Annotated[
        list[str] | None,
        Option("--target", metavar="ADDR", help="Only this, and what it depends on.", show_default=False),
    ] = None,
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="ADDR", help="Leave this alone.", show_default=False)
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="VERB:ADDR", help="Allow what a guard would block.", show_default=False),
    ] = None,
    form: AnyForm = "text",
) -> None:
    """Plan back to what was applied as an earlier state. Changes nothing; `apply FILE` does it."""
    from dataclasses import replace

    from reconciler.cli.outputs import checked_output
    from reconciler.cli.planned import show_planned
    from reconciler.workflow.stating.rollback import rollback_plan

    file = None if out is None else checked_output("--out", out, "a saved plan")
    select = replace(
        files.select(), targets=tuple(target or ()), excludes=tuple(exclude or ()), allow=tuple(allow or ())
    )
    planned = rollback_plan(place.invocation(), select, serial, out=file)
    show_planned(planned, form)
    if file is not None:
        err().show([line(f"Saved. To do exactly this:  reconciler apply {file}")])
    raise_verdict(planned.verdict())
