"""Commands of `state`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.options import AnyForm, DryRun, FileOptions, TextOrJson, WorkspaceOptions, Yes, expand_bundles
from reconciler.cli.present import print_result, raise_verdict
from reconciler.cli.show import ask_question, confirm_effects, require_terminal
from reconciler.cli.verbs import open_state_edit

if TYPE_CHECKING:
    from reconciler.planning.orders import ReaddressOrder
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Recorded
    from reconciler.state.repair import Repair


LockTimeout = Annotated[str, Option(metavar="TIME", help="Longest wait for the lease.")]


@expand_bundles
def diff_command(
    files: FileOptions,
    place: WorkspaceOptions,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="Number of a state in `state history`.")],
    other: Annotated[
        int | None,
        Argument(metavar="[SERIAL]", min=0, help="Another state; by default the current.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show the differences between two states. Reads no cluster."""
    from reconciler.cli.json.states_json import STATE_DIFF
    from reconciler.cli.text.states_text import format_state_diff
    from reconciler.operations.state_views import state_diff

    diff = state_diff(place.read_invocation(), files.build_select(), serial, other)
    print_result(form, lambda: format_state_diff(diff), lambda: STATE_DIFF.build_row(diff))


@expand_bundles
def history_command(
    files: FileOptions,
    place: WorkspaceOptions,
    limit: Annotated[int, Option("--limit", metavar="N", min=0, help="Show the newest N; 0 shows all.")] = 20,
    form: TextOrJson = "text",
) -> None:
    """List the snapshots of the state, newest first."""
    from reconciler.cli.json.states_json import STATE_HISTORY
    from reconciler.cli.text.states_text import format_history
    from reconciler.operations.state_views import state_history

    history = state_history(place.read_invocation(), files.build_select(), limit=limit or None)
    print_result(form, lambda: format_history(history), lambda: STATE_HISTORY.build_row(history))


@expand_bundles
def list_command(files: FileOptions, place: WorkspaceOptions, form: TextOrJson = "text") -> None:
    """List what this workspace owns."""
    from reconciler.cli.json.states_json import STATE_LIST
    from reconciler.cli.text.states_text import format_listing
    from reconciler.operations.state_views import state_list

    listing = state_list(place.read_invocation(), files.build_select())
    print_result(form, lambda: format_listing(listing), lambda: STATE_LIST.build_row(listing))


@expand_bundles
def mv_command(
    files: FileOptions,
    place: WorkspaceOptions,
    before: Annotated[str, Argument(metavar="ADDR", help="Recorded address, for example topic/west/shop:orders.")],
    after: Annotated[str, Argument(metavar="ADDR", help="New address, of the same kind and cluster.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = "10m",
    form: TextOrJson = "text",
) -> None:
    """Record a resource under another address, a namespace with all its resources. Changes no cluster."""
    from reconciler.cli.json.states_json import STATE_MOVES
    from reconciler.cli.orders import show_plan
    from reconciler.cli.text.states_text import format_moves
    from reconciler.operations.state_edit import state_mv

    def confirm(moves: tuple[ReaddressOrder, ...]) -> bool:
        return confirm_effects(format_moves(moves), "Record them like that?", yes=yes, form=form)

    show = partial(show_plan, form=form) if dry_run else None
    with open_state_edit(files, place, "state mv", lock_timeout, show) as cut:
        moves = state_mv(cut, before, after, confirm=confirm)
    if not dry_run:
        print_result(form, list, lambda: STATE_MOVES.build_row(moves))


@expand_bundles
def repair_command(
    files: FileOptions,
    place: WorkspaceOptions,
    snapshot: Annotated[
        str | None,
        Option(
            "--snapshot",
            metavar="SERIAL|KEY",
            help="Rebuild from this snapshot if the newest is lost.",
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
    """Rebuild a lost, damaged or outdated lockfile from the snapshots and journals next to it."""
    from reconciler.cli.json.states_json import STATE_REPAIR
    from reconciler.cli.text.states_text import format_repair, format_repair_result
    from reconciler.operations.state_edit import state_repair
    from reconciler.state.repair import RepairChoice

    def confirm(repair: Repair) -> bool:
        return confirm_effects(format_repair(repair), "Repair it like that?", yes=yes, form=form)

    choice = RepairChoice(snapshot=snapshot, without_run=without_run)
    repaired = state_repair(place.read_invocation(), files.build_select(), choice, confirm=confirm)
    print_result(form, lambda: format_repair_result(repaired), lambda: STATE_REPAIR.build_row(repaired))


@expand_bundles
def rm_command(
    files: FileOptions,
    place: WorkspaceOptions,
    addresses: Annotated[
        list[str], Argument(metavar="ADDR...", help="Address to forget; with --recursive also patterns with *.")
    ],
    recursive: Annotated[
        bool, Option("--recursive", help="Also forget the content of these namespaces and clusters.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = "10m",
    form: TextOrJson = "text",
) -> None:
    """Stop owning resources. Changes no cluster; the next apply adopts again what the files still declare."""
    from reconciler.cli.json.states_json import STATE_REMOVAL
    from reconciler.cli.orders import show_plan
    from reconciler.cli.text.states_text import format_forget_question, format_forget_result
    from reconciler.operations.state_edit import state_rm

    def confirm(rows: tuple[tuple[Address, Recorded], ...]) -> bool:
        return confirm_effects(format_forget_question(rows), "Forget them?", yes=yes, form=form)

    show = partial(show_plan, form=form) if dry_run else None
    with open_state_edit(files, place, "state rm", lock_timeout, show) as cut:
        forgotten = state_rm(cut, addresses, recursive=recursive, confirm=confirm)
    if not dry_run:
        print_result(form, lambda: format_forget_result(forgotten), lambda: STATE_REMOVAL.build_row(forgotten))


@expand_bundles
def rollback_plan_command(
    files: FileOptions,
    place: WorkspaceOptions,
    serial: Annotated[int, Argument(metavar="SERIAL", min=0, help="Number of a state in `state history`.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Save the plan for `apply FILE`.", show_default=False),
    ] = None,
    target: Annotated[
        list[str] | None,
        Option("--target", metavar="ADDR", help="Only this, with its dependencies.", show_default=False),
    ] = None,
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="ADDR", help="Exclude this.", show_default=False)
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="VERB:ADDR", help="Allow an action that a guard would block.", show_default=False),
    ] = None,
    form: AnyForm = "text",
) -> None:
    """Plan back to an earlier state. Changes nothing; `apply FILE` applies the plan."""
    from dataclasses import replace

    from reconciler.cli.output_files import check_output
    from reconciler.cli.show import print_apply_command, show_plan_result, warn_about_plan
    from reconciler.operations.state_views import plan_rollback

    file = None if out is None else check_output("--out", out, "a saved plan")
    select = replace(
        files.build_select(), targets=tuple(target or ()), excludes=tuple(exclude or ()), allow=tuple(allow or ())
    )
    planned = plan_rollback(place.read_invocation(), select, serial, out=file)
    warn_about_plan(planned)
    show_plan_result(planned, form)
    if file is not None:
        print_apply_command(file)
    raise_verdict(planned.verdict())


@expand_bundles
def show_command(
    files: FileOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    form: TextOrJson = "text",
) -> None:
    """Show one resource as it was last applied."""
    from reconciler.cli.json.states_json import STATE_SHOW
    from reconciler.cli.text.states_text import format_recorded_resource
    from reconciler.operations.state_views import state_show

    entry = state_show(place.read_invocation(), files.build_select(), address)
    print_result(form, lambda: format_recorded_resource(entry), lambda: STATE_SHOW.build_row(entry))


@expand_bundles
def unlock_command(
    files: FileOptions,
    place: WorkspaceOptions,
    run: Annotated[
        str | None, Argument(metavar="RUN", help="Id of the run that holds the lease.", show_default=False)
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take the lease from a run that died. Without RUN, only if it is not renewed in time."""
    from reconciler.cli.json.states_json import STATE_UNLOCK
    from reconciler.cli.text.states_text import format_unlock
    from reconciler.operations.state_edit import state_unlock
    from reconciler.operations.steps.runner import Stop

    def confirm(question: str) -> bool:
        if not yes:
            require_terminal("Give --yes if that run is dead for certain")
        return yes or ask_question(f"{question} Take it away?")

    stop = Stop()
    with signals.forward_signals(stop):
        unlocked = state_unlock(place.read_invocation(), files.build_select(), run, confirm=confirm, stop=stop)
    print_result(form, lambda: format_unlock(unlocked), lambda: STATE_UNLOCK.build_row(unlocked))
