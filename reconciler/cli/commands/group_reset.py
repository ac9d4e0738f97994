"""`reconciler group reset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.render.groups_text import reset_done_text, reset_text

if TYPE_CHECKING:
    from reconciler.workflow.groups import GroupReset


@bundled
def command(
    files: Files,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    to: Annotated[str, Option("--to", metavar="earliest|latest|TIME|OFFSET|±N", help="Where it goes on reading.")],
    topic: Annotated[
        str | None, Option(metavar="NAME", help="Only this topic, as shop:eu:orders.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Only this partition.", show_default=False)
    ] = None,
    force: Annotated[bool, Option("--force", help="Also while the group is reading.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Set where a consumer group goes on reading. What moves from where to where is shown first."""
    from reconciler.cli.documents.groups import GroupResetDocument
    from reconciler.workflow.groups import GroupChange, reset_group

    def confirm(reset: GroupReset) -> bool:
        return approved(reset_text(reset), "Reset it?", yes=yes, form=form)

    change = GroupChange(cluster=cluster, group=group, topic=topic, partition=partition, force=force)
    done = reset_group(place.invocation(), files.select(), change, to, confirm=confirm)
    present(
        form,
        lambda: reset_done_text(done) if done.moves else reset_text(done),
        lambda: GroupResetDocument.of(done),
    )
