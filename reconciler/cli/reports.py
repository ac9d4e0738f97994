"""Results for CI pipelines: errors in every format, report files, issues and webhooks."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import orjson

from reconciler.cli.console import detect_pipeline, open_stderr, open_stdout
from reconciler.cli.errors import describe_unexpected_error
from reconciler.cli.hint_rewrite import add_typed_options
from reconciler.cli.options import ListFormat, OutputFormat
from reconciler.cli.text.lines import Span, Tone, make_line
from reconciler.errors import ReconcilerError, UsageError
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_invisible, find_similar, format_suggestion, pluralize, to_one_line

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remark, Remarks
    from reconciler.forges.environment import ForgeRequest
    from reconciler.manifests.positions import Problem
    from reconciler.operations.drift import DriftResult
    from reconciler.operations.drift_issue import Did, FiledIssue
    from reconciler.operations.manifest_files import ValidationResult
    from reconciler.operations.plan import PlanResult
    from reconciler.operations.steps.invocation import Invocation


# Failed commands print errors in the requested format, else pipelines would show an earlier result.


Command: TypeAlias = Literal["plan", "drift", "validate"]

_TITLES: Final[dict[Command, str]] = {
    "plan": "{} was not planned",
    "drift": "{} was not compared",
    "validate": "Files of {} are not valid",
}
_RESERVED_BYTES: Final = 100


@contextmanager
def show_errors(
    form: OutputFormat, command: Command, invocation: Invocation, environment: str | None
) -> Iterator[None]:
    """Print an error in a format for programs; re-raise it."""
    try:
        yield
    except Exception as error:
        if form != "text":
            _show_error(error, form, command, invocation, environment)
        elif detect_pipeline() == "github":
            from reconciler.operations.manifest_files import find_folder

            annotate_files(_build_remarks(error, command, invocation, environment), find_folder(invocation))
        raise


def annotate_files(remarks: Remarks, folder: Path) -> None:
    """Annotate files of the workspace in GitHub's pull request."""
    if detect_pipeline() == "github":
        from reconciler.cli.text.job_log import list_annotation_commands
        from reconciler.process import read_repository_prefix

        for command in list_annotation_commands(remarks, read_repository_prefix(folder, os.environ)):
            open_stderr().write_command(command)


def _show_error(
    error: Exception, form: OutputFormat, command: Command, invocation: Invocation, environment: str | None
) -> None:
    if form == "json":
        from reconciler.cli.json.base import format_document
        from reconciler.cli.json.checks_json import ERROR, VALIDATE, Failure, build_failed_validation, to_file_problem

        failure = Failure(*describe_error(error), tuple(map(to_file_problem, list_problems(error))))
        row = (
            VALIDATE.build_row(build_failed_validation(failure)) if command == "validate" else ERROR.build_row(failure)
        )
        open_stdout().write_bytes(format_document(row))
        return
    show_remarks(_build_remarks(error, command, invocation, environment), form, invocation)


def _build_remarks(error: BaseException, command: Command, invocation: Invocation, environment: str | None) -> Remarks:
    from reconciler.cli.text.remarks import Remarks
    from reconciler.operations.manifest_files import read_workspace_name

    rows = tuple(list_remarks(error, command))
    return Remarks(command, read_workspace_name(invocation), environment, invocation.tool, rows, is_whole=False)


def format_plan_failure(why: str, invocation: Invocation, environment: str | None) -> str:
    """Format the comment for a failed plan; `why` is another program's message."""
    error = UsageError(to_one_line(why) or "it is not known why", hint="The log of the job has details.")
    return format_remarks(_build_remarks(error, "plan", invocation, environment))


def show_remarks(remarks: Remarks, form: OutputFormat, invocation: Invocation) -> None:
    """Print findings as markdown, JUnit or SARIF."""
    match form:
        case "junit":
            from reconciler.cli.text.remarks import format_junit

            open_stdout().write_bytes(format_junit(remarks))
        case "sarif":
            from reconciler.cli.json.base import format_document
            from reconciler.cli.json.sarif import SarifDocument
            from reconciler.operations.manifest_files import find_folder
            from reconciler.process import read_repository_prefix

            open_stdout().write_bytes(
                format_document(
                    SarifDocument.from_remarks(remarks, read_repository_prefix(find_folder(invocation), os.environ))
                )
            )
        case "html":
            from reconciler.cli.html.remarks_report import build_remarks_report
            from reconciler.cli.present import show_page
            from reconciler.operations.manifest_files import find_folder

            show_page(build_remarks_report(remarks, choose_title(remarks)), find_folder(invocation))
        case _:
            open_stdout().write(format_remarks(remarks))


def describe_error(error: BaseException) -> tuple[int, str, str]:
    """Return exit code, message without list of problems, and hint."""
    if not isinstance(error, ReconcilerError):
        return describe_unexpected_error(error)
    return error.exit_code, error.message.partition("\n")[0], error.hint


def list_problems(error: BaseException) -> Sequence[Problem]:
    """Return the problems of files in an error."""
    problems: Sequence[Problem] = getattr(error, "problems", ())
    return problems


def list_remarks(error: BaseException, command: Command) -> Iterator[Remark]:
    """Yield a remark for each file problem, or for the error."""
    from reconciler.cli.text.remarks import build_error_remark, build_problem_remark
    from reconciler.planning.plan import PlanFinding

    problems = list_problems(error)
    yield from map(build_problem_remark, problems)
    if not problems:
        _, message, hint = describe_error(error)
        yield build_error_remark(PlanFinding(None, None, message, add_typed_options(hint)), command)


def build_validation_remarks(validated: ValidationResult, tool: str, environment: str | None) -> Remarks:
    """Build remarks from the findings and warnings of a validation."""
    from reconciler.cli.text.remarks import Remarks, build_error_remark, build_warning_remark

    rows = [build_error_remark(finding, "validate") for finding in validated.findings]
    rows += map(build_warning_remark, validated.warnings)
    return Remarks("validate", validated.workspace, environment, tool, tuple(rows))


def choose_title(remarks: Remarks) -> str:
    """Return a report's heading, with `{}` for the workspace."""
    errors = any(remark.level == "error" for remark in remarks.rows)
    return _TITLES[remarks.command] if errors or not remarks.is_whole else "Files of {} are valid"


def format_remarks(remarks: Remarks) -> str:
    """Format remarks as a comment that replaces an earlier one."""
    from reconciler.cli.text.markdown import LIMIT, format_code_cell, format_code_span, format_table_row
    from reconciler.forges.protocol import Marker

    name = f"{remarks.workspace} ({remarks.environment})" if remarks.environment else remarks.workspace
    title = choose_title(remarks).format(format_code_span(name))
    marker = Marker(remarks.command, remarks.workspace, remarks.environment, items=len(remarks.rows))
    head = [marker.line, f"### {title}", ""]
    end = ["", f"<sub>created by reconciler {format_code_span(remarks.tool)}</sub>"]
    if not remarks.rows:
        return "\n".join([*head[:-1], *end]) + "\n"
    head += [f"**{pluralize(len(remarks.rows), 'problem')}**", "", "| where | what |", "| --- | --- |"]
    room = LIMIT - len("\n".join([*head, *end]).encode()) - _RESERVED_BYTES
    rows: list[str] = []
    for position, remark in enumerate(remarks.rows):
        hint = f". {remark.hint}" if remark.hint else ""
        text = format_table_row(
            (format_code_cell(remark.source or remark.about), format_code_cell(f"{remark.message}{hint}"))
        )
        room -= len(text.encode()) + 1
        if room < 0:
            left = pluralize(len(remarks.rows) - position, "more problem", "more problems")
            rows += ["", f"And {left} that this comment has no room for."]
            break
        rows.append(text)
    return "\n".join([*head, *rows, *end]) + "\n"


ForPipelines: TypeAlias = Literal["outputs", "gitlab"]
"""`outputs`: `name=value` lines for `$GITHUB_OUTPUT` or GitLab's dotenv; `gitlab`: counts for `reports: terraform`."""
_FORMS: Final[tuple[str, ...]] = (*(form for form in get_args(OutputFormat) if form != "text"), *get_args(ForPipelines))
_APPENDED_FORMATS: Final = frozenset({"outputs"})


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """Summary of a result for pipelines."""

    values: Mapping[str, str | int | bool]
    counts: Mapping[str, int]
    """Numbers of `create`, `update` and `delete`."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Report files of a command."""

    files: tuple[tuple[str, Path], ...]
    form: OutputFormat
    command: Command
    invocation: Invocation
    environment: str | None

    def write(self, show: Callable[[OutputFormat], None], outcome: Callable[[], PipelineSummary]) -> None:
        """Write each file; `show` prints the result in a format."""
        for form, path in self.files:
            if form in get_args(OutputFormat):
                _write_file(path, _capture_output(partial(show, cast("OutputFormat", form))))
            else:
                _write_for_pipelines(form, path, outcome())

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """Print an error, write it to each file, and re-raise it."""
        try:
            with show_errors(self.form, self.command, self.invocation, self.environment):
                yield
        except Exception as error:
            show = partial(
                _show_error, error, command=self.command, invocation=self.invocation, environment=self.environment
            )
            self.write(show, partial(_build_failure_summary, error))
            raise


def parse_reports(
    texts: Sequence[str] | None, form: OutputFormat, command: Command, invocation: Invocation, environment: str | None
) -> Reports:
    """Parse the values of `--report`; `form` is the format of standard output."""
    files: list[tuple[str, Path]] = []
    wrong: UsageError | None = None
    for text in texts or ():
        try:
            files.append(_parse_report(text, command, invocation, files))
        except UsageError as error:
            wrong = wrong or error
    made = Reports(tuple(files), form, command, invocation, environment)
    if wrong is not None:
        with made.report_errors():
            raise wrong
    return made


def _parse_report(
    text: str, command: Command, invocation: Invocation, others: Sequence[tuple[str, Path]]
) -> tuple[str, Path]:
    form, equals, name = text.partition("=")
    forms = [name_of_form for name_of_form in _FORMS if (command, name_of_form) != ("validate", "html")]
    if form not in forms or not equals or not name:
        hint = format_suggestion(find_similar(form, forms), otherwise=f"Forms: {', '.join(forms)}.")
        raise UsageError(f"--report {text} is not FORM=FILE", hint=f"Write it as --report json={command}.json. {hint}")
    from reconciler.cli.output_files import check_output

    path = invocation.cwd / check_output("--report", Path(name), "a report", is_added_to=form in _APPENDED_FORMATS)
    if any(other == path for _, other in others):
        raise UsageError(f"--report {text}: another report goes to that file", hint="Name a file for each.")
    return form, path


_REPORTING: Final[tuple[Command, ...]] = ("plan", "drift", "validate")


def report_usage_error(typed: Sequence[str], message: str, hint: str) -> None:
    """Print and write reports for an invalid command line."""
    command = next((word for word in _REPORTING if word in typed[:1]), None)
    values_of = partial(_read_option_values, typed)
    if command is None or not (values_of("--report") or values_of("--format")):
        return
    from reconciler.cli.options import WorkspaceOptions

    forms = get_args(ListFormat if command == "validate" else OutputFormat)
    form = cast("OutputFormat", next((word for word in forms if word in values_of("--format")[-1:]), "text"))
    folder = values_of("--workspace")[-1:]
    environment = values_of("--environment", "-e")[-1:]
    with suppress(ReconcilerError, OSError):
        invocation = WorkspaceOptions(workspace=Path(folder[0]) if folder else None).read_invocation()
        failure_reports = parse_reports(
            values_of("--report"), form, command, invocation, environment[0] if environment else None
        )
        with failure_reports.report_errors():
            raise UsageError(message, hint=hint)


def _read_option_values(typed: Sequence[str], *names: str) -> list[str]:
    values: list[str] = []
    for position, word in enumerate(typed):
        name, equals, value = word.partition("=")
        if name in names and equals:
            values.append(value)
        elif word in names:
            values += typed[position + 1 : position + 2]
    return values


def _build_failure_summary(error: Exception) -> PipelineSummary:
    code, message, _ = describe_error(error)
    values: dict[str, str | int | bool] = {"digest": "", "exit_code": code, "failure": message}
    return PipelineSummary(values, dict.fromkeys(("create", "update", "delete"), 0))


def build_plan_summary(planned: PlanResult, verdict: ReconcilerError | None) -> PipelineSummary:
    """Summarize a plan for a pipeline."""
    from reconciler.planning.actions import is_dangerous
    from reconciler.planning.plan_rows import count_by_kind

    plan, counts = planned.plan, count_by_kind(planned.plan)
    values: dict[str, str | int | bool] = {
        "digest": plan.digest,
        "empty": plan.is_empty,
        "actions": len(plan.actions),
        **counts,
        "danger": sum(map(is_dangerous, plan.actions)),
        "older": plan.has_older_files,
        "errors": len(plan.errors),
        **_list_verdict_values(verdict),
    }
    return PipelineSummary(values, {name: counts[name] for name in ("create", "update", "delete")})


def build_drift_summary(drifted: DriftResult) -> PipelineSummary:
    """Summarize drift for a pipeline."""
    values: dict[str, str | int | bool] = {
        "findings": len(drifted.findings),
        "failing": len(drifted.failing),
        "errors": len(drifted.errors),
        **_list_verdict_values(drifted.verdict),
    }
    return PipelineSummary(values, {"create": 0, "update": len(drifted.failing), "delete": 0})


def build_validation_summary(validated: ValidationResult) -> PipelineSummary:
    """Summarize a validation for a pipeline."""
    values: dict[str, str | int | bool] = {
        "errors": len(validated.findings),
        "warnings": len(validated.warnings),
        **_list_verdict_values(validated.verdict),
    }
    return PipelineSummary(values, dict.fromkeys(("create", "update", "delete"), 0))


def _list_verdict_values(verdict: ReconcilerError | None) -> dict[str, str | int | bool]:
    if verdict is None:
        return {"exit_code": 0, "failure": ""}
    return {"exit_code": verdict.exit_code, "failure": verdict.message.partition("\n")[0]}


def _capture_output(show: Callable[[], None]) -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(stream):
        show()
    stream.flush()
    return raw.getvalue()


def _write_file(path: Path, body: bytes) -> None:
    from reconciler.objectstore.directory import write_atomically

    try:
        write_atomically(path, body)
    except OSError as error:
        raise _build_unwritable_error(path, error) from error


def _write_for_pipelines(form: str, path: Path, outcome: PipelineSummary) -> None:
    if form not in _APPENDED_FORMATS:
        _write_file(path, orjson.dumps(dict(outcome.counts)) + b"\n")
        return
    lines = "".join(f"{name}={_format_value(value)}\n" for name, value in outcome.values.items())
    try:
        with path.open("ab") as file:
            file.write(lines.encode())
    except OSError as error:
        raise _build_unwritable_error(path, error) from error


def _build_unwritable_error(path: Path, error: OSError) -> UsageError:
    message = f"--report {path}: {error.strerror or error}"
    return UsageError(message, hint="Name a file in a folder that can be written.")


def _format_value(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else escape_invisible(to_one_line(str(value)))


_FILED_WORDS: Final[dict[Did, str]] = {
    "opened": "Opened an issue",
    "updated": "Updated the issue",
    "unchanged": "The issue is up to date",
    "closed": "Closed the issue",
    "none": "No issue is open",
}


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Publishes drift as an issue and a webhook message."""

    invocation: Invocation
    forge_request: ForgeRequest
    has_issue: bool
    labels: tuple[str, ...]
    webhook: str | None

    def check(self) -> None:
        """Check the settings before clusters are queried."""
        environ = self.invocation.environ
        if self.has_issue:
            from reconciler.forges.environment import read_forge_settings

            read_forge_settings(environ, self.forge_request, self.invocation.tool)
        if self.webhook is not None:
            from reconciler.forges.webhook import read_webhook_url

            read_webhook_url(environ, self.webhook, allows_http=self.forge_request.allows_http)

    def publish(self, drifted: DriftResult) -> None:
        """Update the issue; send a message if it has changed.

        The issue records an unsent message, which the next run sends.
        """
        from reconciler.cli.text.drift_text import format_chat_message, format_drift_issue

        filed: FiledIssue | None = None
        if self.has_issue:
            from reconciler.operations.drift_issue import file_issue, record_message_sent

            filed = file_issue(
                self.invocation,
                drifted,
                self.forge_request,
                lambda remedy: format_drift_issue(drifted, remedy),
                self.labels,
                owes_message=self.webhook is not None,
            )
            url = filed.issue.url if filed.issue is not None else ""
            open_stderr().show(
                [make_line(Span(_FILED_WORDS[filed.did], Tone.STRONG), f" on {filed.forge}{': ' if url else ''}{url}")]
            )
        is_news = filed is None or filed.owes is not None
        if self.webhook is not None and drifted.failing and is_news:
            from reconciler.forges.webhook import send_message

            link = (filed.issue.url if filed and filed.issue else "") or self.invocation.ci_url or ""
            send_message(
                self.invocation.environ,
                self.webhook,
                format_chat_message(drifted, link),
                tool=self.invocation.tool,
                allows_http=self.forge_request.allows_http,
            )
            open_stderr().show([make_line(f"Sent to the webhook in {self.webhook}")])
            if filed is not None:
                record_message_sent(self.invocation, filed, self.forge_request)
