"""`reconciler destroy`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli.applied import Doing, carry_out
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Chosen, Place


@bundled
def command(
    chosen: Chosen,
    doing: Doing,
    place: Place,
    recursive: Annotated[bool, Option("--recursive", help="Namespaces with all that is in them.")] = False,
    include_adopted: Annotated[
        bool, Option("--include-adopted", help="Delete also what was adopted; by default it is forgotten.")
    ] = False,
) -> None:
    """Plan and apply the removal of what this workspace created; what it adopted is forgotten."""
    from reconciler.workflow.destroy import destroy

    carry_out(
        lambda hooks: destroy(
            place.invocation(),
            chosen.select(),
            doing.options(),
            recursive=recursive,
            include_adopted=include_adopted,
            confirm=hooks.confirm,
            report=hooks.report,
            stop=hooks.stop,
        ),
        doing,
        question="Destroy this?",
        is_approved=doing.yes,
    )
