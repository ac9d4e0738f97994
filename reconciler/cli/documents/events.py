"""JSON of `apply --format json`: one event a line."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, assert_never

import orjson
from pydantic import Field, RootModel

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Approval,
    Detached,
    Event,
    LeaseLost,
    PlanMade,
    Progress,
    Recovered,
    ResultMissing,
    Summary,
)
from reconciler.cli.documents.approvals import StateAdvancePart
from reconciler.cli.documents.base import Document
from reconciler.cli.documents.refusals import ErrorEvent
from reconciler.foreign import json_shown


class _Event(Document):
    format: Literal["reconciler.event/1"] = "reconciler.event/1"


class ApprovedEvent(_Event):
    """What is planned now is what was approved, or less."""

    event: Literal["approved"] = "approved"
    not_needed: tuple[str, ...] = Field(description="Ids of approved actions that are planned no more.")
    state: StateAdvancePart | None = Field(description="The state went on since; nothing of the plan did.")


class PlanEvent(_Event):
    """The plan that is carried out."""

    event: Literal["plan"] = "plan"
    plan: dict[str, Any] = Field(description="A document of reconciler.plan/1.")


class ActionStartedEvent(_Event):
    """An action was handed to its platform or job."""

    event: Literal["action_started"] = "action_started"
    id: str
    address: str


class ProgressEvent(_Event):
    """How far long work is; totals are estimates."""

    event: Literal["progress"] = "progress"
    id: str
    records: int
    records_total: int
    bytes: int
    bytes_total: int
    seconds: float
    seconds_left: float | None = Field(description="Null until a rate is known.")


class ActionDoneEvent(_Event):
    """An action is complete and durable."""

    event: Literal["action_done"] = "action_done"
    id: str
    address: str
    seconds: float
    records: int = Field(description="What a job moved.")
    bytes: int = Field(description="What a job moved.")


class ActionFailedEvent(_Event):
    """An action was refused; what leans on it is skipped."""

    event: Literal["action_failed"] = "action_failed"
    id: str
    address: str
    error: str
    hint: str


class RecoveredEvent(_Event):
    """An earlier run that had not closed was settled."""

    event: Literal["recovered"] = "recovered"
    run: str
    who: str
    settled: dict[str, str] = Field(
        description=(
            "Action id to absent, done, partial (and completed), conflict, under way (begun on two clusters, and not "
            "at its end), or unknown where nobody could look."
        )
    )


class DetachedEvent(_Event):
    """The run ends here; what is left is the next one's."""

    event: Literal["detached"] = "detached"
    left: tuple[str, ...] = Field(description="Ids of actions, in plan order.")


class LeaseLostEvent(_Event):
    """Someone else took over: nothing more is started."""

    event: Literal["lease_lost"] = "lease_lost"
    message: str


class FailuresPart(Document):
    """Actions that failed for one reason."""

    error: str = Field(description="Where there are several actions, … stands for their names.")
    hint: str
    ids: tuple[str, ...]


class SummaryEvent(_Event):
    """How the run ended."""

    event: Literal["summary"] = "summary"
    run: str
    done: int
    failed: int
    skipped: int
    not_started: int
    seconds: float
    serial: int | None = Field(description="The state committed at the end.")
    skipped_because: dict[str, str] = Field(description="Skipped id to the failed id it leans on.")
    failures: tuple[FailuresPart, ...] = Field(description="The most frequent reason first.")
    in_doubt: tuple[str, ...] = Field(
        description="Failed ids of which nobody knows whether they happen; the run stays open."
    )


class ResultMissingEvent(_Event):
    """The run has ended as its summary says and is recorded; only its result.json could not be written."""

    event: Literal["result_missing"] = "result_missing"
    run: str
    error: str
    serial: int = Field(description="The state in which it is recorded.")


AnyEvent: TypeAlias = (
    ApprovedEvent
    | PlanEvent
    | ActionStartedEvent
    | ProgressEvent
    | ActionDoneEvent
    | ActionFailedEvent
    | RecoveredEvent
    | DetachedEvent
    | LeaseLostEvent
    | SummaryEvent
    | ResultMissingEvent
    | ErrorEvent
)


class EventDocument(RootModel[Annotated[AnyEvent, Field(discriminator="event")]]):
    """One line of `apply --format json`."""


def event_line(event: Event) -> bytes:
    """Return an event as its line."""
    return json_shown(orjson.dumps(_said(event).model_dump(mode="json"))) + b"\n"


def _said(event: Event) -> AnyEvent:
    match event:
        case Approval():
            return ApprovedEvent(not_needed=event.not_needed, state=StateAdvancePart.of(event.advance))
        case PlanMade():
            return PlanEvent(plan=dict(event.document))
        case ActionStarted():
            return ActionStartedEvent(id=event.id, address=event.address)
        case Progress():
            return ProgressEvent(
                id=event.id,
                records=event.records,
                records_total=event.records_total,
                bytes=event.bytes,
                bytes_total=event.bytes_total,
                seconds=round(event.seconds, 3),
                seconds_left=None if event.seconds_left is None else round(event.seconds_left, 3),
            )
        case ActionDone():
            return ActionDoneEvent(
                id=event.id,
                address=event.address,
                seconds=round(event.seconds, 3),
                records=event.records,
                bytes=event.bytes,
            )
        case ActionFailed():
            return ActionFailedEvent(id=event.id, address=event.address, error=event.error, hint=event.hint)
        case Recovered():
            return RecoveredEvent(run=event.run, who=event.who, settled=dict(event.settled))
        case Detached():
            return DetachedEvent(left=event.left)
        case LeaseLost():
            return LeaseLostEvent(message=event.message)
        case Summary():
            return SummaryEvent(
                run=event.run,
                done=event.done,
                failed=event.failed,
                skipped=event.skipped,
                not_started=event.not_started,
                seconds=round(event.seconds, 3),
                serial=event.serial,
                skipped_because=dict(event.skipped_because),
                failures=tuple(
                    FailuresPart(error=group.error, hint=group.hint, ids=group.ids) for group in event.failures
                ),
                in_doubt=event.in_doubt,
            )
        case ResultMissing():
            return ResultMissingEvent(run=event.run, error=event.error, serial=event.serial)
        case _:
            assert_never(event)
