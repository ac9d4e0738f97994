"""`apply` and `destroy`: show the plan, ask once, do it, say what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Option

from reconciler.cli import signals
from reconciler.cli.asking import ask, require_someone_to_ask
from reconciler.cli.console import are_one, err, out
from reconciler.cli.lastline import last_line
from reconciler.cli.logs import speaks
from reconciler.cli.options import TextOrJson, seconds
from reconciler.cli.planned import show_as_text, warn_about
from reconciler.cli.presenting import blocked_above, raise_verdict
from reconciler.errors import BlockedError, StalePlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.applying.events import Summary
    from reconciler.workflow.apply import Applied, ApplyOptions, Hooks
    from reconciler.workflow.plan import Planned

Options = TypeVar("Options", bound="ApplyOptions")


@dataclass(frozen=True, slots=True)
class Doing:
    """How a plan is carried out."""

    yes: Annotated[bool, Option("--yes", "-y", "--auto-approve", help="Do not ask.")] = False
    parallelism: Annotated[int, Option(metavar="N", min=1, max=256, help="Actions at the same time.")] = 8
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10m"
    form: TextOrJson = "text"

    def options(self, kind: type[Options], **more: Any) -> Options:
        """Return the options of a step: these, and those of one command alone."""
        timeout_s = seconds("--lock-timeout", self.lock_timeout)
        return kind(yes=self.yes, parallelism=self.parallelism, lock_timeout_s=timeout_s, **more)


def carry_out(do: Callable[[Hooks], Applied], doing: Doing, *, question: str, is_approved: bool) -> None:
    """Run `do` with everything a run tells and asks on the way.

    Raises:
        UsageError: Somebody has to be asked, and there is no terminal.
        ReconcilerError: The run's verdict, after its result was shown.
    """
    with last_line(doing.form):
        if not is_approved:
            require_someone_to_ask("Give --yes, or a plan that `reconciler plan --out FILE` saved")
        seconds("--lock-timeout", doing.lock_timeout)
        from reconciler.cli.reporting import Ending, reporter
        from reconciler.workflow.apply import Hooks
        from reconciler.workflow.running.stopping import Stop

        talk = _Talk(doing, question, is_approved=is_approved)
        stop, ending = Stop(), Ending()
        try:
            with signals.stopping(stop, patience_s=signals.RUN_S), reporter(doing.form, ending) as report:
                applied = do(Hooks(talk.confirm, report, stop))
        except BlockedError as error:
            raise talk.about_blocked(error) from error
        except StalePlanError as error:
            raise_verdict(talk.about_stale(error))
        if doing.form == "text":
            talk.show_outcome(applied, ending.summary)
        raise_verdict(applied.verdict)


class _Talk:
    """What is said about one plan: it is shown once, however it goes on."""

    def __init__(self, doing: Doing, question: str, *, is_approved: bool) -> None:
        self._doing = doing
        self._question = question
        self._is_approved = is_approved
        self._is_shown = False

    def confirm(self, planned: Planned) -> bool:
        """Show a plan, and ask unless it is approved already."""
        self._show(planned)
        return self._is_approved or ask(self._question)

    def about_blocked(self, error: BlockedError) -> BlockedError:
        """Show the plan that is blocked; what stands in it is not said twice."""
        planned = getattr(error, "planned", None)
        if planned is None:
            return error
        self._show(planned)
        if self._doing.form == "json":
            from reconciler.applying.events import PlanMade
            from reconciler.cli.documents.events import event_line

            out().write_bytes(event_line(PlanMade(planned.plan)))
        return blocked_above(planned.plan, "nothing was done: ")

    def about_stale(self, error: StalePlanError) -> StalePlanError:
        """Show what differs from what was approved, and nothing else; with JSON it is in the last line, too."""
        from reconciler.cli.render.difference_text import difference_lines
        from reconciler.workflow.deciding.approved import ChangedPlanError

        if isinstance(error, ChangedPlanError) and not (self._doing.form == "json" and speaks()):
            err().show(difference_lines(error.held))
        return error

    def show_outcome(self, applied: Applied, summary: Summary | None) -> None:
        """Say what came of it."""
        from reconciler.cli.render.applied_text import applied_text

        if not self._is_shown:
            self._show(applied.planned)
        # What failed was told on standard error when it did.
        out().show(applied_text(applied, summary, with_failures=speaks() or not are_one()))

    def _show(self, planned: Planned) -> None:
        self._is_shown = True
        warn_about(planned)
        if self._doing.form == "text":
            show_as_text(planned, out())
        elif not (self._is_approved and speaks()):
            # With JSON standard output belongs to the events, and with --verbose standard error to the log.
            show_as_text(planned, err())
