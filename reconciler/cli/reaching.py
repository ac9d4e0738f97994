"""The options of commands about migrations: whose they are, and what stands in for a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.again import TypedOptions

if TYPE_CHECKING:
    from reconciler.cli.options import Files, Place
    from reconciler.workflow.mounting.reaching import Reach


@dataclass(frozen=True, slots=True)
class ByState:
    """By what a state recorded, in place of the files of a workspace."""

    state: Annotated[
        str | None,
        Option(metavar="URL", help="Where the state is, in place of a workspace.", show_default=False),
    ] = None
    no_state: Annotated[
        bool, Option("--no-state", help="Go on where the state, which says which cluster this is, cannot be read.")
    ] = False

    def typed(self) -> TypedOptions:
        """Return what a hint has to name of it."""
        return TypedOptions(state=() if self.state is None else ("--state", self.state))

    def reach(self, files: Files, place: Place) -> Reach:
        """Say it in the words of the workflow."""
        from reconciler.workflow.mounting.reaching import Reach

        return Reach(invocation=place.invocation(), select=files.select(), state_url=self.state, no_state=self.no_state)


Id = Annotated[int, Argument(metavar="ID", min=1, help="Of the migration, as `mount status` shows it.")]
Cluster = Annotated[
    str | None, Option("--cluster", metavar="NAME", help="Whose migration; each counts its own.", show_default=False)
]
