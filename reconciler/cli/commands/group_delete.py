"""`reconciler group delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.render.groups_text import deletion_done_text, deletion_text

if TYPE_CHECKING:
    from reconciler.workflow.groups import GroupDeletion


@bundled
def command(
    files: Files,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    topic: Annotated[
        str | None, Option(metavar="NAME", help="Only what it has of this topic.", show_default=False)
    ] = None,
    force: Annotated[bool, Option("--force", help="Also while the group is reading.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Forget a consumer group, or what it has committed of one topic. What that is, is shown first."""
    from reconciler.cli.documents.groups import GroupDeletionDocument
    from reconciler.workflow.groups import GroupChange, delete_group

    def confirm(deletion: GroupDeletion) -> bool:
        return approved(deletion_text(deletion), "Delete it?", yes=yes, form=form)

    change = GroupChange(cluster=cluster, group=group, topic=topic, force=force)
    done = delete_group(place.invocation(), files.select(), change, confirm=confirm)
    present(form, lambda: deletion_done_text(done), lambda: GroupDeletionDocument.of(done))
