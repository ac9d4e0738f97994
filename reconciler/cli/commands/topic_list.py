"""`reconciler topic list`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

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
    form: TextOrJson = "text",
) -> None:
    """List the topics on the clusters, with their size where it is cheap to tell."""
    from reconciler.cli.documents.clusters import TopicsDocument
    from reconciler.cli.render.cluster_text import topics_text
    from reconciler.workflow.topics import list_topics

    rows = list_topics(place.invocation(), files.select(), pattern)
    present(form, lambda: topics_text(rows), lambda: TopicsDocument.of(rows))
