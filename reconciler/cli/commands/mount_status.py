"""`reconciler mount status`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict
from reconciler.cli.reaching import ByState, Cluster


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    migration: Annotated[
        int | None, Argument(metavar="ID", min=1, help="By default every migration.", show_default=False)
    ] = None,
    cluster: Cluster = None,
    form: TextOrJson = "text",
) -> None:
    """Show the mounts and unmounts under way: how far each is, what it waits for, and what may be asked of it."""
    from reconciler.cli.documents.mounts import MountStatusDocument
    from reconciler.cli.render.mountables_text import status_text
    from reconciler.workflow.mounting.migrations import mount_status

    found = mount_status(by_state.reach(files, place), migration, cluster)
    present(
        form,
        lambda: status_text(found.migrations, is_whole=not found.lost),
        lambda: MountStatusDocument.of(found),
    )
    raise_verdict(found.verdict)
