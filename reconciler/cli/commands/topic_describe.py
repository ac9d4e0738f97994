"""`reconciler topic describe`."""

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
    address: Annotated[str, Argument(metavar="ADDRESS", help="For example topic/west/shop:eu:orders.")],
    form: TextOrJson = "text",
) -> None:
    """Describe one topic: its partitions and offsets, its configs and where they come from."""
    from reconciler.cli.documents.clusters import TopicDocument
    from reconciler.cli.render.cluster_text import topic_text
    from reconciler.workflow.topics import describe_topic

    topic = describe_topic(place.invocation(), files.select(), address)
    present(form, lambda: topic_text(topic), lambda: TopicDocument.of(topic))
