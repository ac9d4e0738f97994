"""JSON of runs: events, approvals, refusals, maintenance and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, assert_never

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
    Ran,
    Recovered,
    ResultMissing,
    Summary,
)
from reconciler.cli.errors import unexpected
from reconciler.cli.json.base import Document, Hint, Part, document_line
from reconciler.errors import ReconcilerError
from reconciler.operations.metrics import PREFIX, Metric
from reconciler.operations.steps.approval import ApprovalCheck, ChangedPlanError

if TYPE_CHECKING:
    from reconciler.jobs.comparison import PartitionComparison, Side
    from reconciler.operations.mirrors.mirror_rounds import JobOutcome, Synced, Upkeep
    from reconciler.operations.steps.orders import OrderResult
    from reconciler.operations.verify import LinkVerified, NotCompared, Verified
    from reconciler.planning.same_or_less import Difference
    from reconciler.resources.address import Address


# JSON of how what is planned now stands to what was approved, where it may be done.


class StateAdvancePart(Part):
    """The state went on since the plan was approved; the run is the last that moved it."""

    approved: int
    now: int
    run: str | None
    command: str | None
    who: str | None
    started: str | None


# JSON of how a run ended that did not end well: the last line of `apply --format json`, with what differs (exit 6).


class MovePart(Part):
    """What happens to one field."""

    before: Any = Field(description="What it is on the cluster; null also where the action does not say.")
    after: Any


class FieldPart(Part):
    """One field as it was approved and as it would be now."""

    path: str
    approved: MovePart | None = Field(description="Null: the approved plan left it alone.")
    now: MovePart | None = Field(description="Null: it would be left alone now.")


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
        return cls.from_record(found, why=tuple(each.value for each in found.whys))


class StalePart(Part):
    """In what a plan made now differs from the approved one; danger first."""

    more: tuple[DifferencePart, ...]
    not_needed: tuple[str, ...]
    state: StateAdvancePart | None

    @classmethod
    def of(cls, held: ApprovalCheck) -> StalePart:
        """Say all that differs."""
        found = held.difference
        return cls.from_record(found, more=tuple(map(DifferencePart.of, found.more)), state=held.advance)


class ErrorEvent(Document):
    """It did not end well; always the last line, with the code the command leaves with."""

    format: Literal["reconciler.event/1"] = "reconciler.event/1"
    event: Literal["error"] = "error"
    exit_code: int
    error: str
    hint: Hint
    stale: StalePart | None = Field(description="With exit code 6: what was approved, and what would happen now.")

    @classmethod
    def of(cls, error: BaseException) -> ErrorEvent:
        """Say an error as `reconciler.cli.errors` says it to people."""
        if not isinstance(error, ReconcilerError):
            code, message, hint = unexpected(error)
            return cls(exit_code=code, error=message, hint=hint, stale=None)
        held = error.held if isinstance(error, ChangedPlanError) else None
        stale = None if held is None else StalePart.of(held)
        return cls(exit_code=error.exit_code, error=error.message, hint=error.hint, stale=stale)


class _Event(Document):
    format: Literal["reconciler.event/1"] = "reconciler.event/1"


class ApprovedEvent(_Event):
    """What is planned now is what was approved, or less."""

    event: Literal["approved"] = "approved"
    not_needed: tuple[str, ...] = Field(description="Ids of approved actions that are no longer planned.")
    state: StateAdvancePart | None = Field(
        validation_alias="advance", description="The state went on since; what is left of the plan is as it was."
    )


class PlanEvent(_Event):
    """The plan that is carried out."""

    event: Literal["plan"] = "plan"
    plan: dict[str, Any] = Field(validation_alias="document", description="A document of reconciler.plan/1.")


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
    hint: Hint


class RecoveredEvent(_Event):
    """An earlier run that had not closed was settled."""

    event: Literal["recovered"] = "recovered"
    run: str
    who: str
    settled: dict[str, str] = Field(
        description=(
            "Action id to absent, done, partial (and completed), conflict, under way (begun on two clusters, and not "
            "at its end), moving (its replicas still move), or unknown where the cluster could not be read."
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
    hint: Hint
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


class OrderedPart(Part):
    """A resource that a command named, after the command."""

    address: str
    changed: bool
    state: str | None = Field(
        description="Of a mirror or link; the location of a mounted or unmounted topic. Null: not known, or none."
    )
    error: str | None = Field(description="Null: it is as the command wants it.")
    hint: Hint | None

    @classmethod
    def of(cls, result: OrderResult, address: Address) -> OrderedPart:
        """Return what became of one resource."""
        error = result.failed.get(address)
        return cls(
            address=address,
            changed=error is None and address not in result.unchanged,
            state=result.states.get(address),
            error=None if error is None else error.message,
            hint=None if error is None else error.hint,
        )


class ResultEvent(_Event):
    """What became of the resources that a command named, in their order."""

    event: Literal["result"] = "result"
    command: str
    resources: tuple[OrderedPart, ...]

    @classmethod
    def of(cls, result: OrderResult) -> ResultEvent:
        """Return the result of a command."""
        return cls(
            command=result.command,
            resources=tuple(OrderedPart.of(result, address) for address in result.addresses),
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
    | ResultEvent
    | ErrorEvent
)


class EventDocument(RootModel[Annotated[AnyEvent, Field(discriminator="event")]]):
    """One line of `apply --format json`, or of a command that changes a cluster."""


def event_line(event: Event) -> bytes:
    """Return an event as its line."""
    return document_line(_said(event))


def _said(event: Event) -> AnyEvent:
    match event:
        case Approval():
            return ApprovedEvent.from_record(event)
        case PlanMade():
            return PlanEvent.from_record(event)
        case ActionStarted():
            return ActionStartedEvent.from_record(event)
        case Progress():
            return ProgressEvent.from_record(
                event,
                seconds=round(event.seconds, 3),
                seconds_left=None if event.seconds_left is None else round(event.seconds_left, 3),
                **_spark(event.ran),
            )
        case ActionDone():
            return ActionDoneEvent.from_record(event, seconds=round(event.seconds, 3), **_spark(event.ran))
        case ActionFailed():
            return ActionFailedEvent.from_record(event)
        case Recovered():
            return RecoveredEvent.from_record(event)
        case Detached():
            return DetachedEvent.from_record(event)
        case LeaseLost():
            return LeaseLostEvent.from_record(event)
        case Summary():
            return SummaryEvent.from_record(event, seconds=round(event.seconds, 3), **_spark(event.ran))
        case ResultMissing():
            return ResultMissingEvent.from_record(event)
        case _:
            assert_never(event)


def _spark(ran: Ran) -> dict[str, object]:
    return {"engine": ran.engine or None, "spark_tasks": ran.spark_tasks}


# JSON of `run` and `verify`: what was done to topic logs, and how two of them compare.


class SyncedPart(Part):
    """One mirror that was brought to its source's end, or what kept it from there."""

    address: str
    records: int
    bytes: int
    seconds: float
    error: str | None
    hint: Hint | None

    @classmethod
    def of(cls, synced: Synced) -> SyncedPart:
        """Say one mirror."""
        return cls.from_record(
            synced,
            seconds=round(synced.seconds, 3),
            error=synced.error.message if synced.error else None,
            hint=synced.error.hint if synced.error else None,
        )


class ErrorPart(Part):
    """What failed, and what to do."""

    error: str
    hint: Hint


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
    notes: tuple[str, ...] = Field(
        default=(), description="What was done that numbers do not say: partitions of topics that are gone."
    )

    @classmethod
    def of(cls, outcome: JobOutcome) -> JobPart:
        """Say one job."""
        upkept = outcome.upkept
        return cls.from_record(
            outcome,
            cluster=outcome.cluster or None,
            unit=upkept.unit if upkept else None,
            done=upkept.done if upkept else 0,
            records=upkept.records if upkept else 0,
            bytes=upkept.bytes if upkept else 0,
            seconds=round(outcome.seconds, 3),
            errors=tuple(ErrorPart(error=error.message, hint=error.hint) for error in outcome.errors),
            notes=upkept.notes if upkept else (),
        )


class PipelineDocument(Document):
    """What one pass of the pipeline did."""

    format: Literal["reconciler.pipeline/1"] = "reconciler.pipeline/1"
    mirrors: tuple[SyncedPart, ...]
    jobs: tuple[JobPart, ...]
    seconds: float
    stopped: bool = Field(
        validation_alias="is_stopped", description="Whether it was asked to stop before it had finished."
    )
    engine: str | None = Field(description=_ENGINE)
    spark_tasks: int = Field(description=_SPARK_TASKS)

    @classmethod
    def of(cls, upkeep: Upkeep) -> PipelineDocument:
        """Say every mirror and job."""
        return cls.from_record(
            upkeep,
            mirrors=tuple(map(SyncedPart.of, upkeep.synced)),
            jobs=tuple(map(JobPart.of, upkeep.jobs)),
            seconds=round(upkeep.seconds, 3),
            **_spark(upkeep.ran),
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
        return cls.from_record(side, digest=digest)


class PartitionPart(Part):
    """One partition of both logs; null where a log does not have it."""

    partition: int
    equal: bool = Field(validation_alias="is_equal")
    differences: tuple[Literal["partition", "start", "end", "records", "digest"], ...]
    first_difference: int | None = Field(description="The first offset that differs, where it was looked for.")
    superseded: int = Field(description="Records that only one log has because the other was compacted.")
    left: SidePart | None
    right: SidePart | None

    @classmethod
    def of(cls, found: PartitionComparison) -> PartitionPart:
        """Say one partition."""
        return cls.from_record(
            found,
            left=SidePart.of(found.left) if found.left else None,
            right=SidePart.of(found.right) if found.right else None,
        )


class ForeignPart(Part):
    """Records of others in a mirror, without one of its link between them."""

    partition: int
    start: int = Field(description="The mirror's offset of the first one.")
    end: int = Field(description="The offset after the last one.")
    records: int


class VerifyDocument(Document):
    """Two topic logs, compared partition by partition."""

    format: Literal["reconciler.verify/1"] = "reconciler.verify/1"
    left: str
    right: str
    equal: bool = Field(validation_alias="is_equal")
    deep: bool = Field(description="Whether every record was read anew.")
    partitions: tuple[PartitionPart, ...]
    foreign: tuple[ForeignPart, ...] = Field(
        default=(), description="Records in a mirror that other producers wrote: its source does not have them."
    )

    @classmethod
    def of(cls, verified: Verified) -> VerifyDocument:
        """Say every partition."""
        return cls.from_record(
            verified,
            deep=verified.comparison.is_deep,
            partitions=tuple(map(PartitionPart.of, verified.comparison.partitions)),
        )


class MirrorVerifiedPart(Part):
    """One mirror of a link, compared with its source."""

    mirror: str = Field(validation_alias="left")
    source: str = Field(validation_alias="right")
    equal: bool = Field(validation_alias="is_equal")
    partitions: tuple[PartitionPart, ...]
    foreign: tuple[ForeignPart, ...] = Field(
        description="Records in the mirror that other producers wrote: its source does not have them."
    )

    @classmethod
    def of(cls, verified: Verified) -> MirrorVerifiedPart:
        """Say every partition."""
        return cls.from_record(
            verified,
            partitions=tuple(map(PartitionPart.of, verified.comparison.partitions)),
        )


class NotComparedPart(Part):
    """A mirror that could not be compared."""

    mirror: str
    error: str
    hint: Hint

    @classmethod
    def of(cls, failed: NotCompared) -> NotComparedPart:
        """Say why."""
        return cls(mirror=failed.mirror, error=failed.error.message, hint=failed.error.hint)


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
            mirrors=tuple(map(MirrorVerifiedPart.of, verified.mirrors)),
            failed=tuple(map(NotComparedPart.of, verified.failed)),
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
