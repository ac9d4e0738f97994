"""`validate`: everything that can be known of the files without asking any cluster or store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.offline import check_offline
from reconciler.workflow.beginning.files import load_files
from reconciler.workflow.deciding.findings import errors_of, located

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.errors import ReconcilerError
    from reconciler.planning.finding import Finding
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class Validated:
    """What was read, and what is wrong with it beyond its form."""

    workspace: str
    counts: Mapping[str, int]
    """How many of each kind."""
    warnings: tuple[str, ...]
    findings: tuple[Finding, ...]
    verdict: ReconcilerError | None


def validate(invocation: Invocation, select: Select) -> Validated:
    """Check the manifests.

    Raises:
        ManifestError: Some do not read; lists every problem of every file.
    """
    loaded = load_files(invocation, select)
    found = check_offline(loaded.desired, loaded.workspace.spec.guards, today=invocation.today())
    findings = located(found, loaded)
    counts = Counter(declared.resource.kind for declared in loaded.desired.values())
    return Validated(
        workspace=loaded.workspace.metadata.name,
        counts=dict(sorted(counts.items())),
        warnings=tuple(str(problem) for problem in loaded.warnings),
        findings=findings,
        verdict=errors_of(findings) if findings else None,
    )
