"""`reconciler apply`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.applied import Doing, Hooks, carry_out
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Chosen, Place

if TYPE_CHECKING:
    from reconciler.workflow.apply import Applied


@bundled
def command(
    chosen: Chosen,
    doing: Doing,
    place: Place,
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="A plan saved by `plan --out`.", show_default=False)
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="With FILE: refuse also when less than it holds is left to do.")
    ] = False,
    only_drift: Annotated[
        bool, Option("--only-drift", help="Only set back what drifted; what the files changed stays undone.")
    ] = False,
) -> None:
    """Plan, confirm, do. With FILE: the same as it holds or less, never more."""

    def do(hooks: Hooks) -> Applied:
        from reconciler.workflow.apply import apply

        return apply(
            place.invocation(),
            chosen.select(),
            doing.options(file=file, strict=strict, only_drift=only_drift),
            confirm=hooks.confirm,
            report=hooks.report,
            stop=hooks.stop,
        )

    carry_out(
        do,
        doing,
        question="Apply this plan?",
        is_approved=doing.yes or file is not None,
    )
