"""`reconciler mount release`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present
from reconciler.cli.reaching import ByState

if TYPE_CHECKING:
    from reconciler.workflow.mounting.releasing import Release


@bundled
def command(
    files: Files,
    by_state: ByState,
    place: Place,
    location: Annotated[
        str, Argument(metavar="LOCATION", help="<topic>/<cluster uuid>/<revision>, as `mount list` shows it.")
    ],
    owner: Annotated[str, Option("--owner", metavar="UUID", help="The cluster that will not come back.")],
    cluster: Annotated[
        str | None,
        Option("--cluster", metavar="NAME", help="By whose object storage, if several have it.", show_default=False),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="release:LOCATION", help="Allow what is lost by it.", show_default=False),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take a topic from a cluster that will not come back: what it had not uploaded is lost. For emergencies."""
    from reconciler.cli.documents.mounts import MountReleaseDocument
    from reconciler.cli.render.released_text import release_text, released_text
    from reconciler.workflow.mounting.releasing import ReleaseOf, release_topic
    from reconciler.workflow.running.stopping import Stop

    def confirm(release: Release) -> bool:
        return approved(release_text(release), "Release it?", yes=yes, form=form)

    stop, asked = Stop(), ReleaseOf(location=location, owner=owner, cluster=cluster, allow=tuple(allow or ()))
    with signals.stopping(stop, patience_s=signals.RUN_S):
        done = release_topic(by_state.reach(files, place), asked, confirm=confirm, stop=stop)
    present(form, lambda: released_text(done), lambda: MountReleaseDocument.of(done))
