"""`reconciler state repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli.asking import approved
from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present

if TYPE_CHECKING:
    from reconciler.state.repair import Repair


@bundled
def command(
    files: Files,
    place: Place,
    snapshot: Annotated[
        str | None,
        Option(
            "--snapshot",
            metavar="SERIAL|KEY",
            help="Go on from this state where the newest is lost.",
            show_default=False,
        ),
    ] = None,
    without_run: Annotated[
        str | None,
        Option("--without-run", metavar="RUN", help="Give up this run, whose journal is lost.", show_default=False),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Make a lost, damaged or outdated lockfile anew from the snapshots and journals beside it."""
    from reconciler.cli.documents.states import StateRepairDocument
    from reconciler.cli.render.repair_text import repair_text, repaired_text
    from reconciler.state.repair import Choice
    from reconciler.workflow.stating.repairing import state_repair

    def confirm(repair: Repair) -> bool:
        return approved(repair_text(repair), "Repair it like that?", yes=yes, form=form)

    choice = Choice(snapshot=snapshot, without_run=without_run)
    repaired = state_repair(place.invocation(), files.select(), choice, confirm=confirm)
    present(form, lambda: repaired_text(repaired), lambda: StateRepairDocument.of(repaired))
