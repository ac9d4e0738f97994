"""Findings of a plan or of the files, as lines and as one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.finding import Finding

_SHOWN: Final = 3


def finding_line(finding: Finding) -> str:
    """Return a finding as one line that begins with where it is, and what it is about."""
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return f"{finding.source or finding.address or 'plan'}: {about}{finding.message}. {finding.hint}"


def errors_of(findings: Sequence[Finding], *, can_exclude: bool = False) -> UserError:
    """Return all errors of a plan as one; `can_exclude`: the command can be typed again without what they are about."""
    lines = [finding_line(finding) for finding in findings]
    count = f"{len(lines)} errors" if len(lines) > 1 else "1 error"
    return UserError(
        "the plan has " + count + ":\n  " + "\n  ".join(lines), hint=_hint(findings, can_exclude=can_exclude)
    )


def _hint(findings: Sequence[Finding], *, can_exclude: bool) -> str:
    addresses = sorted({finding.address for finding in findings if finding.address is not None})
    if not can_exclude or not addresses or any(finding.address is None for finding in findings):
        return "No --allow lifts these."
    shown = [f"--exclude '{address}'" for address in addresses[:_SHOWN]]
    return f"No --allow lifts these. To do the rest: {' '.join(shown)}{' …' if len(addresses) > _SHOWN else ''}"
