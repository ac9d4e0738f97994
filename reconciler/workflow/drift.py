"""`drift`: where reality has moved away from the files. Read-only; a plan, sorted by who has to act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import DriftError, ReconcilerError, UserError
from reconciler.manifests.files import WORKSPACE_FILE
from reconciler.planning.finding import Finding
from reconciler.planning.judging.detaching import sealed
from reconciler.planning.wanted.commanded import commanded
from reconciler.resources.address import cluster_address, matches
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.deciding.decide import decide_unlocked
from reconciler.workflow.deciding.findings import errors_of
from reconciler.workflow.drifting.doubts import doubts, unreadable, without_doubtful
from reconciler.workflow.drifting.finding import CLASSES, Found, failing
from reconciler.workflow.drifting.known import Known, Whose
from reconciler.workflow.drifting.sorting import sort_out
from reconciler.workflow.looking.observing import unreachable
from reconciler.workflow.plan import Planned, show_decided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from reconciler.planning.plan import Plan, Waiting
    from reconciler.planning.wanted.commanded import Commanded
    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Work
    from reconciler.workflow.deciding.decide import Decided
    from reconciler.workflow.drifting.finding import DriftClass


@dataclass(frozen=True, slots=True)
class Drifted:
    """Everything found, in the plan's order."""

    planned: Planned
    findings: tuple[Found, ...]
    """What is to be told: without what the caller knows."""
    failing: tuple[Found, ...]
    """Those of them that make the exit code 3."""
    verdict: ReconcilerError | None
    known: Known | None = None
    unreadable: Finding | None = None
    """An open run of which nobody can tell what it did: what is in doubt is not known."""
    sealed: tuple[Finding, ...] = ()
    """The topics that take no records, since a move or unmount was broken off."""
    lost: tuple[Finding, ...] = ()
    """The clusters that could not be read. A plan may do without them; what changed there is not known."""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is odd about the rules of the workspace, and who is shut out; what is odd about a plan, `plan` says."""
        plan = self.planned.plan
        rules = tuple(finding for finding in plan.warnings if finding.source == WORKSPACE_FILE)
        return (*rules, *(_half_way(each) for each in plan.waiting if each.is_shut), *self.sealed)

    @property
    def obstacles(self) -> tuple[Finding, ...]:
        """What kept something from being compared."""
        return (*self._unknown, *_obstacles(self.planned.plan))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The obstacles, and why something that drifted cannot be set back."""
        return (*self._unknown, *self.planned.plan.errors)

    @property
    def _unknown(self) -> tuple[Finding, ...]:
        return self.lost if self.unreadable is None else (self.unreadable, *self.lost)

    def remember(self) -> None:
        """Keep in the file of `known` that all this was told."""
        if self.known is not None:
            self.known.remember()


def _half_way(each: Waiting) -> Finding:
    message = f"it is half-way ({each.state}): it takes no records until that is finished"
    return Finding(each.address, None, message, "Finish it with: reconciler run --once --only mirror")


def drift(invocation: Invocation, select: Select, *, fail_on: Sequence[str] = (), known: Path | None = None) -> Drifted:
    """Compare files, state and clusters; `fail_on` adds classes to those that fail, `known` leaves out what was told.

    Whoever shows what is returned calls its `remember` afterwards: what could not be shown is told the next time.

    Raises:
        UsageError: `fail_on` names no class.
    """
    kinds = failing(fail_on)
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    decided = decide_unlocked(work)
    planned = show_decided(work, decided, started_ms)
    doubtful = doubts(work.state, decided.remembered, _chosen(select))
    findings = without_doubtful(sort_out(planned.plan, _roles(work, decided, select)), doubtful)
    unknown, lost = _unknown_run(work, decided), _lost(decided)
    told = None
    if known is not None:
        told = Known.read(
            invocation.cwd / known,
            _whose(planned.plan),
            findings,
            (lambda _address: False) if unknown is not None or lost else _was_looked_at(planned.plan, select),
        )
        findings = told.unknown
    fails = tuple(found for found in findings if found.kind in kinds and found.ignored is None)
    if unknown is not None:
        verdict: ReconcilerError | None = UserError(unknown.message, hint=unknown.hint)
    elif lost and not _obstacles(planned.plan):
        verdict = unreachable(decided.seen.lost)
    else:
        verdict = _verdict(planned.plan, fails, lost)
    is_chosen = _chosen(select)
    shut = tuple(sealed({a: o for a, o in decided.seen.inventory.items() if is_chosen(a)}))
    return Drifted(planned, findings, fails, verdict, told, unknown, shut, lost)


def _roles(work: Work, decided: Decided, select: Select) -> tuple[Commanded, ...]:
    is_chosen = _chosen(select)
    found = commanded(work.loaded.desired, decided.recorded, decided.seen.inventory)
    return tuple(each for each in found if is_chosen(each.mirror.address))


def _unknown_run(work: Work, decided: Decided) -> Finding | None:
    """Return that a part of what is in doubt cannot be known. Knowing less is never better than knowing of doubt."""
    why = unreadable(work.state, decided.remembered)
    return None if why is None else Finding(None, None, why.message, why.hint)


def _lost(decided: Decided) -> tuple[Finding, ...]:
    """Return, for each cluster that the plan does without, that it could not be read, and how to leave it out."""
    declared = {finding.address: finding.source for finding in decided.plan.warnings}
    errors = {name: unreachable({name: why}) for name, why in sorted(decided.seen.lost.items())}
    return tuple(
        Finding(cluster_address(name), declared.get(cluster_address(name)), error.message, error.hint)
        for name, error in errors.items()
    )


def _whose(plan: Plan) -> Whose:
    return Whose(plan.workspace, plan.environment, plan.base.lineage if plan.base else None)


def _was_looked_at(plan: Plan, select: Select) -> Callable[[Address], bool]:
    """Return the test of an address: whether drift that was not found there is gone."""
    if _obstacles(plan) or select.labels or select.changed_since is not None:
        return lambda _address: False
    return _chosen(select)


def _chosen(select: Select) -> Callable[[Address], bool]:
    """Return the test of an address by its name alone."""

    def test(address: Address) -> bool:
        is_target = not select.targets or any(matches(pattern, address) for pattern in select.targets)
        return is_target and not any(matches(pattern, address) for pattern in select.excludes)

    return test


def _obstacles(plan: Plan) -> tuple[Finding, ...]:
    """Return what kept something from being compared: that drift cannot be set back is no error of looking for it."""
    moved = {finding.address for finding in plan.drift}
    return tuple(error for error in plan.errors if error.address not in moved)


def _verdict(plan: Plan, fails: Sequence[Found], lost: Sequence[Finding]) -> ReconcilerError | None:
    obstacles = (*lost, *_obstacles(plan))
    if obstacles:
        return errors_of(obstacles)
    counts = {kind: sum(found.kind == kind for found in fails) for kind in CLASSES}
    told = [f"{count} {kind}" for kind, count in counts.items() if count]
    if not told:
        return None
    return DriftError(f"reality differs from the files: {', '.join(told)}", hint=_way_on(plan, fails))


def _way_on(plan: Plan, fails: Sequence[Found]) -> str:
    """Return what to type: never what would leave all of it as it is."""
    accepting = "take it into the files: reconciler drift --accept ADDR"
    refused = {finding.address for finding in plan.errors}
    moved = [found for found in fails if found.kind in {"drift", "missing"}]
    back = [found for found in moved if found.path != "incarnation"]
    if any(found.address in refused for found in moved):
        return f"Not all of it can be set back: `reconciler plan` says why. Or {accepting}"
    if back:
        return f"Set it back: reconciler apply --only-drift. Or {accepting}"
    if moved:
        return "What was deleted and made anew cannot be set back. Adopt it with: reconciler apply"
    ways: dict[DriftClass, str] = {
        "in doubt": "Find out what happened, and go on from there: reconciler apply",
        "pending": "Do what the files say: reconciler apply",
        "blocked": "See what would allow it: reconciler plan",
        "unmanaged": f"Leave it as it is, or {accepting}",
    }
    return next(ways[kind] for kind in ways if any(found.kind == kind for found in fails))
