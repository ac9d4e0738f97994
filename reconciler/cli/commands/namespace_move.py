"""`reconciler namespace move`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    source: Annotated[str, Argument(metavar="FROM", help="The namespace they are in; '' is the default one.")],
    target: Annotated[str, Argument(metavar="TO", help="The namespace they go to; it has to be there.")],
    topic: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Only this topic; by default all in FROM and below.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Move topics to another namespace now, with records, offsets and ids. The next plan shows what the files say."""
    from reconciler.cli.documents.namespaces import TopicMovesDocument
    from reconciler.cli.render.namespaces_text import moved_text
    from reconciler.workflow.namespaces.moving import move_topics

    with acting.emergency(files, place, "namespace move") as emergency:
        moved = move_topics(emergency, cluster.removeprefix("cluster/"), source, target, tuple(topic or ()))
    present(form, lambda: moved_text(moved), lambda: TopicMovesDocument.of(moved))
