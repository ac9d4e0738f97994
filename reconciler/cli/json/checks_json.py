"""JSON of `validate`, `drift`, `comment` and `cluster check`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from reconciler.cli.hint_rewrite import add_typed_options
from reconciler.cli.json.base import JsonForm, define_document
from reconciler.embedded.check.damage import CheckFinding, RepairResult
from reconciler.operations.clusters.cluster_check import CheckedCluster
from reconciler.operations.comment import CommentResult
from reconciler.operations.drift import DriftItem, DriftResult
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.manifests.positions import Problem
    from reconciler.operations.manifest_files import ValidationResult


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a file."""

    source: str | None
    """`file:line:column`; line and column only if known."""
    message: str
    hint: str
    field: str | None = None
    address: str | None = None
    """Address of the resource."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Resources and problems that `validate` found."""

    valid: bool
    workspace: str | None
    """Name of the workspace; null if its file cannot be parsed."""
    counts: Mapping[str, int]
    """How many resources of each kind the files declare."""
    problems: tuple[FileProblem, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """What `plan` and `drift` print with `--format json` instead of a result."""

    exit_code: int
    error: str
    hint: str
    problems: tuple[FileProblem, ...]
    """Problems of the files."""


def to_file_problem(problem: Problem) -> FileProblem:
    """Convert a problem to its JSON record."""
    where = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part is not None)
    return FileProblem(where or None, problem.message, problem.hint, field=problem.field)


def build_validation(validated: ValidationResult) -> Validation:
    """Build the document for files that can be parsed."""
    problems = tuple(
        FileProblem(finding.source, finding.message, finding.hint, address=finding.address)
        for finding in validated.findings
    )
    return Validation(validated.verdict is None, validated.workspace, validated.counts, problems, validated.warnings)


def build_failed_validation(failure: Failure) -> Validation:
    """Build the document for files that cannot be parsed."""
    problems = failure.problems or (FileProblem(None, failure.error, failure.hint),)
    return Validation(valid=False, workspace=None, counts={}, problems=problems, warnings=())


_PROBLEM: Final = JsonForm(FileProblem, ("source", "field?", "address?", "message", "hint"))
VALIDATE: Final = define_document(
    "reconciler.validate/1", Validation, "valid", "workspace", "counts", ("problems", _PROBLEM), "warnings"
)
ERROR: Final = define_document("reconciler.error/1", Failure, "exit_code", "error", "hint", ("problems", _PROBLEM))


def _read_comment_url(commented: CommentResult) -> str | None:
    return commented.comment.url or None if commented.comment else None


COMMENT: Final = define_document(
    "reconciler.comment/1",
    CommentResult,
    "forge",
    "pull_request=number",
    "marker.command",
    "marker.workspace",
    "marker.environment",
    "action=did",
    "comment.id",
    ("url", _read_comment_url),
    "hidden=collapsed",
    "cut=is_cut",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between clusters and files."""

    item: DriftItem
    fails: bool
    """Whether the command exits 3 because of the finding."""


@dataclass(frozen=True, slots=True)
class DriftSummary:
    """The number of findings of each class."""

    drift: int = 0
    missing: int = 0
    in_doubt: int = 0
    unmanaged: int = 0
    pending: int = 0
    blocked: int = 0
    ignored: int = 0
    """Findings that a reviewed rule ignores; they also count in their class."""


def _count_findings(drifted: DriftResult) -> DriftSummary:
    """The number of findings of each class."""
    counts = Counter(item.kind.replace(" ", "_") for item in drifted.findings)
    return DriftSummary(**counts, ignored=sum(item.ignored is not None for item in drifted.findings))


def _list_differences(drifted: DriftResult) -> tuple[Difference, ...]:
    """The findings, in the order of the plan."""
    failing = drifted.failing_marks
    return tuple(Difference(item, item.fingerprint in failing) for item in drifted.findings)


def _read_recorded(difference: Difference) -> Any:
    """The value that the last apply recorded."""
    return difference.item.recorded


def _read_observed(difference: Difference) -> Any:
    """The value on the cluster."""
    return difference.item.observed


def _format_errors(drifted: DriftResult) -> tuple[str, ...]:
    """Why parts of the workspace were not compared."""
    return tuple(f"{error.message}. {add_typed_options(error.hint)}" for error in drifted.errors)


_DIFFERENCE: Final = JsonForm(
    Difference,
    (
        "item.kind",
        "item.address",
        "item.path",
        ("recorded", _read_recorded),
        ("observed", _read_observed),
        "item.fingerprint",
        "item.ignored",
        "fails",
        "item.message",
    ),
)
DRIFT: Final = define_document(
    "reconciler.drift/1",
    DriftResult,
    "planned.plan.workspace",
    "planned.plan.environment",
    ("summary", _count_findings),
    ("findings", _list_differences, _DIFFERENCE),
    ("errors?", _format_errors),
    about="The differences between clusters and files.",
)


def _is_consistent(cluster: CheckedCluster) -> bool:
    """Whether the check found no errors."""
    return cluster.checked.errors == 0


def _read_kind(record: CheckFinding | RepairResult) -> str:
    return record.kind.value


_COUNTS: Final = JsonForm(
    CheckedCluster,
    (
        "checked.objects",
        "bytes=checked.stored_bytes",
        "checked.namespaces",
        "checked.topics",
        "checked.partitions",
        "checked.pages",
        "checked.parts",
        "checked.records",
        "checked.segments?",
        "checked.remote_records?",
        "checked.groups",
        "checked.transactions",
    ),
    about="How much was checked.",
)
_FINDING: Final = JsonForm(
    CheckFinding,
    (
        ("kind", _read_kind),
        "severity",
        "what",
        "place.key",
        "place.topic",
        "place.partition",
        "gone",
        "objects",
        "bytes",
        "age_ms",
        "why=rule.matters",
        "rule.advice",
        "repairable=rule.is_mended",
    ),
)
CHECK: Final = define_document(
    "reconciler.check/1",
    CheckedCluster,
    "cluster=address",
    "url",
    "id=checked.cluster_id",
    ("consistent", _is_consistent),
    ("counts=.", _COUNTS),
    ("checked.findings", _FINDING),
    "checked.left_out",
    ("mended", JsonForm(RepairResult, (("kind", _read_kind), "what"))),
)
