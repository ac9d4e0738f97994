"""`reconciler run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from reconciler.cli import signals
from reconciler.cli.bundles import bundled
from reconciler.cli.console import are_one
from reconciler.cli.logs import speaks
from reconciler.cli.options import Files, Place, TextOrJson, seconds
from reconciler.cli.presenting import present, raise_verdict
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.workflow.upkeep.outcomes import Upkeep

_SHORTEST_S: Final = 1.0
"""A pass asks every cluster what it has: more often than this, it would do nothing else."""


@bundled
def command(
    files: Files,
    place: Place,
    once: Annotated[bool, Option("--once", help="Bring everything up to date as of now, then leave.")] = False,
    interval: Annotated[
        str | None,
        Option(
            "--interval", metavar="DURATION", help="Again and again, so long after each time: 30s.", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None, Option("--only", metavar="JOBS", help="Only these jobs.", show_default=False)
    ] = None,
    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            metavar="FILE",
            help="Write metrics there each time: for Prometheus, or as JSON into FILE.json.",
            show_default=False,
        ),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Run the data pipeline: mirrors to their sources' ends, then what clusters do to themselves.

    Closed segments are uploaded to object storage and may leave the local tier; what expired goes on both tiers; keys
    are compacted; small remote segments are merged; what lies there is held against what the cluster knows (scrub).

    JOBS: mirror, migrations, deletions, disablings, recoveries, rewrites, transactions, roll, upload, retention,
    compact, merge, scrub, sweep; several with commas between.
    """
    if once == (interval is not None):
        raise UsageError("run works once, or at an interval", hint="Write: reconciler run --once, or --interval 30s")
    from reconciler.applying.events import ActionFailed
    from reconciler.cli.metricsfile import MetricsFile
    from reconciler.cli.outputs import checked_output
    from reconciler.cli.render.upkeep_text import upkeep_text
    from reconciler.cli.reporting import reporter
    from reconciler.workflow.run import run_every, run_once
    from reconciler.workflow.running.stopping import Stop

    invocation, select = place.invocation(), files.select()
    told = None if metrics is None else MetricsFile(checked_output("--metrics", metrics, "metrics"), invocation, select)
    stop = Stop()
    jobs = tuple(name for text in only or () for name in text.split(",") if name)
    if interval is not None:
        every = _interval_s(interval)
        with signals.stopping(stop), reporter("text") as report:

            def refused(event: Event) -> None:
                """Of a pass that is one line, only what failed is told on its own."""
                if isinstance(event, ActionFailed):
                    report(event)

            passes = run_every(invocation, select, every, only=jobs, report=refused, stop=stop)
            for number, upkeep in enumerate(passes, 1):
                _say(upkeep, number, form)
                if told is not None:
                    told.write(upkeep)
        raise_verdict(told.trouble if told is not None else None)
        return
    from reconciler.cli.documents.logs import PipelineDocument

    with signals.stopping(stop), reporter("text") as report:
        upkeep = run_once(invocation, select, only=jobs, report=report, stop=stop)
    present(
        form, lambda: upkeep_text(upkeep, with_failures=speaks() or not are_one()), lambda: PipelineDocument.of(upkeep)
    )
    if told is not None:
        told.write(upkeep)
    raise_verdict(upkeep.verdict)
    raise_verdict(told.trouble if told is not None else None)


def _interval_s(text: str) -> float:
    every = seconds("--interval", text)
    if every < _SHORTEST_S:
        raise UsageError(f"--interval {text} is too short", hint="It is at least 1s; write --interval 30s")
    return every


def _say(upkeep: Upkeep, number: int, form: str) -> None:
    """Print one pass of many as one line."""
    from reconciler.cli.console import out

    if form == "json":
        from reconciler.cli.documents.base import document_line
        from reconciler.cli.documents.logs import PipelineDocument

        out().write_bytes(document_line(PipelineDocument.of(upkeep)))
    else:
        from reconciler.cli.render.upkeep_text import pass_line

        out().show([pass_line(upkeep, number)])
