"""`reconciler topic produce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import binary_stdin, out
from reconciler.cli.options import Files, Place
from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.cli.render.lines import line


@bundled
def command(
    files: Files,
    place: Place,
    address: Annotated[str, Argument(metavar="ADDRESS", help="For example topic/west/shop:eu:orders.")],
    given: Annotated[
        Path, Option("--input", "-i", metavar="FILE|-", help="Where the records are.", show_default=False)
    ],
    input_format: Annotated[
        Literal["jsonl", "csv", "parquet", "records"] | None,
        Option("--input-format", help="By default what the file's name says.", show_default=False),
    ] = None,
    key_field: Annotated[
        str | None, Option("--key-field", metavar="FIELD", help="The field that is the key.", show_default=False)
    ] = None,
    timestamp_field: Annotated[
        str | None,
        Option("--timestamp-field", metavar="FIELD", help="The field that is the time.", show_default=False),
    ] = None,
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Only into this partition.", show_default=False)
    ] = None,
) -> None:
    """Write records from a file or standard input into a topic."""
    from reconciler.cli.progress import counting
    from reconciler.workflow.produce import ProduceOptions, produce

    options = ProduceOptions(
        input=None if str(given) == "-" else given,
        input_format=input_format,
        key_field=key_field,
        timestamp_field=timestamp_field,
        partition=partition,
    )
    with counting("producing") as report:
        made = produce(place.invocation(), files.select(), address, options, stdin=binary_stdin(), report=report)
    where = f"{counted(len(made.ranges), 'partition')} of {made.address}"
    out().show([line(f"Produced {counted(made.records, 'record')}, {bytes_text(made.bytes)}, into {where}")])
