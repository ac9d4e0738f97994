"""What `drift` found on the screen, in the form that was asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, assert_never

from reconciler.cli.console import out
from reconciler.cli.presenting import warn_all

if TYPE_CHECKING:
    from reconciler.cli.options import Form
    from reconciler.workflow.drift import Drifted


def show_drifted(drifted: Drifted, form: Form) -> None:
    """Print findings on standard output, warnings on standard error."""
    from reconciler.cli.planned import warning_text

    warn_all(drifted.planned.warnings)
    warn_all(warning_text(finding) for finding in drifted.warnings)
    screen = out()
    match form:
        case "text":
            from reconciler.cli.render.drift_text import drift_lines

            screen.show(drift_lines(drifted))
        case "json":
            from reconciler.cli.documents.base import document_bytes
            from reconciler.cli.documents.checks import DriftDocument

            screen.write_bytes(document_bytes(DriftDocument.of(drifted)))
        case "markdown":
            from reconciler.cli.render.drift_markdown import drift_markdown

            screen.write(drift_markdown(drifted))
        case "junit":
            from reconciler.cli.render.drift_remarks import drift_junit

            screen.write_bytes(drift_junit(drifted))
        case "sarif":
            from reconciler.cli.documents.sarif import SarifDocument, sarif_bytes
            from reconciler.cli.git import prefix_of
            from reconciler.cli.render.drift_remarks import drift_remarks

            prefix = prefix_of(drifted.planned.folder, os.environ)
            screen.write_bytes(sarif_bytes(SarifDocument.of(drift_remarks(drifted), prefix)))
        case _:
            assert_never(form)
