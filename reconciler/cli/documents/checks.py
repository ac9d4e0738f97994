"""JSON of `validate`, `drift` and `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part, jsonable
from reconciler.workflow.drifting.finding import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.manifests.problems import Problem
    from reconciler.planning.finding import Finding
    from reconciler.workflow.drift import Drifted
    from reconciler.workflow.drifting.finding import Found
    from reconciler.workflow.validate import Validated


class ProblemPart(Part):
    """Something wrong with a file."""

    source: str | None = Field(description="`file:line:column`, as far as it is known.")
    field: str | None = Field(default=None, description="The field it is about.")
    address: str | None = Field(default=None, description="The resource it is about.")
    message: str
    hint: str

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
    def of_problems(cls, problems: Sequence[Problem]) -> ValidateDocument:
        """Say what kept the files from being read."""
        found = tuple(ProblemPart.of_problem(problem) for problem in problems)
        return cls(valid=False, workspace=None, counts={}, problems=found, warnings=())


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
    def of(cls, found: Found, *, fails: bool) -> FoundPart:
        """Say one difference."""
        return cls(
            kind=found.kind,
            address=found.address,
            path=found.path,
            recorded=jsonable(found.recorded),
            observed=jsonable(found.observed),
            fingerprint=found.fingerprint,
            ignored=found.ignored,
            fails=fails,
            message=found.message,
        )


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
        findings = tuple(FoundPart.of(found, fails=found in drifted.failing) for found in drifted.findings)
        counts = {kind.replace(" ", "_"): sum(each.kind == kind for each in findings) for kind in CLASSES}
        counts["ignored"] = sum(each.ignored is not None for each in findings)
        plan = drifted.planned.plan
        return cls(
            workspace=plan.workspace,
            environment=plan.environment,
            summary=DriftSummary(**counts),
            findings=findings,
            errors=tuple(f"{error.message}. {error.hint}" for error in drifted.errors),
        )
