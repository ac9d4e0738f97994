"""`plan`: what would change, without a lock and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.errors import BlockedError, PendingError, ReconcilerError, UserError
from reconciler.objectstore.files import write_whole
from reconciler.planning.document.documents import PlanDocument
from reconciler.planning.document.saved import canonical_bytes, to_document
from reconciler.workflow.beginning.opening import Work, open_work
from reconciler.workflow.deciding.decide import Decided, decide_unlocked
from reconciler.workflow.deciding.findings import errors_of
from reconciler.workflow.deciding.saved import to_options

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.planning.plan import Plan
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line of a plan says."""

    topics: int
    clusters: int
    seconds: float
    serial: int | None
    commit: str | None


@dataclass(frozen=True)
class Planned:
    """A finished plan, ready to be shown."""

    plan: Plan
    header: Header
    options: Select
    folder: Path
    warnings: tuple[str, ...] = ()

    @cached_property
    def document(self) -> PlanDocument:
        """The plan as the JSON that `--format json` writes."""
        return to_document(self.plan)

    def verdict(self, *, detailed: bool = False) -> ReconcilerError | None:
        """Return what the exit code says: errors always, blocked and pending only where asked for."""
        if self.plan.errors:
            return errors_of(self.plan.errors)
        if detailed and self.plan.blocked:
            return BlockedPlanError(self)
        if detailed and not self.plan.is_empty:
            count = len(self.plan.actions)
            return PendingError(f"{count} changes are pending", hint="Run: reconciler apply")
        return None


class BlockedPlanError(BlockedError):
    """A guard refused a part of a plan, so nothing of it was done; `planned` is for showing."""

    def __init__(self, planned: Planned) -> None:
        """Name what is blocked, and the words that would allow it."""
        actions = planned.plan.blocked
        allows = [action.blocked.allow for action in actions if action.blocked and action.blocked.allow]
        hint = f"Allow once with {' '.join(f'--allow {allow}' for allow in allows)}" if allows else "Change the files."
        what = "; ".join(f"{action.id}: {action.blocked.message}" for action in actions if action.blocked)
        super().__init__(f"nothing was done: {len(actions)} blocked ({what})", hint=hint)
        self.planned = planned


def plan(invocation: Invocation, select: Select, *, out: Path | None = None) -> Planned:
    """Plan the workspace as its files are; with `out` also write the plan there, for `apply FILE`."""
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    work.warn_about_local_state()
    planned = show_decided(work, decide_unlocked(work), started_ms)
    if out is not None:
        options = to_options(select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, to_document(planned.plan, options))
    return planned


def show_decided(work: Work, decided: Decided, started_ms: int) -> Planned:
    """Wrap what was decided with what a reader wants to know about how."""
    snapshot = decided.snapshot
    header = Header(
        topics=decided.seen.topics,
        clusters=len(decided.seen.identities),
        seconds=max(0, work.invocation.now_ms() - started_ms) / 1000,
        serial=snapshot.serial if snapshot else None,
        commit=decided.plan.git_commit,
    )
    warnings = tuple(str(problem) for problem in work.loaded.warnings)
    return Planned(decided.plan, header, work.select, work.folder, warnings)


def write_plan(path: Path, document: PlanDocument) -> None:
    """Write a plan's document to a file."""
    try:
        write_whole(path, canonical_bytes(document))
    except OSError as error:
        raise UserError(
            f"cannot write the plan to {path}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error
