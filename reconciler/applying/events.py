"""The events of a run, one JSON object a line, and failures that are alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import plan_document
from reconciler.resources.address import Address
from reconciler.state.journal import ActionSkipped, Parting, StateAdvance

if TYPE_CHECKING:
    from reconciler.providers.protocol import Failed


# Failures that are alike, told once: the same error, but for the name of what it happened to.


@dataclass(frozen=True, slots=True)
class Alike:
    """Actions that failed for one reason. Where they are several, `…` in `error` and `hint` stands for their names."""

    error: str
    """If several actions failed, … stands for their names."""
    hint: str
    ids: tuple[str, ...]


def alike(failed: Iterable[Failed]) -> tuple[Alike, ...]:
    """Return failures grouped by their reason: the most frequent first, else in the order in which they happened."""
    groups: dict[tuple[str, str], list[Failed]] = {}
    for failure in failed:
        key = (nameless(failure.error.message, failure.id), nameless(failure.error.hint, failure.id))
        groups.setdefault(key, []).append(failure)
    groups_of_failures = (
        Alike(*(key if len(group) > 1 else (group[0].error.message, group[0].error.hint)), _ids(group))
        for key, group in groups.items()
    )
    return tuple(sorted(groups_of_failures, key=lambda group: -len(group.ids)))


def by_cause(skipped: Iterable[ActionSkipped]) -> dict[str, tuple[str, ...]]:
    """Return what was skipped by the failed action it leans on: what cost most first."""
    causes: dict[str, list[str]] = {}
    for skip in skipped:
        causes.setdefault(skip.because, []).append(skip.id)
    return {cause: tuple(ids) for cause, ids in sorted(causes.items(), key=lambda item: -len(item[1]))}


def nameless(text: str, action: str) -> str:
    """Leave out of a message what it happened to: the action's id, its address, or its name."""
    address = action.partition(":")[2]
    for name in (action, address, address.rpartition("/")[2]):
        if name and name in text:
            text = re.sub(rf"(?<![\w.:/-]){re.escape(name)}(?![\w/-]|[.:]\w)", "…", text)
    return text


def _ids(group: Sequence[Failed]) -> tuple[str, ...]:
    return tuple(failure.id for failure in group)


@dataclass(frozen=True, slots=True)
class Approval:
    """What is planned now is what was approved, or less."""

    not_needed: tuple[str, ...]
    """Ids of approved actions that are no longer planned."""
    advance: StateAdvance | None = None
    """Set if the state changed after the approval; the rest of the plan is as it was."""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The plan a run carries out."""

    plan: Plan

    @property
    def document(self) -> Mapping[str, Any]:
        """A document of reconciler.plan/1."""
        return plan_document(self.plan)


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """An action was handed to its platform or job."""

    id: str
    address: Address


@dataclass(frozen=True, slots=True)
class Ran:
    """Where the tasks of a job ran, so far or in all."""

    engine: str = ""
    """As the plan names it: `in process`, `Spark local[*]`; empty where no task ran."""
    spark_tasks: int = 0
    """Tasks that Spark was given."""
    starting_s: float = 0.0
    """How long was waited for Spark to start; no record moved meanwhile."""

    def __add__(self, other: Ran) -> Ran:
        """Return where both ran; Spark is named where one of them ran there."""
        first = self if self.spark_tasks or not other.spark_tasks else other
        tasks, starting_s = self.spark_tasks + other.spark_tasks, self.starting_s + other.starting_s
        return Ran(first.engine or other.engine, tasks, starting_s)


NOWHERE: Final = Ran()
"""No task ran."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far long work is; totals are estimates."""

    id: str
    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    seconds_left: float | None = None
    """Null until a rate is known."""
    ran: Ran = NOWHERE
    partitions_done: int = 0
    """Partitions that are complete."""
    partitions: int = 0
    """All partitions; 0 if the work is not divided into partitions."""


@dataclass(frozen=True, slots=True)
class ActionDone:
    """An action is complete and durable."""

    id: str
    address: Address
    seconds: float
    records: int = 0
    """What a job moved."""
    bytes: int = 0
    """What a job moved."""
    ran: Ran = NOWHERE


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """An action was refused; what leans on it is skipped."""

    id: str
    address: Address
    error: str
    hint: str


@dataclass(frozen=True, slots=True)
class RunRecovered:
    """An earlier run that had not closed was settled."""

    run: str
    who: str
    settled: Mapping[str, str]
    """The result of each action in doubt, by id: absent, done, partial (and completed), conflict, under way (begun on
    two clusters, and not at its end), moving (its replicas still move), or unknown if the cluster could not be read.
    """
    parting: Parting | None = None
    """Whether it was stopped, or left what is left on purpose; `None`: it was cut off."""
    left: int = 0
    """How many actions it had not begun."""


@dataclass(frozen=True, slots=True)
class RunHandedOver:
    """The run ends here, and these actions are left to the next."""

    left: tuple[str, ...]
    """Ids of actions, in plan order."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Someone else took over: nothing more is started or written."""

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
    """The state committed at the end. Null: none was."""
    skipped_because: Mapping[str, str] = field(default_factory=dict)
    """Skipped id to the failed id that it depends on."""
    failures: tuple[Alike, ...] = ()
    """The most frequent reason first."""
    in_doubt: tuple[str, ...] = ()
    """Ids of failed actions whose result is unknown; the run stays open."""
    ran: Ran = NOWHERE
    """Where its jobs ran."""
    approved_by: tuple[str, ...] = ()
    """Who approved it."""
    pull_request: str | None = None
    """Address of the pull request in which they approved."""


@dataclass(frozen=True, slots=True)
class ResultMissing:
    """The run has ended as its summary says, and all of it is recorded; only its `result.json` could not be written."""

    run: str
    error: str
    serial: int
    """The state in which it is recorded."""


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
