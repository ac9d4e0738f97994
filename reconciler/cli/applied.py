"""`apply` and `destroy`: show the plan, ask once, do it, say what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli import signals
from reconciler.cli.asking import ask, require_someone_to_ask
from reconciler.cli.console import err, out
from reconciler.cli.options import TextOrJson, seconds
from reconciler.cli.planned import show_as_text, warn_about
from reconciler.cli.presenting import raise_verdict
from reconciler.cli.render.amounts import counted
from reconciler.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.events import Event
    from reconciler.workflow.apply import Applied, ApplyOptions
    from reconciler.workflow.plan import Planned
    from reconciler.workflow.stopping import Stop


@dataclass(frozen=True, slots=True)
class Doing:
    """How a plan is carried out."""

    yes: Annotated[bool, Option("--yes", "-y", "--auto-approve", help="Do not ask.")] = False
    parallelism: Annotated[int, Option(metavar="N", min=1, max=256, help="Actions at the same time.")] = 8
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10m"
    form: TextOrJson = "text"

    def options(self, *, file: Path | None = None, strict: bool = False) -> ApplyOptions:
        """Say it in the words of the workflow."""
        from reconciler.workflow.apply import ApplyOptions

        return ApplyOptions(
            file=file,
            yes=self.yes,
            strict=strict,
            parallelism=self.parallelism,
            lock_timeout_s=seconds("--lock-timeout", self.lock_timeout),
        )


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the workflow calls back: to be allowed, to tell, to know when to stop."""

    confirm: Callable[[Planned], bool]
    report: Callable[[Event], None]
    stop: Stop


def carry_out(do: Callable[[Hooks], Applied], doing: Doing, *, question: str, is_approved: bool) -> None:
    """Run `do` with everything a run tells and asks on the way.

    Raises:
        UsageError: Somebody has to be asked, and there is no terminal.
        ReconcilerError: The run's verdict, after its result was shown.
    """
    if not is_approved:
        require_someone_to_ask("Give --yes, or a plan that `reconciler plan --out FILE` saved")
    seconds("--lock-timeout", doing.lock_timeout)
    from reconciler.cli.reporting import reporter
    from reconciler.workflow.stopping import Stop

    shown: list[Planned] = []

    def confirm(planned: Planned) -> bool:
        _show(planned, doing)
        shown.append(planned)
        return is_approved or ask(question)

    stop = Stop()
    try:
        with signals.stopping(stop), reporter(doing.form) as report:
            applied = do(Hooks(confirm=confirm, report=report, stop=stop))
    except BlockedError as error:
        planned = getattr(error, "planned", None)
        if planned is None:
            raise
        _show(planned, doing)
        count = counted(len(planned.plan.blocked), "action is", "actions are")
        raise BlockedError(
            f"nothing was done: {count} blocked", hint="The lines above say what, and what allows it"
        ) from error
    _show_applied(applied, doing, was_shown=bool(shown))
    raise_verdict(applied.verdict)


def _show(planned: Planned, doing: Doing) -> None:
    warn_about(planned)
    # With JSON standard output belongs to the events.
    show_as_text(planned, out() if doing.form == "text" else err())


def _show_applied(applied: Applied, doing: Doing, *, was_shown: bool) -> None:
    from reconciler.cli.render.applied_text import applied_text

    if doing.form == "json":
        return  # the last event has said it
    if applied.result is None and not was_shown:
        _show(applied.planned, doing)
    out().show(applied_text(applied))
