"""`reconciler verify`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict


@bundled
def command(
    files: Files,
    place: Place,
    left: Annotated[str, Argument(metavar="ADDR", help="One topic log.")],
    right: Annotated[
        str | None, Argument(metavar="ADDR", help="The other; by default the source of a mirror.", show_default=False)
    ] = None,
    deep: Annotated[bool, Option("--deep", help="Read every record anew; trust no kept digest.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Compare two topic logs, partition by partition, by count, ends and digest; exits 1 where they differ."""
    from reconciler.cli.documents.logs import VerifyDocument
    from reconciler.cli.render.logs_text import verified_text
    from reconciler.cli.reporting import reporter
    from reconciler.workflow.verify import verify

    with reporter("text") as report:
        verified = verify(place.invocation(), files.select(), left, right, deep=deep, report=report)
    present(form, lambda: verified_text(verified), lambda: VerifyDocument.of(verified))
    raise_verdict(verified.verdict)
