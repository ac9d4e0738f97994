"""Findings of a plan or of the files, as lines and as one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.finding import Finding


def finding_line(finding: Finding) -> str:
    """Return a finding as one line that begins with where it is."""
    return f"{finding.source or finding.address or 'plan'}: {finding.message}. {finding.hint}"


def errors_of(findings: Sequence[Finding]) -> UserError:
    """Return all errors of a plan as one."""
    lines = [finding_line(finding) for finding in findings]
    count = f"{len(lines)} errors" if len(lines) > 1 else "1 error"
    return UserError("the plan has " + count + ":\n  " + "\n  ".join(lines), hint="No --allow lifts these.")
