"""JSON of runs: events, approvals, refusals, maintenance and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, assert_never

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
from reconciler.cli.errors import unexpected
from reconciler.cli.hint_rewrite import typed_again
from reconciler.cli.json.base import Document, Part
from reconciler.errors import ReconcilerError
from reconciler.operations.metrics import PREFIX, Metric
from reconciler.operations.steps.approval import ApprovalCheck, ChangedPlanError
from reconciler.runtime.text import json_shown

if TYPE_CHECKING:
    from reconciler.jobs.comparison import PartitionComparison, Side
    from reconciler.operations.mirrors.mirror_rounds import JobOutcome, Synced, Upkeep
    from reconciler.operations.verify import LinkVerified, NotCompared, Verified
    from reconciler.planning.same_or_less import Difference, FieldDifference, Move
    from reconciler.resources.mirrors import ForeignRecords
    from reconciler.state.journal import StateAdvance


# JSON of how what is planned now stands to what was approved, where it may be done.


class StateAdvancePart(Part):
    """The state went on since the plan was approved; the run is the last that moved it."""

    approved: int
    now: int
    run: str | None
    command: str | None
    who: str | None
    started: str | None

    @classmethod
    def of(cls, advance: StateAdvance | None) -> StateAdvancePart | None:
        """Say it, where it did."""
        if advance is None:
            return None
        return cls(
            approved=advance.approved,
            now=advance.now,
            run=advance.run,
            command=advance.command,
            who=advance.who,
            started=advance.started,
        )


# JSON of how a run ended that did not end well: the last line of `apply --format json`, with what differs (exit 6).


class MovePart(Part):
    """What happens to one field."""

    before: Any = Field(description="What it is on the cluster; null also where the action does not say.")
    after: Any

    @classmethod
    def of(cls, move: Move | None) -> MovePart | None:
        """Say one side."""
        return None if move is None else cls(before=move.before, after=move.after)


class FieldPart(Part):
    """One field as it was approved and as it would be now."""

    path: str
    approved: MovePart | None = Field(description="Null: the approved plan left it alone.")
    now: MovePart | None = Field(description="Null: it would be left alone now.")

    @classmethod
    def of(cls, found: FieldDifference) -> FieldPart:
        """Say one field."""
        return cls(path=found.path, approved=MovePart.of(found.approved), now=MovePart.of(found.now))


class RefusedBlockPart(Part):
    """The guard that refuses it now."""

    guard: str
    message: str
    allow: str | None


class DifferencePart(Part):
    """An action that is not as it was approved."""

    id: str
    address: str
    action: str
    why: tuple[Literal["not_approved", "result", "ground", "risk", "blocked", "unblocked", "missing"], ...] = Field(
        description="not_approved: the plan did not hold it. result: it leads to something else. ground: what it rests "
        "on has changed on the cluster. risk: it is more dangerous. blocked: a guard refuses it now. unblocked: a "
        "guard refused it then, so it was not approved. missing: it was left to do, and is no longer planned."
    )
    message: str
    risk: str
    approved_risk: str | None
    blocked: RefusedBlockPart | None
    instead_of: tuple[str, ...] = Field(
        description="Approved actions on the same resource that are no longer planned; missing: those planned."
    )
    fields: tuple[FieldPart, ...]
    source: str | None

    @classmethod
    def of(cls, found: Difference) -> DifferencePart:
        """Say one action."""
        block = found.blocked
        return cls(
            id=found.id,
            address=found.address,
            action=found.action,
            why=tuple(each.value for each in found.whys),
            message=found.message,
            risk=found.risk,
            approved_risk=found.approved_risk,
            blocked=RefusedBlockPart(guard=block.guard, message=block.message, allow=block.allow) if block else None,
            instead_of=found.instead_of,
            fields=tuple(map(FieldPart.of, found.fields)),
            source=found.source,
        )


class StalePart(Part):
    """In what a plan made now differs from the approved one; danger first."""

    more: tuple[DifferencePart, ...]
    not_needed: tuple[str, ...]
    state: StateAdvancePart | None

    @classmethod
    def of(cls, held: ApprovalCheck) -> StalePart:
        """Say all that differs."""
        found = held.difference
        return cls(
            more=tuple(map(DifferencePart.of, found.more)),
            not_needed=found.not_needed,
            state=StateAdvancePart.of(held.advance),
        )


class ErrorEvent(Document):
    """It did not end well; always the last line, with the code the command leaves with."""

    format: Literal["reconciler.event/1"] = "reconciler.event/1"
    event: Literal["error"] = "error"
    exit_code: int
    error: str
    hint: str
    stale: StalePart | None = Field(description="With exit code 6: what was approved, and what would happen now.")

    @classmethod
    def of(cls, error: BaseException) -> ErrorEvent:
        """Say an error as `reconciler.cli.errors` says it to people."""
        if not isinstance(error, ReconcilerError):
            code, message, hint = unexpected(error)
            return cls(exit_code=code, error=message, hint=typed_again(hint), stale=None)
        held = error.held if isinstance(error, ChangedPlanError) else None
        stale = None if held is None else StalePart.of(held)
        return cls(exit_code=error.exit_code, error=error.message, hint=typed_again(error.hint), stale=stale)


class _Event(Document):
    format: Literal["reconciler.event/1"] = "reconciler.event/1"


class ApprovedEvent(_Event):
    """What is planned now is what was approved, or less."""

    event: Literal["approved"] = "approved"
    not_needed: tuple[str, ...] = Field(description="Ids of approved actions that are no longer planned.")
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


_ENGINE: Final = "Where jobs ran: `in process`, or Spark and its master. Null: no task ran."
_SPARK_TASKS: Final = "Tasks that Spark was given."


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
    partitions_done: int = Field(description="Partitions that have all that they are to get.")
    partitions: int = Field(description="Of how many; 0 where the work does not go by partitions.")
    engine: str | None = Field(description=_ENGINE)
    spark_tasks: int = Field(description=_SPARK_TASKS)


class ActionDoneEvent(_Event):
    """An action is complete and durable."""

    event: Literal["action_done"] = "action_done"
    id: str
    address: str
    seconds: float
    records: int = Field(description="What a job moved.")
    bytes: int = Field(description="What a job moved.")
    engine: str | None = Field(description=_ENGINE)
    spark_tasks: int = Field(description=_SPARK_TASKS)


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
            "at its end), or unknown where the cluster could not be read."
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
    skipped_because: dict[str, str] = Field(description="Skipped id to the failed id that it depends on.")
    failures: tuple[FailuresPart, ...] = Field(description="The most frequent reason first.")
    in_doubt: tuple[str, ...] = Field(description="Ids of failed actions whose result is unknown; the run stays open.")
    engine: str | None = Field(description=_ENGINE)
    spark_tasks: int = Field(description=_SPARK_TASKS)
    approved_by: tuple[str, ...] = Field((), description="Who is said to have approved it.")
    pull_request: str | None = Field(None, description="Address of the pull request in which they approved.")


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
                partitions_done=event.partitions_done,
                partitions=event.partitions,
                engine=event.ran.engine or None,
                spark_tasks=event.ran.spark_tasks,
            )
        case ActionDone():
            return ActionDoneEvent(
                id=event.id,
                address=event.address,
                seconds=round(event.seconds, 3),
                records=event.records,
                bytes=event.bytes,
                engine=event.ran.engine or None,
                spark_tasks=event.ran.spark_tasks,
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
                engine=event.ran.engine or None,
                spark_tasks=event.ran.spark_tasks,
                approved_by=event.approved_by,
                pull_request=event.pull_request,
            )
        case ResultMissing():
            return ResultMissingEvent(run=event.run, error=event.error, serial=event.serial)
        case _:
            assert_never(event)


# JSON of `run` and `verify`: what was done to topic logs, and how two of them compare.


class SyncedPart(Part):
    """One mirror that was brought to its source's end, or what kept it from there."""

    address: str
    records: int
    bytes: int
    seconds: float
    error: str | None
    hint: str | None

    @classmethod
    def of(cls, synced: Synced) -> SyncedPart:
        """Say one mirror."""
        return cls(
            address=synced.address,
            records=synced.records,
            bytes=synced.bytes,
            seconds=round(synced.seconds, 3),
            error=synced.error.message if synced.error else None,
            hint=synced.error.hint if synced.error else None,
        )


class ErrorPart(Part):
    """What failed, and what to do."""

    error: str
    hint: str


class JobPart(Part):
    """One job of upkeep on one cluster."""

    job: str = Field(
        description="Also `link`: what links keep in step; `observe`, `state`: a cluster, or the state, not read."
    )
    cluster: str | None
    unit: str | None = Field(description="What `done` and `failed` count: partition, topic, transaction, object.")
    done: int
    failed: int
    records: int = Field(description="Removed by retention and compaction; written anew by a roll.")
    bytes: int = Field(description="Stored bytes, as `records`; of a sweep, deleted.")
    seconds: float
    errors: tuple[ErrorPart, ...] = Field(description="At most a hundred of those that failed.")

    @classmethod
    def of(cls, outcome: JobOutcome) -> JobPart:
        """Say one job."""
        upkept = outcome.upkept
        return cls(
            job=outcome.job,
            cluster=outcome.cluster or None,
            unit=upkept.unit if upkept else None,
            done=upkept.done if upkept else 0,
            failed=outcome.failed,
            records=upkept.records if upkept else 0,
            bytes=upkept.bytes if upkept else 0,
            seconds=round(outcome.seconds, 3),
            errors=tuple(ErrorPart(error=error.message, hint=error.hint) for error in outcome.errors),
        )


class PipelineDocument(Document):
    """What one pass of the pipeline did."""

    format: Literal["reconciler.pipeline/1"] = "reconciler.pipeline/1"
    mirrors: tuple[SyncedPart, ...]
    jobs: tuple[JobPart, ...]
    seconds: float
    stopped: bool = Field(description="Whether it was asked to stop before it had finished.")
    engine: str | None = Field(description=_ENGINE)
    spark_tasks: int = Field(description=_SPARK_TASKS)

    @classmethod
    def of(cls, upkeep: Upkeep) -> PipelineDocument:
        """Say every mirror and job."""
        return cls(
            mirrors=tuple(SyncedPart.of(each) for each in upkeep.synced),
            jobs=tuple(JobPart.of(each) for each in upkeep.jobs),
            seconds=round(upkeep.seconds, 3),
            stopped=upkeep.is_stopped,
            engine=upkeep.ran.engine or None,
            spark_tasks=upkeep.ran.spark_tasks,
        )


class SidePart(Part):
    """A partition as one log has it, up to its last stable offset."""

    start: int
    end: int
    records: int
    digest: str = Field(description="Two sums mod 2^128 over all records, hexadecimal.")

    @classmethod
    def of(cls, side: Side) -> SidePart:
        """Say one side."""
        digest = f"{side.digest.total:032x}{side.digest.weighted:032x}"
        return cls(start=side.start, end=side.end, records=side.records, digest=digest)


class PartitionPart(Part):
    """One partition of both logs; null where a log does not have it."""

    partition: int
    equal: bool
    differences: tuple[Literal["partition", "start", "end", "records", "digest"], ...]
    first_difference: int | None = Field(description="The first offset that differs, where it was looked for.")
    superseded: int = Field(description="Records that only one log has because the other was compacted.")
    left: SidePart | None
    right: SidePart | None

    @classmethod
    def of(cls, found: PartitionComparison) -> PartitionPart:
        """Say one partition."""
        return cls(
            partition=found.partition,
            equal=found.is_equal,
            differences=found.differences,
            first_difference=found.first_difference,
            superseded=found.superseded,
            left=SidePart.of(found.left) if found.left else None,
            right=SidePart.of(found.right) if found.right else None,
        )


class ForeignPart(Part):
    """Records of others in a mirror, without one of its link between them."""

    partition: int
    start: int = Field(description="The mirror's offset of the first one.")
    end: int = Field(description="The offset after the last one.")
    records: int

    @classmethod
    def of(cls, found: ForeignRecords) -> ForeignPart:
        """Say one run of them."""
        return cls(partition=found.partition, start=found.start, end=found.end, records=found.records)


class VerifyDocument(Document):
    """Two topic logs, compared partition by partition."""

    format: Literal["reconciler.verify/1"] = "reconciler.verify/1"
    left: str
    right: str
    equal: bool
    deep: bool = Field(description="Whether every record was read anew.")
    partitions: tuple[PartitionPart, ...]
    foreign: tuple[ForeignPart, ...] = Field(
        default=(), description="Records in a mirror that other producers wrote: its source does not have them."
    )

    @classmethod
    def of(cls, verified: Verified) -> VerifyDocument:
        """Say every partition."""
        return cls(
            left=verified.left,
            right=verified.right,
            equal=verified.is_equal,
            deep=verified.comparison.is_deep,
            partitions=tuple(PartitionPart.of(each) for each in verified.comparison.partitions),
            foreign=tuple(ForeignPart.of(each) for each in verified.foreign),
        )


class MirrorVerifiedPart(Part):
    """One mirror of a link, compared with its source."""

    mirror: str
    source: str
    equal: bool
    partitions: tuple[PartitionPart, ...]
    foreign: tuple[ForeignPart, ...] = Field(
        description="Records in the mirror that other producers wrote: its source does not have them."
    )

    @classmethod
    def of(cls, verified: Verified) -> MirrorVerifiedPart:
        """Say every partition."""
        return cls(
            mirror=verified.left,
            source=verified.right,
            equal=verified.is_equal,
            partitions=tuple(PartitionPart.of(each) for each in verified.comparison.partitions),
            foreign=tuple(ForeignPart.of(each) for each in verified.foreign),
        )


class NotComparedPart(Part):
    """A mirror that could not be compared."""

    mirror: str
    error: str
    hint: str

    @classmethod
    def of(cls, failed: NotCompared) -> NotComparedPart:
        """Say why."""
        return cls(mirror=failed.mirror, error=failed.error.message, hint=typed_again(failed.error.hint))


class LinkVerificationDocument(Document):
    """Every mirror of a link, compared with its source partition by partition."""

    format: Literal["reconciler.link-verification/1"] = "reconciler.link-verification/1"
    link: str
    equal: bool = Field(
        description="Whether there are mirrors, and each could be compared and has its source's records."
    )
    deep: bool = Field(description="Whether every record was read anew.")
    mirrors: tuple[MirrorVerifiedPart, ...]
    failed: tuple[NotComparedPart, ...]
    stopped: tuple[str, ...] = Field(description="Mirrors that were promoted: they are not compared.")

    @classmethod
    def of(cls, verified: LinkVerified) -> LinkVerificationDocument:
        """Say every mirror."""
        return cls(
            link=verified.link,
            equal=verified.is_equal,
            deep=any(each.comparison.is_deep for each in verified.mirrors),
            mirrors=tuple(MirrorVerifiedPart.of(each) for each in verified.mirrors),
            failed=tuple(NotComparedPart.of(each) for each in verified.failed),
            stopped=tuple(str(each.mirror) for each in verified.stopped),
        )


# JSON of `run --metrics FILE.json`: the same numbers as the text file has.


class SamplePart(Part):
    """One number."""

    labels: dict[str, str]
    value: float


class MetricPart(Part):
    """One metric."""

    name: str
    kind: Literal["gauge", "counter"] = Field(description="A counter only rises, from one file to the next.")
    help: str
    samples: tuple[SamplePart, ...]


class MetricsDocument(Document):
    """Every metric after a pass; one without numbers is left out."""

    format: Literal["reconciler.metrics/1"] = "reconciler.metrics/1"
    metrics: tuple[MetricPart, ...]

    @classmethod
    def of(cls, metrics: Iterable[Metric]) -> MetricsDocument:
        """Say all of them."""
        return cls(
            metrics=tuple(
                MetricPart(
                    name=PREFIX + metric.name,
                    kind=metric.kind,
                    help=metric.help,
                    samples=tuple(SamplePart(labels=dict(each.labels), value=each.value) for each in metric.samples),
                )
                for metric in metrics
                if metric.samples
            )
        )
