"""`reconciler destroy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

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
    recursive: Annotated[bool, Option("--recursive", help="Namespaces with all that is in them.")] = False,
    include_adopted: Annotated[
        bool, Option("--include-adopted", help="Delete also what was adopted; by default it is forgotten.")
    ] = False,
) -> None:
    """Plan and apply the removal of what this workspace created; what it adopted is forgotten."""

    def do(hooks: Hooks) -> Applied:
        from reconciler.workflow.destroy import DestroyOptions, destroy

        options = doing.options(DestroyOptions, recursive=recursive, include_adopted=include_adopted)
        return destroy(place.invocation(), chosen.select(), options, hooks)

    carry_out(
        do,
        doing,
        question="Destroy this?",
        is_approved=doing.yes,
    )
