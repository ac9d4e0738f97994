"""Show plans, drift, results of runs, and progress."""

from __future__ import annotations

import os
import select
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, assert_never

from typer import Option

from reconciler.cli import signals
from reconciler.cli.console import (
    Screen,
    detect_pipeline,
    is_stdin_terminal,
    open_stderr,
    open_stdout,
    streams_share_target,
)
from reconciler.cli.environment import is_log_enabled
from reconciler.cli.options import OutputFormat, TextOrJson, parse_seconds
from reconciler.cli.present import (
    build_printed_block_error,
    print_error_as_json,
    print_warnings,
    raise_verdict,
    show_page,
)
from reconciler.cli.text.lines import Line, Span, Tone, cut_text, make_line, to_plain_text
from reconciler.errors import BlockedError, InterruptedRunError, StalePlanError, UsageError
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import escape_invisible, escape_json, format_elapsed

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.applying.events import Event, Summary
    from reconciler.operations.apply import ApplyOptions, ApplyOutcome, Hooks
    from reconciler.operations.drift import DriftResult
    from reconciler.operations.plan import PlanResult
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.planning.plan import PlanFinding, SavedPlan


_INPUT_WAIT_S: Final = 0.2
"""Maximum seconds of one wait for input; between waits, signals are handled."""


def ask_question(question: str) -> bool:
    """Ask on the terminal; return whether the answer was `yes`.

    Raises:
        InterruptedRunError: The user interrupted, or standard input ended.
    """
    screen = open_stderr()
    try:
        with signals.allow_prompt_interrupts():
            screen.show([make_line(Span(question, Tone.STRONG))])
            screen.write(to_plain_text([make_line("Type 'yes' to continue: ")]).rstrip("\n") + " ")
            while not select.select([sys.stdin], [], [], _INPUT_WAIT_S)[0]:
                pass
            answer = sys.stdin.readline()
    except KeyboardInterrupt as error:
        screen.write("\n")
        raise InterruptedRunError("Interrupted", hint="Nothing was started") from error
    if not answer:
        screen.write("\n")
        raise InterruptedRunError("Interrupted: standard input has ended", hint="Nothing was started")
    return answer.strip() == "yes"


def confirm_effects(lines: Iterable[Line], question: str, *, yes: bool, form: Literal["text", "json"]) -> bool:
    """Show a command's effects and ask for confirmation; with JSON, use standard error."""
    (open_stdout() if form == "text" else open_stderr()).show(lines)
    if not yes:
        require_terminal("Give --yes")
    return yes or ask_question(question)


def require_terminal(instead: str) -> None:
    """Raise if no terminal can ask for confirmation."""
    if not is_stdin_terminal():
        raise UsageError("there is no terminal to confirm on; nothing was done", hint=instead)


def show_plan_result(planned: PlanResult, form: OutputFormat) -> None:
    """Print a plan on standard output."""
    screen = open_stdout()
    match form:
        case "text":
            screen.show_paged(_format_planned(planned, screen))
            annotate_plan(planned)
        case "json":
            screen.write_bytes(planned.to_json())
        case "markdown":
            from reconciler.cli.text.markdown import format_plan_comment
            from reconciler.process import read_forge

            forge = read_forge(planned.folder, os.environ)
            screen.write(format_plan_comment(planned.plan, forge, datetime.now(UTC).date()))
        case "html":
            from reconciler.cli.html.plan_report import build_plan_report

            show_page(build_plan_report(planned.plan), planned.folder)
        case "junit":
            from reconciler.cli.text.remarks import format_junit, list_plan_remarks

            screen.write_bytes(format_junit(list_plan_remarks(planned.plan)))
        case "sarif":
            from reconciler.cli.json.base import format_document
            from reconciler.cli.json.sarif import SarifDocument
            from reconciler.cli.text.remarks import list_plan_remarks
            from reconciler.process import read_repository_prefix

            screen.write_bytes(
                format_document(
                    SarifDocument.from_remarks(
                        list_plan_remarks(planned.plan), read_repository_prefix(planned.folder, os.environ)
                    )
                )
            )
        case _:
            assert_never(form)


def warn_about_plan(planned: PlanResult) -> None:
    """Print the plan's warnings."""
    print_warnings(planned.warnings)
    print_warnings(format_warning(finding) for finding in planned.plan.warnings)


def format_warning(finding: PlanFinding) -> str:
    """Format position, subject, problem and remedy."""
    about = f"{finding.address}: " if finding.address and finding.address not in finding.message else ""
    where = f"{finding.source}: " if finding.source else ""
    return f"{where}{about}{finding.message}. {finding.hint}"


def show_plan_text(planned: PlanResult, screen: Screen) -> None:
    """Print a plan without a pager: a question may follow."""
    screen.show(_format_planned(planned, screen))


def _format_planned(planned: PlanResult, screen: Screen) -> Iterable[Line]:
    from reconciler.cli.text.plan_text import format_plan

    return format_plan(planned.plan, planned.header, width=screen.width)


def annotate_plan(planned: PlanResult) -> None:
    """Annotate errors, blocked and dangerous actions in a pull request."""
    if detect_pipeline() == "github":
        from reconciler.cli.reports import annotate_files
        from reconciler.cli.text.remarks import list_plan_remarks

        annotate_files(list_plan_remarks(planned.plan), planned.folder)


def show_saved_plan(saved: SavedPlan, form: Literal["text", "json", "html"], folder: Callable[[], Path]) -> None:
    """Print a saved plan; `folder` finds the workspace for links in HTML."""
    screen = open_stdout()
    if form == "json":
        import orjson

        from reconciler.planning.plan_rows import encode_canonical

        screen.write_bytes(escape_json(encode_canonical(orjson.loads(saved.body))) + b"\n")
    elif form == "html":
        from reconciler.cli.html.plan_report import build_plan_report

        show_page(build_plan_report(saved.plan), folder())
    else:
        from reconciler.cli.text.plan_text import format_plan

        screen.show_paged(format_plan(saved.plan, width=screen.width))


def print_apply_command(file: Path) -> None:
    """Print the command that applies a saved plan."""
    open_stderr().show([make_line(f"Saved. To do exactly this:  reconciler apply {shlex.quote(str(file))}")])


def warn_about_drift(drifted: DriftResult) -> None:
    """Print the warnings of a drift check."""
    print_warnings(drifted.planned.warnings)
    print_warnings(format_warning(finding) for finding in drifted.warnings)


def show_drift(drifted: DriftResult, form: OutputFormat) -> None:
    """Print drift on standard output."""
    screen = open_stdout()
    match form:
        case "text":
            from reconciler.cli.text.drift_text import format_drift

            screen.show_paged(format_drift(drifted))
        case "json":
            from reconciler.cli.json.base import format_document
            from reconciler.cli.json.checks_json import DRIFT

            screen.write_bytes(format_document(DRIFT.build_row(drifted)))
        case "markdown":
            from reconciler.cli.text.drift_text import format_drift_comment

            screen.write(format_drift_comment(drifted))
        case "html":
            from reconciler.cli.html.drift_report import build_drift_report

            show_page(build_drift_report(drifted), drifted.planned.folder)
        case "junit":
            from reconciler.cli.text.drift_text import format_drift_junit

            screen.write_bytes(format_drift_junit(drifted))
        case "sarif":
            from reconciler.cli.json.base import format_document
            from reconciler.cli.json.sarif import SarifDocument
            from reconciler.cli.text.drift_text import list_drift_remarks
            from reconciler.process import read_repository_prefix

            prefix = read_repository_prefix(drifted.planned.folder, os.environ)
            screen.write_bytes(format_document(SarifDocument.from_remarks(list_drift_remarks(drifted), prefix)))
        case _:
            assert_never(form)


Options = TypeVar("Options", bound="ApplyOptions")


@dataclass(frozen=True, slots=True)
class ApplyMode:
    """Options of a command that applies a plan."""

    yes: Annotated[bool, Option("--yes", "-y", "--auto-approve", help="Do not ask.")] = False
    parallelism: Annotated[int, Option(metavar="N", min=1, max=256, help="Number of actions that run in parallel.")] = 8
    lock_timeout: Annotated[str, Option(metavar="TIME", help="Longest wait for the lease.")] = "10m"
    approved_by: Annotated[
        list[str] | None,
        Option(
            "--approved-by",
            metavar="NAME",
            envvar="RECONCILER_APPROVED_BY",
            help="Name of an approver; may be repeated. Stored with the run, and counted for guards.approvals. "
            "Not with --approved-in.",
            show_default=False,
        ),
    ] = None
    pull_request: Annotated[
        str | None,
        Option(
            "--pull-request",
            metavar="URL",
            envvar="RECONCILER_PULL_REQUEST",
            help="URL of the approved pull request, stored with the run.",
            show_default=False,
        ),
    ] = None
    form: TextOrJson = "text"

    def build_options(self, kind: type[Options], **more: Any) -> Options:
        """Build options of the class `kind`, with further fields `more`."""
        timeout_s = parse_seconds("--lock-timeout", self.lock_timeout)
        for name in self.approved_by or ():
            if not name.isprintable() or "," in name or not name.strip():
                message = "--approved-by takes one name, without commas and control characters"
                raise UsageError(message, hint="Give it once for each: --approved-by anna --approved-by bob")
        where = self.pull_request
        if where is not None and not (where.isprintable() and where.startswith(("https://", "http://"))):
            raise UsageError(
                "--pull-request takes an address that begins with https://",
                hint="Give such an address, or leave --pull-request out.",
            )
        return kind(
            yes=self.yes,
            parallelism=self.parallelism,
            lock_timeout_s=timeout_s,
            approved_by=tuple(self.approved_by or ()),
            pull_request=self.pull_request,
            **more,
        )


def run_with_dialog(
    do: Callable[[Hooks, PhaseLine], ApplyOutcome],
    doing: ApplyMode,
    *,
    question: str,
    is_approved: bool,
    instead: str = "Give --yes",
) -> None:
    """Run `do` with progress and confirmation; `instead` is the hint without a terminal.

    Raises:
        UsageError: A confirmation is needed, and there is no terminal.
        ReconcilerError: The run failed; its result was shown.
    """
    with print_error_as_json(doing.form):
        if not is_approved:
            require_terminal(instead)
        parse_seconds("--lock-timeout", doing.lock_timeout)
        from reconciler.cli.progress import FinishedRun, open_reporter
        from reconciler.operations.apply import Hooks
        from reconciler.operations.steps.runner import Stop

        stop, ending = Stop(), FinishedRun()
        try:
            with (
                signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S),
                open_reporter(doing.form, ending) as report,
                open_phase_line() as before,
            ):
                talk = _PlanDialog(doing, question, before, is_approved=is_approved)
                applied = do(Hooks(talk.confirm, before.wrap_reporter(report), stop), before)
        except BlockedError as error:
            raise talk.show_blocked(error) from error
        except StalePlanError as error:
            raise_verdict(talk.show_stale(error))
        if doing.form == "text":
            talk.show_outcome(applied, ending.summary)
        raise_verdict(applied.verdict)


class _PlanDialog:
    def __init__(self, doing: ApplyMode, question: str, before: PhaseLine, *, is_approved: bool) -> None:
        self._before = before
        self._doing = doing
        self._question = question
        self._is_approved = is_approved
        self._is_shown = False

    def confirm(self, planned: PlanResult) -> bool:
        """Show a plan; ask unless it is approved. CI logs fold approved plans."""
        self._before.end()
        if self._is_approved:
            with (open_stdout() if self._doing.form == "text" else open_stderr()).fold_output("Plan"):
                self._show(planned)
        else:
            self._show(planned)
        return self._is_approved or ask_question(self._question)

    def show_blocked(self, error: BlockedError) -> BlockedError:
        planned = getattr(error, "planned", None)
        if planned is None:
            return error
        self._show(planned)
        if self._doing.form == "json":
            from reconciler.applying.events import PlanMade
            from reconciler.cli.json.runs_json import format_event

            open_stdout().write_bytes(format_event(PlanMade(planned.plan)))
        return build_printed_block_error(planned.plan, "nothing was done: ")

    def show_stale(self, error: StalePlanError) -> StalePlanError:
        from reconciler.cli.text.states_text import format_differences
        from reconciler.operations.steps.approval import ChangedPlanError

        if isinstance(error, ChangedPlanError) and not (self._doing.form == "json" and is_log_enabled()):
            open_stderr().show(format_differences(error.held))
        return error

    def show_outcome(self, applied: ApplyOutcome, summary: Summary | None) -> None:
        from reconciler.cli.text.runs_text import format_run_result

        if not self._is_shown:
            self._show(applied.planned)
        # If the streams share a target, standard error already showed the failures.
        open_stdout().show(
            format_run_result(applied, summary, with_failures=is_log_enabled() or not streams_share_target())
        )

    def _show(self, planned: PlanResult) -> None:
        self._is_shown = True
        self._before.end()
        warn_about_plan(planned)
        if self._doing.form == "text":
            show_plan_text(planned, open_stdout())
        elif not (self._is_approved and is_log_enabled()):
            # JSON events use standard output, and the log of `--verbose` standard error.
            show_plan_text(planned, open_stderr())


_SILENT_S: Final = 0.5
_REDRAW_S: Final = 0.25


class PhaseLine:
    """Status line with the current phase and its duration."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._text = ""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_drawn = False
        # A daemon thread does not keep the process alive if a cluster hangs.
        self._thread = threading.Thread(target=self._draw_until_end, name="phases", daemon=True)

    def wrap_invocation(self, invocation: Invocation) -> Invocation:
        """Return an invocation that reports phases and warnings here."""
        if is_log_enabled() or not self._screen.can_redraw:
            return invocation
        self._thread.start()

        def warn(text: str) -> None:
            with self._lock:
                self._erase()
                invocation.warn(text)

        return replace(invocation, tell=self._set_text, warn=warn)

    def end(self) -> None:
        """Remove the line."""
        self._is_over.set()
        with self._lock:
            self._erase()

    def wrap_reporter(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Wrap `report` so that the first event removes this line."""

        def tell(event: Event) -> None:
            self.end()
            report(event)

        return tell

    def _set_text(self, text: str) -> None:
        self._text = text

    def _draw_until_end(self) -> None:
        pause = _SILENT_S
        while not self._is_over.wait(pause):
            pause = _REDRAW_S
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._is_over.is_set():
            text = f"{escape_invisible(self._text)} ({format_elapsed(float(int(time.monotonic() - self._began)))})"
            self._screen.write(
                f"\r{cut_text(text, (self._screen.width or _MIN_COLUMNS) - _CURSOR_COLUMNS)}{_ERASE_LINE_END}"
            )
            self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._screen.write(f"\r{_ERASE_LINE_END}")
            self._is_drawn = False


_MIN_COLUMNS: Final = 20
_CURSOR_COLUMNS: Final = 3
_ERASE_LINE_END: Final = "\x1b[K"


@contextmanager
def open_phase_line() -> Iterator[PhaseLine]:
    """Yield a status line, removed after the block."""
    line_of_phases = PhaseLine(open_stderr())
    try:
        yield line_of_phases
    finally:
        line_of_phases.end()
