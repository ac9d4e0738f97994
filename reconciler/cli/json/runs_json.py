"""JSON of events, pipeline passes and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Alike,
    Approval,
    Event,
    LeaseLost,
    PlanMade,
    Progress,
    ResultMissing,
    RunHandedOver,
    RunRecovered,
    Summary,
)
from reconciler.cli.errors import describe_unexpected_error
from reconciler.cli.json.base import Item, JsonForm, define_document, format_document_line
from reconciler.errors import ReconcilerError
from reconciler.operations.metrics import PREFIX, Metric, Sample
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, MirrorOutcome, PassResult
from reconciler.operations.steps.approval import ApprovalCheck, ChangedPlanError
from reconciler.operations.steps.orders import OrderedResource, OrderResult
from reconciler.planning.actions import Block
from reconciler.planning.same_or_less import Difference, FieldDifference, Move
from reconciler.runtime.dataclass import dataclass
from reconciler.state.journal import StateAdvance


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """The error of a command and its exit code; always the last line."""

    exit_code: int
    error: str
    hint: str
    stale: ApprovalCheck | None = None
    """With exit code 6, the approved and the current actions."""


def _read_engine(record: Progress | ActionDone | Summary | PassResult) -> str | None:
    """Where jobs ran: `in process`, or Spark and its master; null if no task ran."""
    return record.ran.engine or None


def _define_event(name: str, record: type, *items: Item) -> JsonForm:
    return JsonForm(record, items, {"format": "reconciler.event/1", "event": name})


_RAN: Final[tuple[Item, ...]] = (("engine", _read_engine), "ran.spark_tasks")
_ADVANCE: Final = JsonForm(StateAdvance, ("approved", "now", "run", "command", "who", "started"))
_MOVE: Final = JsonForm(Move, ("before", "after"))
_DIFFERENCE: Final = JsonForm(
    Difference,
    (
        "id",
        "address",
        "action",
        "why=whys",
        "message",
        "risk",
        "approved_risk",
        ("blocked", JsonForm(Block, ("guard", "message", "allow"))),
        "instead_of",
        ("fields", JsonForm(FieldDifference, ("path", ("approved", _MOVE), ("now", _MOVE)))),
        "source",
    ),
)
_STALE: Final = JsonForm(
    ApprovalCheck, (("more=difference.more", _DIFFERENCE), "difference.not_needed", ("state=advance", _ADVANCE))
)
_ORDERED: Final = JsonForm(OrderedResource, ("address", "is_changed", "state", "error", "hint=error.hint"))
_RESULT: Final = _define_event("result", OrderResult, "command", ("resources", _ORDERED))
_ERROR: Final = _define_event("error", FailedCommand, "exit_code", "error", "hint", ("stale", _STALE))
EVENTS: Final = (
    _define_event("approved", Approval, "not_needed", ("state=advance", _ADVANCE)),
    _define_event("plan", PlanMade, "plan=document"),
    _define_event("action_started", ActionStarted),
    _define_event(
        "progress",
        Progress,
        *("id", "records", "records_total", "bytes", "bytes_total", "seconds", "seconds_left"),
        *("partitions_done", "partitions", *_RAN, "phase?"),
    ),
    _define_event("action_done", ActionDone, "id", "address", "seconds", "records", "bytes", *_RAN),
    _define_event("action_failed", ActionFailed),
    _define_event("recovered", RunRecovered, "run", "who", "settled"),
    _define_event("detached", RunHandedOver),
    _define_event("lease_lost", LeaseLost),
    _define_event(
        "summary",
        Summary,
        *("run", "done", "failed", "skipped", "not_started", "seconds", "serial", "skipped_because"),
        ("failures", JsonForm(Alike)),
        *("in_doubt", *_RAN, "approved_by?", "pull_request?"),
    ),
    _define_event("result_missing", ResultMissing),
    _RESULT,
    _ERROR,
)
_FORMS: Final[Mapping[type, JsonForm]] = {form.record: form for form in EVENTS}


def format_event(event: Event | OrderResult | FailedCommand) -> bytes:
    """Format an event as a line of JSON."""
    return format_document_line(_FORMS[type(event)].build_row(event))


def format_error_event(error: BaseException) -> bytes:
    """Format a failed command's last line of JSON."""
    if not isinstance(error, ReconcilerError):
        return format_event(FailedCommand(*describe_unexpected_error(error)))
    stale = error.held if isinstance(error, ChangedPlanError) else None
    return format_event(FailedCommand(error.exit_code, error.message, error.hint, stale))


def _read_cluster(outcome: JobOutcome) -> str | None:
    return outcome.cluster or None


def _read_unit(outcome: JobOutcome) -> str | None:
    """What `done` and `failed` count: partition, topic, transaction, object."""
    return outcome.upkept.unit or None


_SYNCED: Final = JsonForm(MirrorOutcome, ("address", "records", "bytes", "seconds", "error", "hint=error.hint"))
_JOB: Final = JsonForm(
    JobOutcome,
    (
        "job",
        ("cluster", _read_cluster),
        ("unit", _read_unit),
        "upkept.done",
        "failed",
        "upkept.records",
        "upkept.bytes",
        "seconds",
        ("errors", JsonForm(ReconcilerError, ("error=message", "hint"))),
        "upkept.notes?",
    ),
)
PIPELINE: Final = define_document(
    "reconciler.pipeline/1", PassResult, ("mirrors=synced", _SYNCED), ("jobs", _JOB), "seconds", "is_stopped", *_RAN
)


_Metrics: TypeAlias = Sequence[Metric]


def _list_measured(metrics: _Metrics) -> tuple[Metric, ...]:
    return tuple(metric for metric in metrics if metric.samples)


def _build_name(metric: Metric) -> str:
    return PREFIX + metric.name


def _read_labels(sample: Sample) -> dict[str, str]:
    return dict(sample.labels)


def _read_value(sample: Sample) -> float:
    return float(sample.value)


_SAMPLE: Final = JsonForm(Sample, (("labels", _read_labels), ("value", _read_value)))
METRICS: Final = define_document(
    "reconciler.metrics/1",
    tuple[Metric, ...],
    ("metrics", _list_measured, JsonForm(Metric, (("name", _build_name), "kind", "help", ("samples", _SAMPLE)))),
    about="Every metric after a pass; one without numbers is left out.",
)
