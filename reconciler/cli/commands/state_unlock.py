"""`reconciler state unlock`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.asking import ask, require_someone_to_ask
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    place: Place,
    run: Annotated[
        str | None, Argument(metavar="RUN", help="The run that holds it, as who waits prints.", show_default=False)
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take the lease from a run that died. With RUN at once; without, only if nothing moves for a whole lease."""
    from reconciler.cli.documents.states import StateUnlockDocument
    from reconciler.cli.render.state_text import unlocked_text
    from reconciler.workflow.running.stopping import Stop
    from reconciler.workflow.stating.unlocking import state_unlock

    def confirm(said: str) -> bool:
        if not yes:
            require_someone_to_ask("Give --yes if that run is dead for certain")
        return yes or ask(f"{said} Take it away?")

    stop = Stop()
    with signals.stopping(stop):
        unlocked = state_unlock(place.invocation(), files.select(), run, confirm=confirm, stop=stop)
    present(form, lambda: unlocked_text(unlocked), lambda: StateUnlockDocument.of(unlocked))
