"""`reconciler validate`."""

from __future__ import annotations

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict, warn_all
from reconciler.errors import UserError


@bundled
def command(files: Files, place: Place, form: TextOrJson = "text") -> None:
    """Check manifests, life cycles and the guards that need no cluster. Reads files, asks nobody."""
    from reconciler.cli.documents.checks import ValidateDocument
    from reconciler.cli.render.findings import validated_lines
    from reconciler.workflow.validate import validate

    try:
        validated = validate(place.invocation(), files.select())
    except UserError as error:
        if form == "json" and (problems := getattr(error, "problems", ())):
            present(form, lambda: (), lambda: ValidateDocument.of_problems(problems))
        raise
    warn_all(validated.warnings)
    present(form, lambda: validated_lines(validated), lambda: ValidateDocument.of(validated))
    raise_verdict(validated.verdict)
