"""Events of a run, and failures grouped by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import build_plan_document
from reconciler.resources.address import Address
from reconciler.runtime.dataclass import dataclass, field
from reconciler.state.journal import ActionSkipped, RunEnding, StateAdvance

if TYPE_CHECKING:
    from reconciler.providers.protocol import FailedAction


@dataclass(frozen=True, slots=True)
class Alike:
    """Actions that failed for the same reason."""

    error: str
    """Error message. If several actions failed, `…` replaces names."""
    hint: str
    ids: tuple[str, ...]


def group_failures(failed: Iterable[FailedAction]) -> tuple[Alike, ...]:
    """Group failures by reason, the largest group first."""
    groups: dict[tuple[str, str], list[FailedAction]] = {}
    for failure in failed:
        key = (mask_names(failure.error.message, failure.id), mask_names(failure.error.hint, failure.id))
        groups.setdefault(key, []).append(failure)
    groups_of_failures = (
        Alike(*(key if len(group) > 1 else (group[0].error.message, group[0].error.hint)), _list_ids(group))
        for key, group in groups.items()
    )
    return tuple(sorted(groups_of_failures, key=lambda group: -len(group.ids)))


def group_skipped_actions(skipped: Iterable[ActionSkipped]) -> dict[str, tuple[str, ...]]:
    """Map failed actions to their skipped dependents, the largest group first."""
    causes: dict[str, list[str]] = {}
    for skip in skipped:
        causes.setdefault(skip.because, []).append(skip.id)
    return {cause: tuple(ids) for cause, ids in sorted(causes.items(), key=lambda item: -len(item[1]))}


def mask_names(text: str, action: str) -> str:
    """Replace the action's id, address and name in `text` by `…`."""
    address = action.partition(":")[2]
    for name in (action, address, address.rpartition("/")[2]):
        if name and name in text:
            text = re.sub(rf"(?<![\w.:/-]){re.escape(name)}(?![\w/-]|[.:]\w)", "…", text)
    return text


def _list_ids(group: Sequence[FailedAction]) -> tuple[str, ...]:
    return tuple(failure.id for failure in group)


@dataclass(frozen=True, slots=True)
class Approval:
    """The current plan equals the approved plan, or is a part of it."""

    not_needed: tuple[str, ...]
    """Ids of approved actions that are no longer planned."""
    advance: StateAdvance | None = None
    """Commits after the approval that do not affect the plan."""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The plan that the run executes."""

    plan: Plan

    @property
    def document(self) -> Mapping[str, Any]:
        """The plan as the document `reconciler.plan/1`."""
        return build_plan_document(self.plan)


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """An action has started."""

    id: str
    address: Address


@dataclass(frozen=True, slots=True)
class JobExecution:
    """Where the tasks of a job ran."""

    engine: str = ""
    """Engine as named in the plan: `in process`, `Spark local[*]`. Empty if no task ran."""
    spark_tasks: int = 0
    starting_s: float = 0.0
    """Seconds of waiting for Spark to start."""

    def __add__(self, other: JobExecution) -> JobExecution:
        """The engine is Spark if a task ran there."""
        first = self if self.spark_tasks or not other.spark_tasks else other
        tasks, starting_s = self.spark_tasks + other.spark_tasks, self.starting_s + other.starting_s
        return JobExecution(first.engine or other.engine, tasks, starting_s)


NO_EXECUTION: Final = JobExecution()


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a job. Totals are estimates."""

    id: str
    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    seconds_left: float | None = None
    """`None` until the job knows its rate."""
    ran: JobExecution = NO_EXECUTION
    partitions_done: int = 0
    partitions: int = 0
    """Number of partitions; 0 if the work has none."""
    phase: str = ""
    """Preparation before the job moves records, such as `starting Spark`."""


@dataclass(frozen=True, slots=True)
class ActionDone:
    """An action is complete, and its result is in the journal."""

    id: str
    address: Address
    seconds: float
    records: int = 0
    bytes: int = 0
    ran: JobExecution = NO_EXECUTION


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """An action failed; its dependents are skipped."""

    id: str
    address: Address
    error: str
    hint: str


@dataclass(frozen=True, slots=True)
class RunRecovered:
    """An interrupted earlier run is settled: the results of its actions are known."""

    run: str
    who: str
    settled: Mapping[str, str]
    """Results, by id, of actions whose result was unknown after the interruption.

    `absent`: it did not happen. `partial`: it was completed now. `conflict`: another process changed the resource.
    `under way`: the transition has not ended. `moving`: replicas still move. `unknown`: the resource is not readable.
    """
    parting: RunEnding | None = None
    """How the run ended: stopped or handed over; null if it was killed."""
    left: int = 0
    """Number of actions not started."""


@dataclass(frozen=True, slots=True)
class RunHandedOver:
    """The run ended and leaves actions to the next run."""

    left: tuple[str, ...]
    """Action ids in plan order."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another process took the lease. This run starts no more actions and writes nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class Summary:
    """How the run ended."""

    run: str
    done: int
    failed: int
    skipped: int
    not_started: int
    seconds: float
    serial: int | None = None
    """Serial of the last committed state; null if none was committed."""
    skipped_because: Mapping[str, str] = field(default_factory=dict)
    """Maps the id of a skipped action to that of the failed action that it depends on."""
    failures: tuple[Alike, ...] = ()
    """Failures by reason, the most frequent first."""
    in_doubt: tuple[str, ...] = ()
    """Ids of failed actions whose result is unknown."""
    ran: JobExecution = NO_EXECUTION
    approved_by: tuple[str, ...] = ()
    pull_request: str | None = None
    """URL of the approved pull request."""


@dataclass(frozen=True, slots=True)
class ResultMissing:
    """The state records the run, but its `result.json` could not be written."""

    run: str
    error: str
    serial: int
    """Serial of the state that records the run."""


Event: TypeAlias = (
    Approval
    | PlanMade
    | ActionStarted
    | Progress
    | ActionDone
    | ActionFailed
    | RunRecovered
    | RunHandedOver
    | LeaseLost
    | Summary
    | ResultMissing
)
