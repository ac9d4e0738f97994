"""`reconciler drift`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import err, out
from reconciler.cli.options import AnyForm, Chosen, Place
from reconciler.cli.presenting import raise_verdict
from reconciler.cli.render.lines import line
from reconciler.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


@bundled
def command(
    chosen: Chosen,
    place: Place,
    form: AnyForm = "text",
    fail_on: Annotated[
        list[str] | None,
        Option("--fail-on", metavar="CLASS", help="Also fail on: unmanaged, pending, blocked.", show_default=False),
    ] = None,
    known: Annotated[
        Path | None,
        Option(metavar="FILE", help="Leave out what this file was told; rewrites it.", show_default=False),
    ] = None,
    accept: Annotated[
        list[str] | None,
        Option(metavar="ADDR", help="Print a patch to the files that says what is there instead.", show_default=False),
    ] = None,
) -> None:
    """Say where clusters have moved away from the files. Read-only; exits 3 where they have."""
    if accept:
        if fail_on or known is not None or form != "text":
            message = "--accept prints a patch and nothing else"
            raise UsageError(message, hint="Leave out --fail-on, --known and --format.")
        _print_patch(chosen, place, accept)
        return
    from reconciler.cli.drifted import show_drifted
    from reconciler.cli.outputs import checked_output
    from reconciler.workflow.drift import drift

    if known is not None:
        checked_output("--known", known, "a file of --known")
    drifted = drift(place.invocation(), chosen.select(), fail_on=tuple(fail_on or ()), known=known)
    show_drifted(drifted, form)
    drifted.remember()
    raise_verdict(drifted.verdict)


def _print_patch(chosen: Chosen, place: Place, patterns: Sequence[str]) -> None:
    """Print the patch on standard output, and what it cannot say as comments on standard error."""
    from reconciler.workflow.accepting.accept import accept

    accepted = accept(place.invocation(), chosen.select(), patterns)
    err().show([line(f"# {note}") for note in accepted.notes])
    out().write_bytes(accepted.patch.encode())
    if not accepted.patch:
        message = "nothing of that can be accepted by a patch"
        raise UserError(message, hint="The lines above say what to do instead.")
    if accepted.left_out:
        many = "1 finding is" if accepted.left_out == 1 else f"{accepted.left_out} findings are"
        message = f"{many} not in the patch"
        raise UserError(message, hint="The lines above say what to do instead; the patch is right as far as it goes.")
