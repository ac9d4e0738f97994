"""A saved plan belongs to one workspace, one environment, one version, one state: anywhere else it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.planning.document.reading import AGAIN

if TYPE_CHECKING:
    from reconciler.planning.document.documents import PlanDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a saved plan is about to be applied."""

    workspace: str
    environment: str | None
    tool: str


def refuse_foreign(document: PlanDocument, here: Here) -> None:
    """Refuse a saved plan of another workspace, environment or version.

    Raises:
        UserError: Says which of them differs.
    """
    _refuse("workspace", document.workspace, here.workspace)
    _refuse("environment", document.environment, here.environment)
    _refuse("version of reconciler", document.tool, here.tool)


def refuse_other_commit(document: PlanDocument, commit: str | None) -> None:
    """Refuse a saved plan of another git commit than the files are at.

    Raises:
        UserError: Says both.
    """
    _refuse("git commit", document.git.commit if document.git else None, commit)


def refuse_other_state(document: PlanDocument, lineage: str | None) -> None:
    """Refuse a plan made on a state that is not the one there is now: it was replaced, or is gone (`None`).

    A plan made where there was no state yet fits the first one.

    Raises:
        UserError: Says both lineages.
    """
    if document.base is None or document.base.lineage == lineage:
        return
    found = f"another state is there, of lineage {lineage}" if lineage else "no state is there any more"
    raise UserError(
        f"the saved plan was made on the state of lineage {document.base.lineage}, and {found}",
        hint=f"Check `spec.state`, and who replaced it. {AGAIN}",
    )


def _refuse(what: str, there: str | None, here: str | None) -> None:
    if there != here:
        raise UserError(f"the saved plan is of {what} {there or 'none'}, this is {here or 'none'}", hint=AGAIN)
