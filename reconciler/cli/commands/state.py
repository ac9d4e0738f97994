"""`state`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.options import AnyForm, DryRun, Files, Place, TextOrJson, Yes, expand_bundles
from reconciler.cli.present import present, raise_verdict
from reconciler.cli.show import ask_question, confirm_effects, require_terminal
from reconciler.cli.verbs import open_state_edit

if TYPE_CHECKING:
    from reconciler.planning.orders import ReaddressOrder
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Recorded
    from reconciler.state.repair import Repair


LockTimeout = Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")]


@expand_bundles
def diff_command(
    files: Files,
    place: Place,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="A state, as `state history` numbers them.")],
    other: Annotated[
        int | None,
        Argument(metavar="[SERIAL]", min=0, help="Another one; by default the current one.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show what two states say differently. Asks no cluster."""
    from reconciler.cli.json.states_json import STATE_DIFF
    from reconciler.cli.text.states_text import diff_text
    from reconciler.operations.state_views import state_diff

    diff = state_diff(place.invocation(), files.select(), serial, other)
    present(form, lambda: diff_text(diff), lambda: STATE_DIFF.row(diff))


@expand_bundles
def history_command(
    files: Files,
    place: Place,
    limit: Annotated[int, Option("--limit", metavar="N", min=0, help="Show the newest N; 0 shows all.")] = 20,
    form: TextOrJson = "text",
) -> None:
    """List the snapshots of the state, newest first."""
    from reconciler.cli.json.states_json import STATE_HISTORY
    from reconciler.cli.text.states_text import history_text
    from reconciler.operations.state_views import state_history

    history = state_history(place.invocation(), files.select(), limit=limit or None)
    present(form, lambda: history_text(history), lambda: STATE_HISTORY.row(history))


@expand_bundles
def list_command(files: Files, place: Place, form: TextOrJson = "text") -> None:
    """List what this workspace owns."""
    from reconciler.cli.json.states_json import STATE_LIST
    from reconciler.cli.text.states_text import listing_text
    from reconciler.operations.state_views import state_list

    listing = state_list(place.invocation(), files.select())
    present(form, lambda: listing_text(listing), lambda: STATE_LIST.row(listing))


@expand_bundles
def mv_command(
    files: Files,
    place: Place,
    before: Annotated[str, Argument(metavar="ADDR", help="What is recorded, for example topic/west/shop:orders.")],
    after: Annotated[str, Argument(metavar="ADDR", help="Its address from now on, of the same kind and cluster.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = "10m",
    form: TextOrJson = "text",
) -> None:
    """Record a resource under another address, a namespace with all in it. Touches no cluster."""
    from reconciler.cli.json.states_json import STATE_MOVES
    from reconciler.cli.orders import show_plan
    from reconciler.cli.text.states_text import moves_text
    from reconciler.operations.state_edit import state_mv

    def confirm(moves: tuple[ReaddressOrder, ...]) -> bool:
        return confirm_effects(moves_text(moves), "Record them like that?", yes=yes, form=form)

    show = partial(show_plan, form=form) if dry_run else None
    with open_state_edit(files, place, "state mv", lock_timeout, show) as cut:
        moves = state_mv(cut, before, after, confirm=confirm)
    if not dry_run:
        present(form, list, lambda: STATE_MOVES.row(moves))


@expand_bundles
def repair_command(
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
    from reconciler.cli.json.states_json import STATE_REPAIR
    from reconciler.cli.text.states_text import repair_result_text, repair_text
    from reconciler.operations.state_edit import state_repair
    from reconciler.state.repair import RepairChoice

    def confirm(repair: Repair) -> bool:
        return confirm_effects(repair_text(repair), "Repair it like that?", yes=yes, form=form)

    choice = RepairChoice(snapshot=snapshot, without_run=without_run)
    repaired = state_repair(place.invocation(), files.select(), choice, confirm=confirm)
    present(form, lambda: repair_result_text(repaired), lambda: STATE_REPAIR.row(repaired))


@expand_bundles
def rm_command(
    files: Files,
    place: Place,
    addresses: Annotated[
        list[str], Argument(metavar="ADDR...", help="What to forget; with --recursive also patterns with *.")
    ],
    recursive: Annotated[
        bool, Option("--recursive", help="Also what is in these namespaces and on these clusters.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = "10m",
    form: TextOrJson = "text",
) -> None:
    """Stop owning resources. Touches no cluster; what the files still declare, the next apply adopts again."""
    from reconciler.cli.json.states_json import STATE_REMOVAL
    from reconciler.cli.orders import show_plan
    from reconciler.cli.text.states_text import forget_question_text, forget_result_text
    from reconciler.operations.state_edit import state_rm

    def confirm(rows: tuple[tuple[Address, Recorded], ...]) -> bool:
        return confirm_effects(forget_question_text(rows), "Forget them?", yes=yes, form=form)

    show = partial(show_plan, form=form) if dry_run else None
    with open_state_edit(files, place, "state rm", lock_timeout, show) as cut:
        forgotten = state_rm(cut, addresses, recursive=recursive, confirm=confirm)
    if not dry_run:
        present(form, lambda: forget_result_text(forgotten), lambda: STATE_REMOVAL.row(forgotten))


@expand_bundles
def rollback_plan_command(
    files: Files,
    place: Place,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="A state, as `state history` numbers them.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Save the plan for `apply FILE`.", show_default=False),
    ] = None,
    target: Annotated[
        list[str] | None,
        Option("--target", metavar="ADDR", help="Only this, and what it depends on.", show_default=False),
    ] = None,
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="ADDR", help="Leave this alone.", show_default=False)
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="VERB:ADDR", help="Allow what a guard would block.", show_default=False),
    ] = None,
    form: AnyForm = "text",
) -> None:
    """Plan back to what was applied as an earlier state. Changes nothing; `apply FILE` does it."""
    from dataclasses import replace

    from reconciler.cli.output_files import check_output
    from reconciler.cli.show import print_apply_command, show_planned, warn_about
    from reconciler.operations.state_views import plan_rollback

    file = None if out is None else check_output("--out", out, "a saved plan")
    select = replace(
        files.select(), targets=tuple(target or ()), excludes=tuple(exclude or ()), allow=tuple(allow or ())
    )
    planned = plan_rollback(place.invocation(), select, serial, out=file)
    warn_about(planned)
    show_planned(planned, form)
    if file is not None:
        print_apply_command(file)
    raise_verdict(planned.verdict())


@expand_bundles
def show_command(
    files: Files,
    place: Place,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    form: TextOrJson = "text",
) -> None:
    """Show one resource as it was last applied."""
    from reconciler.cli.json.states_json import STATE_SHOW
    from reconciler.cli.text.states_text import recorded_resource_text
    from reconciler.operations.state_views import state_show

    entry = state_show(place.invocation(), files.select(), address)
    present(form, lambda: recorded_resource_text(entry), lambda: STATE_SHOW.row(entry))


@expand_bundles
def unlock_command(
    files: Files,
    place: Place,
    run: Annotated[
        str | None, Argument(metavar="RUN", help="The run that holds it, as who waits prints.", show_default=False)
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take the lease from a run that died. With RUN at once; without, only if nothing moves for a whole lease."""
    from reconciler.cli.json.states_json import STATE_UNLOCK
    from reconciler.cli.text.states_text import unlock_text
    from reconciler.operations.state_edit import state_unlock
    from reconciler.operations.steps.runner import Stop

    def confirm(question: str) -> bool:
        if not yes:
            require_terminal("Give --yes if that run is dead for certain")
        return yes or ask_question(f"{question} Take it away?")

    stop = Stop()
    with signals.forward_signals(stop):
        unlocked = state_unlock(place.invocation(), files.select(), run, confirm=confirm, stop=stop)
    present(form, lambda: unlock_text(unlocked), lambda: STATE_UNLOCK.row(unlocked))
