"""Findings of a plan or of the files, as lines and as one error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.manifests.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.manifests.loading import Loaded
    from reconciler.planning.finding import Finding

_SHOWN: Final = 3


def located(findings: Sequence[Finding], loaded: Loaded) -> tuple[Finding, ...]:
    """Say of each finding on which line of which file the fields are that it is about."""
    if not any(finding.marks for finding in findings):
        return tuple(findings)
    files = Findings(loaded.folder)
    return tuple(_located(finding, loaded, files) for finding in findings)


def _located(finding: Finding, loaded: Loaded, files: Findings) -> Finding:
    lines: dict[str, None] = {}
    own: dict[str, None] = {}
    for address, path in finding.marks:
        if address in loaded.places:
            line = files.where(loaded.places[address], path)
            is_own = address == finding.address or finding.address not in loaded.places
            (own if is_own else lines)[line] = None
    source, *others = [*own, *lines] if own else [finding.source or "", *lines]
    also = [line for line in others if line != source]
    message = f"{finding.message} (see {', '.join(also)})" if also else finding.message
    return replace(finding, source=source or None, message=message, marks=())


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
    # A hint that has an --allow of another command in it is not to be taken for one of these.
    lifts = "No --allow given here lifts these." if _names_one(findings) else "No --allow lifts these."
    addresses = sorted({finding.address for finding in findings if finding.address is not None})
    if not can_exclude or not addresses or any(finding.address is None for finding in findings):
        return lifts
    shown = [f"--exclude '{address}'" for address in addresses[:_SHOWN]]
    return f"{lifts} To do the rest: {' '.join(shown)}{' …' if len(addresses) > _SHOWN else ''}"


def _names_one(findings: Sequence[Finding]) -> bool:
    return any("--allow " in finding.hint for finding in findings)
