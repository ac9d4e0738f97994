"""`reconciler validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict, warn_all
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.cli.documents.base import Document
    from reconciler.manifests.problems import Problem
    from reconciler.workflow.validate import Validated


@bundled
def command(files: Files, place: Place, form: TextOrJson = "text") -> None:
    """Check manifests, life cycles and the guards that need no cluster. Reads files, asks nobody."""
    from reconciler.cli.render.findings import validated_lines
    from reconciler.workflow.validate import validate

    try:
        validated = validate(place.invocation(), files.select())
    except UserError as error:
        if form == "json" and (problems := getattr(error, "problems", ())):
            present(form, lambda: (), lambda: _of_problems(problems))
        raise
    warn_all(validated.warnings)
    present(form, lambda: validated_lines(validated), lambda: _of(validated))
    raise_verdict(validated.verdict)


def _of(validated: Validated) -> Document:
    from reconciler.cli.documents.checks import ValidateDocument

    return ValidateDocument.of(validated)


def _of_problems(problems: Sequence[Problem]) -> Document:
    from reconciler.cli.documents.checks import ValidateDocument

    return ValidateDocument.of_problems(problems)
