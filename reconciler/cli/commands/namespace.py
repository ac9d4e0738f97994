"""`namespace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.options import Acting, ByState, Files, Place, TextOrJson, bundled, pairs
from reconciler.cli.present import present
from reconciler.cli.show import approved

if TYPE_CHECKING:
    from reconciler.operations.clusters.namespaces import NamespaceDeletion


@bundled
def create_command(
    files: Files,
    acting: Acting,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    namespace: Annotated[str, Argument(metavar="NAME", help="For example shop:eu; every tier above is made too.")],
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A config that topics in it inherit.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Make a namespace now. For emergencies: the next plan shows what the files do not say."""
    configs = pairs("--set", set_)
    from reconciler.cli.json.clusters_json import NamespaceCreationDocument
    from reconciler.cli.text.topics_text import created_text
    from reconciler.operations.clusters.namespaces import create_namespace

    with acting.emergency(files, place, "namespace create") as emergency:
        made = create_namespace(emergency, cluster.removeprefix("cluster/"), namespace, configs)
    present(form, lambda: created_text(made), lambda: NamespaceCreationDocument.from_record(made))


@bundled
def delete_command(
    files: Files,
    acting: Acting,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    namespace: Annotated[str, Argument(metavar="NAME", help="For example shop:eu.")],
    recursive: Annotated[bool, Option("--recursive", help="Also the namespaces in it, with their topics.")] = False,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="delete:ADDR", help="Delete it in spite of deletionProtection.", show_default=False),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Delete a namespace with its topics now. What goes is shown first."""
    from reconciler.cli.json.clusters_json import NamespaceDeletionDocument
    from reconciler.cli.text.topics_text import deleted_text, deletion_text
    from reconciler.operations.clusters.namespaces import delete_namespace

    def confirm(deletion: NamespaceDeletion) -> bool:
        return approved(deletion_text(deletion), "Delete all of it?", yes=yes, form=form)

    with acting.emergency(files, place, "namespace delete") as emergency:
        done = delete_namespace(
            emergency,
            cluster.removeprefix("cluster/"),
            namespace,
            recursive=recursive,
            confirm=confirm,
            allow=tuple(allow or ()),
        )
    present(form, lambda: deleted_text(done), lambda: NamespaceDeletionDocument.of(done))


@bundled
def list_command(
    files: Files,
    by_state: ByState,
    place: Place,
    cluster: Annotated[
        str | None, Argument(metavar="CLUSTER", help="By default all of the workspace.", show_default=False)
    ] = None,
    under: Annotated[
        str | None, Argument(metavar="UNDER", help="Only those below this namespace.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the namespaces on the clusters."""
    from reconciler.cli.json.clusters_json import NamespacesDocument
    from reconciler.cli.text.topics_text import namespaces_text
    from reconciler.operations.clusters.namespaces import list_namespaces

    rows = list_namespaces(by_state.reach(files, place), cluster, under)
    present(form, lambda: namespaces_text(rows), lambda: NamespacesDocument.of(rows))


@bundled
def move_command(
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
    from reconciler.cli.json.clusters_json import TopicMovesDocument
    from reconciler.cli.text.topics_text import moved_text
    from reconciler.operations.clusters.namespaces import move_topics

    with acting.emergency(files, place, "namespace move") as emergency:
        moved = move_topics(emergency, cluster.removeprefix("cluster/"), source, target, tuple(topic or ()))
    present(form, lambda: moved_text(moved), lambda: TopicMovesDocument.of(moved))
