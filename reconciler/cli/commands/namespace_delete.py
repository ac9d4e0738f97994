"""`reconciler namespace delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present

if TYPE_CHECKING:
    from reconciler.workflow.namespaces.deleting import NamespaceDeletion


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    namespace: Annotated[str, Argument(metavar="NAME", help="For example shop:eu.")],
    recursive: Annotated[bool, Option("--recursive", help="Also the namespaces in it, with their topics.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Delete a namespace with its topics now. What goes is shown first; `run` frees the space."""
    from reconciler.cli.documents.namespaces import NamespaceDeletionDocument
    from reconciler.cli.render.namespaces_text import deleted_text, deletion_text
    from reconciler.workflow.namespaces.deleting import delete_namespace

    def confirm(deletion: NamespaceDeletion) -> bool:
        return approved(deletion_text(deletion), "Delete all of it?", yes=yes, form=form)

    with acting.emergency(files, place, "namespace delete") as emergency:
        done = delete_namespace(
            emergency, cluster.removeprefix("cluster/"), namespace, recursive=recursive, confirm=confirm
        )
    present(form, lambda: deleted_text(done), lambda: NamespaceDeletionDocument.of(done))
