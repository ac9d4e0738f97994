"""`drift`: where reality has moved away from the files. Read-only; a plan, sorted by who has to act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from reconciler.errors import DriftError, ReconcilerError, UsageError
from reconciler.workflow.deciding import decide
from reconciler.workflow.findings import errors_of
from reconciler.workflow.known import forget_known
from reconciler.workflow.opening import open_work
from reconciler.workflow.plan import Planned, show_decided
from reconciler.workflow.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reconciler.planning.actions import Value
    from reconciler.planning.plan import DriftFinding, Override, Plan
    from reconciler.resources.address import Address
    from reconciler.workflow.invocation import Invocation, Select

DriftClass: TypeAlias = Literal["drift", "missing", "pending", "unmanaged", "blocked"]
CLASSES: Final[tuple[DriftClass, ...]] = get_args(DriftClass)
_ALWAYS: Final[frozenset[str]] = frozenset({"drift", "missing"})


@dataclass(frozen=True, slots=True)
class Found:
    """One way in which reality and the files differ."""

    kind: DriftClass
    address: Address
    message: str
    path: str = ""
    recorded: Value = None
    observed: Value = None
    fingerprint: str | None = None
    ignored: str | None = None
    """The rule that leaves it as it is; what is ignored is listed and fails nothing."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """Everything found, in the plan's order."""

    planned: Planned
    findings: tuple[Found, ...]
    verdict: ReconcilerError | None


def drift(invocation: Invocation, select: Select, *, fail_on: Sequence[str] = (), known: Path | None = None) -> Drifted:
    """Compare files, state and clusters; `fail_on` adds classes to those that fail, `known` leaves out what was seen.

    Raises:
        UsageError: `fail_on` names no class.
    """
    for name in fail_on:
        if name not in CLASSES:
            raise UsageError(f"there is no class {name!r} of drift", hint=f"Classes: {', '.join(CLASSES)}.")
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    planned = show_decided(work, decide(work, read_state(work)), started_ms)
    findings = sort_out(planned.plan)
    if known is not None:
        findings = forget_known(invocation.cwd / known, findings)
    return Drifted(planned, findings, _verdict(planned.plan, findings, _ALWAYS | set(fail_on)))


def sort_out(plan: Plan) -> tuple[Found, ...]:
    """Sort what a plan holds into classes."""
    moved = tuple(_moved(finding) for finding in plan.drift)
    drifted = {finding.address for finding in moved}
    pending = tuple(
        Found("pending", action.address, f"{action.verb} is planned")
        for action in plan.actions
        if action.address not in drifted and not action.blocked
    )
    blocked = tuple(
        Found("blocked", action.address, f"{action.verb} is blocked: {action.blocked.message}")
        for action in plan.actions
        if action.blocked
    )
    unmanaged = tuple(Found("unmanaged", address, "is there, but nobody declares it") for address in plan.unmanaged)
    return (*moved, *pending, *blocked, *unmanaged, *map(_hiding, plan.overrides))


def _hiding(found: Override) -> Found:
    message = f"{found.path} is set by nobody's file and hides what {found.origin} says"
    return Found("unmanaged", found.address, message, found.path, found.hidden, found.value)


def _moved(finding: DriftFinding) -> Found:
    return Found(
        "drift" if finding.path else "missing",
        finding.address,
        f"{finding.path} was changed on the cluster" if finding.path else "is gone from the cluster",
        path=finding.path,
        recorded=finding.recorded,
        observed=finding.observed,
        fingerprint=finding.fingerprint,
        ignored=finding.ignored,
    )


def _verdict(plan: Plan, findings: Sequence[Found], failing: frozenset[str]) -> ReconcilerError | None:
    if plan.errors:
        return errors_of(plan.errors)
    counts = {
        kind: sum(1 for found in findings if found.kind == kind and found.ignored is None)
        for kind in CLASSES
        if kind in failing
    }
    told = [f"{count} {kind}" for kind, count in counts.items() if count]
    if not told:
        return None
    return DriftError(
        f"reality differs from the files: {', '.join(told)}",
        hint="Set it back with: reconciler apply. Or accept it in the files.",
    )
