"""A finished plan on the screen, in the form that was asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, assert_never

from reconciler.cli.console import Screen, out
from reconciler.cli.presenting import warn_all
from reconciler.cli.render.plan_text import plan_text
from reconciler.foreign import json_shown

if TYPE_CHECKING:
    from reconciler.cli.options import Form
    from reconciler.planning.document.documents import PlanDocument
    from reconciler.planning.finding import Finding
    from reconciler.workflow.plan import Planned


def show_planned(planned: Planned, form: Form) -> None:
    """Print a plan on standard output, its warnings on standard error."""
    warn_about(planned)
    screen = out()
    match form:
        case "text":
            show_as_text(planned, screen)
        case "json":
            from reconciler.planning.document.saved import canonical_bytes

            screen.write_bytes(json_shown(canonical_bytes(planned.document)) + b"\n")
        case "markdown":
            from reconciler.cli.render.plan_markdown import plan_markdown

            screen.write(plan_markdown(planned.plan))
        case "junit":
            from reconciler.cli.render.junit import junit
            from reconciler.cli.render.remarks import plan_remarks

            screen.write_bytes(junit(plan_remarks(planned.plan)))
        case "sarif":
            from reconciler.cli.documents.sarif import SarifDocument, sarif_bytes
            from reconciler.cli.git import prefix_of
            from reconciler.cli.render.remarks import plan_remarks

            screen.write_bytes(
                sarif_bytes(SarifDocument.of(plan_remarks(planned.plan), prefix_of(planned.folder, os.environ)))
            )
        case _:
            assert_never(form)


def warn_about(planned: Planned) -> None:
    """Print what is odd about the files or the plan, on standard error."""
    warn_all(planned.warnings)
    warn_all(warning_text(finding) for finding in planned.plan.warnings)


def warning_text(finding: Finding) -> str:
    """Return a warning of a plan: what it is about, where that is declared, what is odd, what to do."""
    about = f"{finding.address}: " if finding.address and finding.address not in finding.message else ""
    where = f"{finding.source}: " if finding.source else ""
    return f"{where}{about}{finding.message}. {finding.hint}"


def show_as_text(planned: Planned, screen: Screen) -> None:
    """Print a plan as people read it, on any screen."""
    screen.show(plan_text(planned.plan, planned.header, width=screen.width))


def show_document(document: PlanDocument, form: Literal["text", "json"]) -> None:
    """Print a saved plan on standard output."""
    screen = out()
    if form == "json":
        from reconciler.planning.document.saved import canonical_bytes

        screen.write_bytes(json_shown(canonical_bytes(document)) + b"\n")
    else:
        from reconciler.cli.render.saved import plan_of

        screen.show(plan_text(plan_of(document), width=screen.width))
