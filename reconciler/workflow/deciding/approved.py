"""What was approved, held against what is planned under the lease: the same or less is done, never more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import StalePlanError
from reconciler.planning.document.comparing import SameOrLess, compare
from reconciler.planning.document.foreign import Here, refuse_foreign, refuse_other_commit, refuse_other_state
from reconciler.state.advance import StateAdvance, advance_since
from reconciler.state.lockfile import read_lockfile
from reconciler.workflow.counting import counted

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.planning.document.documents import PlanDocument
    from reconciler.planning.plan import Plan
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Work

_NAMED: Final = 5
"""How many actions a message names."""
_SAVE_AGAIN: Final = "Nothing was done. Look at the plan again and save it: reconciler plan --out FILE"
_ASK_AGAIN: Final = "Nothing was done. Look at the plan again: reconciler apply"


@dataclass(frozen=True, slots=True)
class Held:
    """How what is planned now stands to what was approved."""

    difference: SameOrLess
    advance: StateAdvance | None = None


class ChangedPlanError(StalePlanError):
    """What would happen now is not what was approved, so nothing was done; `held` says in what."""

    def __init__(self, message: str, held: Held, *, hint: str) -> None:
        """Keep the difference for whoever shows it."""
        super().__init__(message, hint=hint)
        self.held = held


@dataclass(frozen=True, slots=True)
class Approved:
    """A plan somebody agreed to. `is_strict`: not even less may be done, nor on another state or commit."""

    document: PlanDocument
    is_strict: bool = False

    def check_place(self, work: Work) -> None:
        """Refuse before anything is locked what was made for somewhere else.

        Raises:
            UserError: It is of another workspace, environment, version or state, or with `is_strict` another commit.
        """
        here = Here(
            workspace=work.loaded.workspace.metadata.name,
            environment=work.select.environment,
            tool=work.invocation.tool,
        )
        refuse_foreign(self.document, here)
        if self.is_strict:
            refuse_other_commit(self.document, work.invocation.git_commit(work.folder))
        found = read_lockfile(work.state, owner=work.owner)
        refuse_other_state(self.document, found.lockfile.lineage if found else None)

    def hold(self, now: Plan, snapshot: Snapshot, store: ObjectStore) -> Held:
        """Hold a plan made under the lease against what was approved.

        Raises:
            ChangedPlanError: It is more; with `is_strict` also where it is less, or the state went on.
            UserError: The state was replaced by another one.
        """
        refuse_other_state(self.document, snapshot.lineage)
        held = Held(compare(self.document, now), advance_since(_base(self.document), snapshot, store))
        found = held.difference
        hint = _SAVE_AGAIN if self.document.seal else _ASK_AGAIN
        if not found.is_allowed:
            named = "; ".join(f"{each.id}: {each.message}" for each in found.more[:_NAMED])
            count = counted(len(found.more), "action differs", "actions differ")
            message = f"the world no longer matches the plan that was approved, {count}:\n{named}"
            raise ChangedPlanError(message, held, hint=hint)
        if not self.is_strict:
            return held
        if held.advance is not None:
            raise ChangedPlanError(f"{held.advance} (--strict)", held, hint=hint)
        if found.not_needed:
            named = ", ".join(found.not_needed[:_NAMED])
            raise ChangedPlanError(f"less is left to do than was approved (--strict):\n{named}", held, hint=hint)
        return held


def _base(document: PlanDocument) -> tuple[int, str]:
    """Return serial and sha256 of the state a plan was made on."""
    return (document.base.serial, document.base.sha256) if document.base else (0, "")
