"""`reconciler mount cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli import signals
from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.reaching import ByState, Cluster, Id

if TYPE_CHECKING:
    from reconciler.workflow.mounting.migrations import Underway


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    migration: Id,
    cluster: Cluster = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Stop a mount or unmount that has begun, and undo what it did: the topics are as before."""
    from reconciler.cli.documents.mounts import MigrationDocument
    from reconciler.cli.render.mountables_text import asking_text, cancelled_text
    from reconciler.workflow.mounting.migrations import ask_migration
    from reconciler.workflow.running.stopping import Stop

    def confirm(underway: Underway) -> bool:
        return approved(asking_text(underway, "cancel"), "Cancel it?", yes=yes, form=form)

    stop = Stop()
    with signals.stopping(stop, patience_s=signals.RUN_S):
        done = ask_migration(by_state.reach(files, place), migration, "cancel", cluster, confirm=confirm, stop=stop)
    present(form, lambda: cancelled_text(done), lambda: MigrationDocument.of(done))
