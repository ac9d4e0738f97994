"""`reconciler mount delete`."""

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
    """Drop the record of a migration that is planned, finished or cancelled."""
    from reconciler.cli.documents.mounts import MigrationDocument
    from reconciler.cli.render.mountables_text import asking_text, deleted_text
    from reconciler.workflow.mounting.migrations import ask_migration
    from reconciler.workflow.running.stopping import Stop

    def confirm(underway: Underway) -> bool:
        return approved(asking_text(underway, "delete"), "Delete it?", yes=yes, form=form)

    stop = Stop()
    with signals.stopping(stop, patience_s=signals.RUN_S):
        done = ask_migration(by_state.reach(files, place), migration, "delete", cluster, confirm=confirm, stop=stop)
    present(form, lambda: deleted_text(done), lambda: MigrationDocument.of(done))
