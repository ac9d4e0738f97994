"""`reconciler mount cancel`."""

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
    """Stop a mount or unmount that has begun, and undo what it did: the topics are as before."""
    from reconciler.cli.documents.mounts import MigrationDocument
    from reconciler.cli.render.mountables_text import cancelled_text

    done = asked(by_state.reach(files, place), Which(migration, cluster), "cancel", yes=yes, form=form)
    present(form, lambda: cancelled_text(done), lambda: MigrationDocument.of(done))
