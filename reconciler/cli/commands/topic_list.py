"""`reconciler topic list`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    place: Place,
    pattern: Annotated[
        str | None, Argument(metavar="PATTERN", help="For example 'topic/west/shop:*'.", show_default=False)
    ] = None,
    sizes: Annotated[
        bool, Option("--sizes", help="Measure records and bytes too, of at most 1,000 partitions.")
    ] = False,
    form: TextOrJson = "text",
) -> None:
    """List the topics on the clusters."""
    from reconciler.cli.documents.clusters import TopicsDocument
    from reconciler.cli.render.cluster_text import topics_text
    from reconciler.workflow.topics import list_topics

    rows = list_topics(place.invocation(), files.select(), pattern, sizes=sizes)
    present(form, lambda: topics_text(rows, sizes=sizes), lambda: TopicsDocument.of(rows))
