"""`reconciler run`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli import signals
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict
from reconciler.errors import UsageError


@bundled
def command(
    files: Files,
    place: Place,
    once: Annotated[bool, Option("--once", help="Bring everything up to date as of now, then leave.")] = False,
    only: Annotated[
        list[str] | None, Option("--only", metavar="JOBS", help="Only these jobs.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Run the data pipeline: bring every mirror to its source's end as seen at the start."""
    if not once:
        raise UsageError("run works in single rounds", hint="Write: reconciler run --once")
    from reconciler.cli.documents.logs import PipelineDocument
    from reconciler.cli.render.logs_text import upkeep_text
    from reconciler.cli.reporting import reporter
    from reconciler.workflow.run import run_once
    from reconciler.workflow.stopping import Stop

    stop = Stop()
    jobs = tuple(name for text in only or () for name in text.split(","))
    with signals.stopping(stop), reporter("text") as report:
        upkeep = run_once(place.invocation(), files.select(), only=jobs, report=report, stop=stop)
    present(form, lambda: upkeep_text(upkeep), lambda: PipelineDocument.of(upkeep))
    raise_verdict(upkeep.verdict)
