"""`reconciler mount delete`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.migrating import Which, asked
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.reaching import ByState, Cluster, Id


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
    from reconciler.cli.render.mountables_text import deleted_text

    done = asked(by_state.reach(files, place), Which(migration, cluster), "delete", yes=yes, form=form)
    present(form, lambda: deleted_text(done), lambda: MigrationDocument.of(done))
