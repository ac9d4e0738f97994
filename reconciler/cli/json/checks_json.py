"""JSON of `validate`, `drift`, `comment`, `verify` and `cluster check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from reconciler.cli.hint_rewrite import typed_again
from reconciler.cli.json.base import Document, Hint, Part
from reconciler.operations.drift import CLASSES, Drifted, DriftItem
from reconciler.runtime.text import plain

if TYPE_CHECKING:
    from reconciler.embedded.check.damage import CheckFinding
    from reconciler.manifests.positions import Problem
    from reconciler.operations.clusters.cluster_check import CheckedCluster
    from reconciler.operations.comment import Commented
    from reconciler.operations.manifest_files import Validated
    from reconciler.planning.plan import Finding


class ProblemPart(Part):
    """Something wrong with a file."""

    source: str | None = Field(description="`file:line:column`, as far as it is known.")
    field: str | None = Field(default=None, description="The field it is about.")
    address: str | None = Field(default=None, description="The resource it is about.")
    message: str
    hint: Hint

    @classmethod
    def of_problem(cls, problem: Problem) -> ProblemPart:
        """Say what does not read."""
        where = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part is not None)
        return cls(source=where or None, field=problem.field, message=problem.message, hint=problem.hint)

    @classmethod
    def of_finding(cls, finding: Finding) -> ProblemPart:
        """Say what reads, but cannot be."""
        return cls(source=finding.source, address=finding.address, message=finding.message, hint=finding.hint)


class ValidateDocument(Document):
    """What `validate` found."""

    format: Literal["reconciler.validate/1"] = "reconciler.validate/1"
    valid: bool
    workspace: str | None = Field(description="Null where even that did not read.")
    counts: dict[str, int] = Field(description="How many of each kind are declared.")
    problems: tuple[ProblemPart, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, validated: Validated) -> ValidateDocument:
        """Say what was checked."""
        return cls(
            valid=validated.verdict is None,
            workspace=validated.workspace,
            counts=dict(validated.counts),
            problems=tuple(ProblemPart.of_finding(finding) for finding in validated.findings),
            warnings=validated.warnings,
        )

    @classmethod
    def of_error(cls, error: str, hint: str, problems: Sequence[Problem], _exit_code: int) -> ValidateDocument:
        """Say what kept the files from being read."""
        found = tuple(map(ProblemPart.of_problem, problems)) or (ProblemPart(source=None, message=error, hint=hint),)
        return cls(valid=False, workspace=None, counts={}, problems=found, warnings=())


class CommentDocument(Document):
    """What became of the comment of a result."""

    format: Literal["reconciler.comment/1"] = "reconciler.comment/1"
    forge: str
    pull_request: int = Field(validation_alias="number")
    command: str = Field(description="Whose result it is, such as plan.")
    workspace: str
    environment: str | None
    action: Literal["created", "updated", "unchanged", "deleted", "none"] = Field(validation_alias="did")
    id: int | None = Field(description="Of the comment that stands there now.")
    url: str | None
    hidden: int = Field(validation_alias="collapsed", description="Older comments that were hidden.")
    cut: bool = Field(validation_alias="is_cut", description="Whether the text was longer than a comment may be.")

    @classmethod
    def of(cls, commented: Commented) -> CommentDocument:
        """Say what was done."""
        comment, marker = commented.comment, commented.marker
        return cls.from_record(
            commented,
            command=marker.command,
            workspace=marker.workspace,
            environment=marker.environment,
            id=None if comment is None else comment.id,
            url=None if comment is None else comment.url or None,
        )


class ErrorDocument(Document):
    """What `plan` and `drift` print with `--format json` in place of their result, where they came to none."""

    format: Literal["reconciler.error/1"] = "reconciler.error/1"
    exit_code: int = Field(description="The code the command leaves with.")
    error: str
    hint: Hint
    problems: tuple[ProblemPart, ...] = Field(description="What is wrong with the files, one by one.")

    @classmethod
    def of_error(cls, error: str, hint: str, problems: Sequence[Problem], exit_code: int) -> ErrorDocument:
        """Say what ended the command."""
        found = tuple(map(ProblemPart.of_problem, problems))
        return cls(exit_code=exit_code, error=error, hint=hint, problems=found)


class FoundPart(Part):
    """One way in which clusters and files differ."""

    kind: Literal["drift", "missing", "in doubt", "unmanaged", "pending", "blocked"] = Field(
        description="Its class: who has to act."
    )
    address: str
    path: str = Field(description="The field; empty where it is the resource as a whole.")
    recorded: Any = Field(description="What we last applied.")
    observed: Any = Field(description="What the cluster says.")
    fingerprint: str = Field(
        description="The same for the same difference, run after run: sha256 of address, path and what was observed."
    )
    ignored: str | None = Field(
        description="The rule that leaves it as it is, with its reason and last day; what is ignored never fails."
    )
    fails: bool = Field(description="Whether it is among what makes the command exit 3.")
    message: str

    @classmethod
    def of(cls, found: DriftItem, *, fails: bool) -> FoundPart:
        """Say one difference."""
        return cls.from_record(found, recorded=plain(found.recorded), observed=plain(found.observed), fails=fails)


class DriftSummary(Part):
    """How many findings there are of each class."""

    drift: int = 0
    missing: int = 0
    in_doubt: int = 0
    unmanaged: int = 0
    pending: int = 0
    blocked: int = 0
    ignored: int = Field(default=0, description="How many of them a reviewed rule leaves as they are.")


class DriftDocument(Document):
    """Where clusters have moved away from the files."""

    format: Literal["reconciler.drift/1"] = "reconciler.drift/1"
    workspace: str
    environment: str | None
    summary: DriftSummary
    findings: tuple[FoundPart, ...]
    errors: tuple[str, ...] = ()
    """What kept parts of the workspace from being compared."""

    @classmethod
    def of(cls, drifted: Drifted) -> DriftDocument:
        """Say all differences."""
        failing = {found.fingerprint for found in drifted.failing}
        findings = tuple(FoundPart.of(found, fails=found.fingerprint in failing) for found in drifted.findings)
        counts = {kind.replace(" ", "_"): sum(each.kind == kind for each in findings) for kind in CLASSES}
        counts["ignored"] = sum(each.ignored is not None for each in findings)
        plan = drifted.planned.plan
        return cls(
            workspace=plan.workspace,
            environment=plan.environment,
            summary=DriftSummary(**counts),
            findings=findings,
            errors=tuple(f"{error.message}. {typed_again(error.hint)}" for error in drifted.errors),
        )


# JSON of `cluster check`.


class OffsetsPart(Part):
    """Offsets from `start` up to, not including, `stop`."""

    start: int
    stop: int


class FindingPart(Part):
    """One thing that is not as it should be."""

    kind: str
    severity: Literal["error", "warning", "note"]
    what: str
    key: str = Field(description="The object it is about, or the first of several.")
    topic: str | None
    partition: int | None
    gone: tuple[OffsetsPart, ...] = Field(description="Offsets whose records cannot be read any more, or not trusted.")
    objects: int
    bytes: int
    age_ms: int | None = Field(description="Of the oldest object, by the store's clock, where age matters.")
    why: str
    advice: str
    repairable: bool = Field(description="Whether --repair mends it.")

    @classmethod
    def of(cls, finding: CheckFinding) -> FindingPart:
        """Say one finding."""
        return cls.from_record(
            finding,
            severity=finding.severity.value,
            key=finding.place.key,
            topic=finding.place.topic,
            partition=finding.place.partition,
            why=finding.rule.matters,
            advice=finding.rule.advice,
            repairable=finding.rule.is_mended,
        )


class CountsPart(Part):
    """How much was looked at."""

    objects: int
    bytes: int = Field(validation_alias="stored_bytes")
    namespaces: int
    topics: int
    partitions: int = Field(description="That were ever written.")
    pages: int
    parts: int
    records: int
    segments: int = Field(
        default=0, description="In object storage; some of their records may be among `records`, too."
    )
    remote_records: int = Field(default=0, description="Of these segments.")
    groups: int
    transactions: int


class MendedPart(Part):
    """What a repair did about one kind of finding."""

    kind: str
    what: str


class CheckDocument(Document):
    """A cluster, checked; after a repair, as it is then."""

    format: Literal["reconciler.check/1"] = "reconciler.check/1"
    cluster: str
    url: str
    id: str | None
    consistent: bool
    counts: CountsPart
    findings: tuple[FindingPart, ...]
    left_out: int = Field(description="Findings that are counted and not listed.")
    mended: tuple[MendedPart, ...]

    @classmethod
    def of(cls, found: CheckedCluster) -> CheckDocument:
        """Say all of it."""
        checked = found.checked
        return cls(
            cluster=found.address,
            url=found.url,
            id=checked.cluster_id,
            consistent=checked.errors == 0,
            counts=CountsPart.from_record(checked),
            findings=tuple(map(FindingPart.of, checked.findings)),
            left_out=checked.left_out,
            mended=tuple(map(MendedPart.from_record, found.mended)),
        )
