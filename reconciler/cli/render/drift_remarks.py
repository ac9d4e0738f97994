"""`drift` for tools that collect results: what fails is an error, what is left as it is is skipped, the rest a note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.drift_text import what_of
from reconciler.cli.render.junit import junit
from reconciler.cli.render.remarks import Remark, Remarks, in_order, of_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.address import Address
    from reconciler.workflow.drift import Drifted
    from reconciler.workflow.drifting.finding import Found


def drift_junit(drifted: Drifted) -> bytes:
    """Return the findings as JUnit XML."""
    return junit(drift_remarks(drifted))


def drift_remarks(drifted: Drifted) -> Remarks:
    """Return every finding, at the place that declares what it is about where something is planned for it."""
    plan = drifted.planned.plan
    sources = {action.address: action.source for action in plan.actions if action.source}
    failing = {found.fingerprint for found in drifted.failing}
    rows = [*map(of_error, drifted.errors), *(_of(found, sources, failing) for found in drifted.findings)]
    return Remarks("drift", plan.workspace, plan.environment, plan.tool, in_order(rows))


def _of(found: Found, sources: Mapping[Address, str], failing: set[str]) -> Remark:
    kind = found.kind.replace(" ", "-")
    return Remark(
        rule="drift" if kind == "drift" else f"drift-{kind}",
        level="error" if found.fingerprint in failing else "note",
        name=f"{kind}:{found.address} {found.path}".rstrip(),
        about=found.address,
        message=f"{found.address}: {what_of(found)}",
        source=sources.get(found.address),
        fingerprint=found.fingerprint,
        is_skipped=found.ignored is not None,
    )
