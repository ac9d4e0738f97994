"""The commands `plan`, `apply`, `destroy`, `drift` and `run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import open_stderr, open_stdout, streams_share_target
from reconciler.cli.environment import is_log_enabled
from reconciler.cli.options import (
    AnyForm,
    FileOptions,
    ForgeOptions,
    Report,
    SelectOptions,
    StateOptions,
    TextOrJson,
    WorkspaceOptions,
    expand_bundles,
    parse_seconds,
)
from reconciler.cli.present import build_printed_block_error, print_result, raise_verdict
from reconciler.cli.show import ApplyMode, PhaseLine, run_with_dialog
from reconciler.cli.text.lines import make_line
from reconciler.errors import BlockedError, UsageError, UserError
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.operations.apply import ApplyOutcome, Hooks
    from reconciler.operations.drift import DriftResult
    from reconciler.operations.mirrors.mirror_rounds import PassResult
    from reconciler.operations.plan import PlanResult


@expand_bundles
def plan_command(
    chosen: SelectOptions,
    place: WorkspaceOptions,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="Save the plan for `apply FILE`.", show_default=False)
    ] = None,
    form: AnyForm = "text",
    fail_on: Annotated[
        list[str] | None,
        Option(
            "--fail-on",
            metavar="WHAT",
            help="Fail on these: changes, danger (exit 2), blocked (exit 7), errors (exit 1, always). Several with "
            "commas between. By default: errors,blocked.",
            show_default=False,
        ),
    ] = None,
    detailed_exitcode: Annotated[
        bool, Option("--detailed-exitcode", help="The same as --fail-on changes,blocked.")
    ] = False,
    report: Report = None,
) -> None:
    """Show what would change. Changes nothing and takes no lock."""
    from reconciler.cli.output_files import check_output

    invocation = place.read_invocation()
    from reconciler.cli.reports import build_plan_summary, parse_reports
    from reconciler.cli.show import open_phase_line, print_apply_command, show_plan_result, warn_about_plan
    from reconciler.operations.plan import parse_fail_on, plan

    def make_plan() -> PlanResult:
        with open_phase_line() as line_of_phases:
            return plan(line_of_phases.wrap_invocation(invocation), chosen.build_select(), out=file)

    wanted_reports = parse_reports(report, form, "plan", invocation, chosen.environment)
    with wanted_reports.report_errors():
        file = None if out is None else check_output("--out", out, "a saved plan")
        fails = parse_fail_on([*(fail_on or ()), *(["changes,blocked"] if detailed_exitcode else [])])
        planned = make_plan()
    verdict = planned.verdict(fails)
    wanted_reports.write(
        lambda form_of_report: show_plan_result(planned, form_of_report), lambda: build_plan_summary(planned, verdict)
    )
    warn_about_plan(planned)
    show_plan_result(planned, form)
    if file is not None:
        print_apply_command(file)
    raise_verdict(build_printed_block_error(planned.plan) if isinstance(verdict, BlockedError) else verdict)


@expand_bundles
def apply_command(
    chosen: SelectOptions,
    doing: ApplyMode,
    place: WorkspaceOptions,
    at: ForgeOptions,
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="A plan saved by `plan --out`.", show_default=False)
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="With FILE: also reject fewer actions, a newer state, and another commit.")
    ] = False,
    expect_digest: Annotated[
        str | None,
        Option(
            "--expect-digest",
            metavar="DIGEST",
            help="Apply only the plan with this digest, or the rest of its interrupted run.",
            show_default=False,
        ),
    ] = None,
    approved_in: Annotated[
        str | None,
        Option(
            "--approved-in",
            metavar="N|auto",
            help="Apply the plan that was approved in this pull request; auto: the one of this pipeline, "
            "or the one merged with its commit.",
            show_default=False,
        ),
    ] = None,
    only_drift: Annotated[
        bool, Option("--only-drift", help="Only revert drift; do not apply changes of the files.")
    ] = False,
    resume: Annotated[bool, Option("--resume", help="Only finish the approved plan of the open run.")] = False,
    detach: Annotated[
        bool, Option("--detach", help="Leave the copying of records to a later `apply --resume`; needs no Spark.")
    ] = False,
) -> None:
    """Plan, ask, and apply. With FILE: apply that plan or less, never more."""

    def do(hooks: Hooks, before: PhaseLine) -> ApplyOutcome:
        from reconciler.operations.apply import ApplyOptions, apply
        from reconciler.operations.steps.approval import parse_digest

        digest = None if expect_digest is None else parse_digest(expect_digest)
        options = doing.build_options(
            ApplyOptions,
            file=file,
            strict=strict,
            only_drift=only_drift,
            resumes=resume,
            leaves_jobs=detach,
            approved_digest=digest,
            approved_in=None if approved_in is None else at.build_forge_request(_parse_pull_request(approved_in)),
        )
        return apply(before.wrap_invocation(place.read_invocation()), chosen.build_select(), options, hooks)

    run_with_dialog(
        do,
        doing,
        question="Apply this plan?",
        is_approved=doing.yes or resume or any(option is not None for option in (file, expect_digest, approved_in)),
        instead="Give --yes, or a plan that `reconciler plan --out FILE` saved",
    )


def _parse_pull_request(text: str) -> int | None:
    """Parse a pull request's number; `None` means that of the pipeline."""
    if text == "auto":
        return None
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    message = f"--approved-in takes the number of a pull request, or auto, and got {text!r}"
    raise UsageError(message, hint="Write it as --approved-in 7, or --approved-in auto in a pipeline.")


@expand_bundles
def destroy_command(
    chosen: SelectOptions,
    doing: ApplyMode,
    place: WorkspaceOptions,
    recursive: Annotated[bool, Option("--recursive", help="Also delete the content of namespaces.")] = False,
    include_adopted: Annotated[
        bool, Option("--include-adopted", help="Also delete adopted resources; by default they are forgotten.")
    ] = False,
) -> None:
    """Plan and apply the removal of what this workspace created. Adopted resources stay, no longer managed."""

    def do(hooks: Hooks, before: PhaseLine) -> ApplyOutcome:
        from reconciler.operations.apply import DestroyOptions, destroy

        options = doing.build_options(DestroyOptions, recursive=recursive, include_adopted=include_adopted)
        return destroy(before.wrap_invocation(place.read_invocation()), chosen.build_select(), options, hooks)

    run_with_dialog(do, doing, question="Destroy this?", is_approved=doing.yes)


@expand_bundles
def drift_command(
    chosen: SelectOptions,
    at: ForgeOptions,
    place: WorkspaceOptions,
    form: AnyForm = "text",
    fail_on: Annotated[
        list[str] | None,
        Option("--fail-on", metavar="CLASS", help="Also fail on: unmanaged, pending, blocked.", show_default=False),
    ] = None,
    known: Annotated[
        Path | None,
        Option(metavar="FILE", help="Omit the findings in this file, and rewrite the file.", show_default=False),
    ] = None,
    accept: Annotated[
        list[str] | None,
        Option(
            metavar="ADDR", help="Print a patch that writes the clusters' values into the files.", show_default=False
        ),
    ] = None,
    issue: Annotated[bool, Option("--issue", help="Keep an issue open on the forge while there is drift.")] = False,
    issue_label: Annotated[
        list[str] | None,
        Option("--issue-label", metavar="NAME", help="With --issue: label of a new issue.", show_default=False),
    ] = None,
    webhook: Annotated[
        str | None,
        Option("--webhook", metavar="VARIABLE", help="Send findings to the URL in this variable.", show_default=False),
    ] = None,
    report: Report = None,
    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            metavar="FILE",
            help="Write the numbers of findings for Prometheus, or as JSON if FILE ends in .json.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show changes made on the clusters since the last apply. Changes nothing; exits 3 if there are any.

    --issue maintains one issue per workspace and environment, with the patch of --accept and the owners in CODEOWNERS.
    --webhook sends `{"text": …}`, as Slack takes it; with --issue, only when the issue changes.
    """
    if accept:
        if fail_on or known is not None or form != "text" or issue or webhook or report or metrics is not None:
            message = "--accept prints a patch and nothing else"
            hint = "Leave out --fail-on, --known, --format, --issue, --webhook, --report and --metrics."
            raise UsageError(message, hint=hint)
        _print_patch(chosen, place, accept)
        return
    from reconciler.cli.output_files import check_output
    from reconciler.cli.reports import DriftReport, build_drift_summary, parse_reports
    from reconciler.cli.show import open_phase_line, show_drift, warn_about_drift
    from reconciler.operations.drift import drift

    invocation = place.read_invocation()

    def open_report() -> DriftReport | None:
        if issue_label and not issue:
            raise UsageError("--issue-label needs --issue", hint="Add --issue.")
        if issue and known is not None:
            message = "--issue lists everything that has drifted, and --known leaves some of it out"
            raise UsageError(message, hint="Leave out one of them; an issue must list all findings.")
        if known is not None:
            check_output("--known", known, "a file of --known")
        if metrics is not None:
            check_output("--metrics", metrics, "metrics")
        if not issue and webhook is None:
            return None
        made = DriftReport(
            invocation, at.build_forge_request(), has_issue=issue, labels=tuple(issue_label or ()), webhook=webhook
        )
        made.check()
        return made

    def find_drift() -> DriftResult:
        with open_phase_line() as line_of_phases:
            seen = line_of_phases.wrap_invocation(invocation)
            return drift(seen, chosen.build_select(), fail_on=tuple(fail_on or ()), known=known)

    wanted_reports = parse_reports(report, form, "drift", invocation, chosen.environment)
    with wanted_reports.report_errors():
        filed = open_report()
        drifted = find_drift()
    wanted_reports.write(
        lambda form_of_report: show_drift(drifted, form_of_report), lambda: build_drift_summary(drifted)
    )
    warn_about_drift(drifted)
    show_drift(drifted, form)
    if metrics is not None:
        from reconciler.cli.metrics_file import format_metrics, write_metrics_file
        from reconciler.operations.metrics import build_drift_result_metrics

        path = invocation.cwd / metrics
        write_metrics_file(path, format_metrics(path, build_drift_result_metrics(drifted, now_ms=invocation.now_ms())))
    if filed is not None:
        filed.publish(drifted)
    drifted.record_shown()
    raise_verdict(drifted.verdict)


def _print_patch(chosen: SelectOptions, place: WorkspaceOptions, patterns: Sequence[str]) -> None:
    from reconciler.operations.drift_patch import accept

    accepted = accept(place.read_invocation(), chosen.build_select(), patterns)
    open_stderr().show([make_line(f"# {note}") for note in accepted.notes])
    open_stdout().write_bytes(accepted.patch.encode())
    if not accepted.patch:
        message = "a patch can accept none of these differences"
        raise UserError(message, hint="The lines above say what to do instead.")
    if accepted.left_out:
        many = pluralize(accepted.left_out, "finding is", "findings are", grouping="")
        message = f"{many} not in the patch"
        raise UserError(message, hint="The lines above say what to do instead; the rest of the patch is correct.")


_SHORTEST_S: Final = 1.0
"""Minimum interval in seconds; each pass queries every cluster."""


@expand_bundles
def run_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    once: Annotated[bool, Option("--once", help="Run every job once, up to the current ends, then exit.")] = False,
    interval: Annotated[
        str | None,
        Option(
            "--interval", metavar="DURATION", help="Repeat; wait this long after each pass: 30s.", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None, Option("--only", metavar="JOBS", help="Run only these jobs.", show_default=False)
    ] = None,
    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            metavar="FILE",
            help="Write metrics after each pass: for Prometheus, or as JSON if FILE ends in .json.",
            show_default=False,
        ),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Run the data pipeline: copy mirrors to their sources' ends, then maintain the clusters.

    Maintenance uploads closed segments to object storage, deletes expired records from both tiers, compacts keys,
    merges small remote segments, and compares object storage with the clusters (scrub).

    JOBS: mirror, migrations, deletions, disablings, recoveries, rewrites, transactions, roll, upload, scrub, retention,
    compact, merge, metadata, sweep, replicas; separate several with commas.
    """
    if once == (interval is not None):
        raise UsageError("run needs --once or --interval", hint="Write: reconciler run --once, or --interval 30s")
    from reconciler.applying.events import ActionFailed
    from reconciler.cli.metrics_file import MetricsFile
    from reconciler.cli.output_files import check_output
    from reconciler.cli.progress import open_reporter
    from reconciler.cli.text.runs_text import format_upkeep
    from reconciler.operations.run import run_once, run_repeatedly
    from reconciler.operations.steps.runner import Stop

    reach = by_state.build_site_options(files, place)
    metrics_file = None if metrics is None else MetricsFile(check_output("--metrics", metrics, "metrics"), reach)
    stop = Stop()
    jobs = tuple(name for text in only or () for name in text.split(",") if name)
    if interval is not None:
        every = _parse_interval(interval)
        with signals.forward_signals(stop), open_reporter("text") as report:

            def report_failure(event: Event) -> None:
                if isinstance(event, ActionFailed):
                    report(event)

            passes = run_repeatedly(reach, every, only=jobs, report=report_failure, stop=stop)
            for number, upkeep in enumerate(passes, 1):
                _print_pass(upkeep, number, form)
                if metrics_file is not None:
                    metrics_file.write(upkeep)
        raise_verdict(metrics_file.trouble if metrics_file is not None else None)
        return
    from reconciler.cli.json.runs_json import PIPELINE

    with signals.forward_signals(stop), open_reporter("text") as report:
        upkeep = run_once(reach, only=jobs, report=report, stop=stop)
    print_result(
        form,
        lambda: format_upkeep(upkeep, with_failures=is_log_enabled() or not streams_share_target()),
        lambda: PIPELINE.build_row(upkeep),
    )
    if metrics_file is not None:
        metrics_file.write(upkeep)
    raise_verdict(upkeep.verdict)
    raise_verdict(metrics_file.trouble if metrics_file is not None else None)


def _parse_interval(text: str) -> float:
    every = parse_seconds("--interval", text)
    if every < _SHORTEST_S:
        raise UsageError(f"--interval {text} is too short", hint="It is at least 1s; write --interval 30s")
    return every


def _print_pass(upkeep: PassResult, number: int, form: str) -> None:
    from reconciler.cli.console import open_stdout

    if form == "json":
        from reconciler.cli.json.base import format_document_line
        from reconciler.cli.json.runs_json import PIPELINE

        open_stdout().write_bytes(format_document_line(PIPELINE.build_row(upkeep)))
    else:
        from reconciler.cli.text.runs_text import format_pass

        open_stdout().show([format_pass(upkeep, number)])
