"""`reconciler apply`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.applied import Doing, carry_out
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Chosen, Place

if TYPE_CHECKING:
    from reconciler.workflow.apply import Applied, Hooks


@bundled
def command(
    chosen: Chosen,
    doing: Doing,
    place: Place,
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="A plan saved by `plan --out`.", show_default=False)
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="With FILE: refuse also less, a state that went on, and another git commit.")
    ] = False,
    only_drift: Annotated[
        bool, Option("--only-drift", help="Only set back what drifted; what the files changed stays undone.")
    ] = False,
    resume: Annotated[
        bool, Option("--resume", help="Finish the open run's own plan and nothing else; it was approved.")
    ] = False,
    detach: Annotated[
        bool, Option("--detach", help="Leave the copying of records to a later `apply --resume`, and need no Spark.")
    ] = False,
) -> None:
    """Plan, confirm, do. With FILE: the same as it holds or less, never more."""

    def do(hooks: Hooks) -> Applied:
        from reconciler.workflow.apply import ApplyOptions, apply

        options = doing.options(
            ApplyOptions, file=file, strict=strict, only_drift=only_drift, resumes=resume, leaves_jobs=detach
        )
        return apply(place.invocation(), chosen.select(), options, hooks)

    carry_out(
        do,
        doing,
        question="Apply this plan?",
        is_approved=doing.yes or file is not None or resume,
    )
