"""`reconciler topic consume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.bundles import bundled
from reconciler.cli.console import binary_stdout, err, out
from reconciler.cli.options import Files, Place
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import line
from reconciler.errors import UsageError


@bundled
def command(
    files: Files,
    place: Place,
    address: Annotated[
        str, Argument(metavar="ADDRESS|CLUSTER", help="For example topic/west/shop:eu:orders; with --regex a cluster.")
    ],
    output: Annotated[Path, Option("--output", "--out", "-o", metavar="FILE|-", help="Where they go.")] = Path("-"),
    output_format: Annotated[
        Literal["records", "values", "parquet"], Option("--output-format", help="How they are written.")
    ] = "records",
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Only this partition.", show_default=False)
    ] = None,
    start: Annotated[
        str,
        Option(
            "--from",
            metavar="earliest|latest|OFFSET|TIME",
            help="Where to begin; with --group what it never committed.",
        ),
    ] = "earliest",
    most: Annotated[
        int | None, Option("--max", metavar="N", min=1, help="At most so many records.", show_default=False)
    ] = None,
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"], Option(help="Whether to wait for transactions.")
    ] = "read_committed",
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as records come, until interrupted.")] = False,
    group: Annotated[
        str | None,
        Option(
            metavar="NAME", help="Begin where this group left off, and commit what was written.", show_default=False
        ),
    ] = None,
    regex: Annotated[
        str | None,
        Option(
            metavar="REGEX",
            help="Read all topics of CLUSTER whose full name matches as a whole, such as 'shop:.*'.",
            show_default=False,
        ),
    ] = None,
    skip_missing: Annotated[
        bool,
        Option("--skip-missing", help="Go on after offsets whose object is gone or damaged, and say which they are."),
    ] = False,
) -> None:
    """Read a topic's records, or those of all topics that match, up to the end as it is at the start."""
    from reconciler.cli.outputs import KINDS, checked_output
    from reconciler.workflow.consume import consume
    from reconciler.workflow.consuming.options import ConsumeOptions
    from reconciler.workflow.running.stopping import Stop

    file = None if str(output) == "-" else output
    if file is None and output_format == "parquet" and out().is_terminal:
        raise UsageError("Parquet is not for terminals", hint="Name a file with --output")
    if file is not None:
        is_added_to = group is not None and output_format == "values"
        checked_output("--output", file, KINDS[output_format], is_added_to=is_added_to)
    options = ConsumeOptions(
        output=file,
        output_format=output_format,
        partition=partition,
        start=start,
        max_records=most,
        isolation=isolation,
        follow=follow,
        group=group,
        regex=regex,
        skip_missing=skip_missing,
    )
    stop = Stop()
    with signals.stopping(stop):
        read = consume(place.invocation(), files.select(), address, options, stdout=binary_stdout(), stop=stop)
    if file is not None:
        err().show([line(f"Consumed {counted(read.records, 'record')} of {read.where} into {file}")])
