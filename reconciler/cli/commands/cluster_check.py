"""`reconciler cluster check`."""

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
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="The name of an embedded cluster.")],
    repair: Annotated[
        bool, Option("--repair", help="Finish what was left half-way, delete what is left over; loses no record.")
    ] = False,
    deep: Annotated[bool, Option("--deep", help="Read every record of both tiers as well.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Check every register and object of a cluster; exits 1 where something is lost or cannot be trusted."""
    from reconciler.cli.documents.checked import CheckDocument
    from reconciler.cli.render.checked_text import checked_text
    from reconciler.workflow.clusters import check

    checked = check(place.invocation(), files.select(), cluster, repair=repair, deep=deep)
    present(form, lambda: checked_text(checked), lambda: CheckDocument.of(checked))
    raise_verdict(checked.verdict)
