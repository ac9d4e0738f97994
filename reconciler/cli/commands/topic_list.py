"""`reconciler topic list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import err
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import line

if TYPE_CHECKING:
    from reconciler.cli.documents.clusters import TopicsDocument
    from reconciler.cli.render.lines import Line


@bundled
def command(
    files: Files,
    place: Place,
    pattern: Annotated[
        str | None, Argument(metavar="PATTERN", help="For example 'topic/west/shop:*'.", show_default=False)
    ] = None,
    sizes: Annotated[
        bool, Option("--sizes", help="Measure records and bytes too, of at most 1,000 partitions of a cluster.")
    ] = False,
    form: TextOrJson = "text",
) -> None:
    """List the topics on the clusters."""
    from reconciler.workflow.looking.bursts import burst
    from reconciler.workflow.topics import list_topics

    def lines() -> list[Line]:
        from reconciler.cli.render.listings import topics_text

        return topics_text(rows, sizes=sizes)

    def document() -> TopicsDocument:
        from reconciler.cli.documents.clusters import TopicsDocument

        return TopicsDocument.of(rows)

    with burst():
        rows = list_topics(place.invocation(), files.select(), pattern, sizes=sizes)
        present(form, lines, document)
    left_out = sum(row.bytes is None for row in rows) if sizes else 0
    if left_out:
        err().show([line(f"Not measured: {left_out:,} of {counted(len(rows), 'topic')}. Name fewer by a pattern")])
