"""`--report FORM=FILE`: a result also in other forms, of one and the same look at the clusters, for pipelines."""

from __future__ import annotations

import io
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import orjson

from reconciler.cli.failed import errors_shown, said
from reconciler.cli.options import Form
from reconciler.errors import ReconcilerError, UsageError
from reconciler.runtime.text import did_you_mean, nearest, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.cli.failed import Command
    from reconciler.cli.text.remarks import Remarks
    from reconciler.operations.drift import Drifted
    from reconciler.operations.plan import Planned
    from reconciler.operations.steps.invocation import Invocation


ForPipelines: TypeAlias = Literal["outputs", "annotations", "gitlab"]
"""Lines `name=value`, as GitHub's `$GITHUB_OUTPUT` and GitLab's dotenv take them; GitHub's commands that mark files;
GitLab's counts for the merge request (`reports: terraform`)."""
_FORMS: Final[tuple[str, ...]] = (*(each for each in get_args(Form) if each != "text"), *get_args(ForPipelines))
_ADDED_TO: Final = frozenset({"outputs"})
"""Forms whose file others write, too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result in the words of a pipeline."""

    values: Mapping[str, str | int | bool]
    remarks: Remarks
    counts: Mapping[str, int]
    """`create`, `update` and `delete`."""


@dataclass(frozen=True, slots=True)
class Reports:
    """The files that a result is written to as well."""

    files: tuple[tuple[str, Path], ...]
    command: Command
    invocation: Invocation
    environment: str | None
    done: set[Path] = field(default_factory=set)

    def write(self, show: Callable[[Form], None], outcome: Callable[[], Outcome]) -> None:
        """Write a result in each form; `show` prints it in one of ours."""
        for form, path in self.files:
            if form in get_args(Form):
                _write(path, _printed(partial(show, cast("Form", form))))
            else:
                _write_for_pipelines(form, path, outcome())
            self.done.add(path)

    @contextmanager
    def errors(self, form: Form) -> Iterator[None]:
        """Print the error that ends the block in `form`, as every command does, and write it in each form."""
        try:
            with errors_shown(form, self.command, self.invocation, self.environment):
                yield
        except Exception as error:
            self._write_error(error)
            raise

    def _write_error(self, error: Exception) -> None:
        def show(form: Form) -> None:
            with errors_shown(form, self.command, self.invocation, self.environment):
                raise error

        for form, path in self.files:
            if path in self.done:
                continue
            if form in get_args(Form):
                _write(path, _printed(partial(_quietly, show, cast("Form", form))))
            else:
                _write_for_pipelines(form, path, self._failed(error))

    def _failed(self, error: Exception) -> Outcome:
        from reconciler.cli.failed import remarks_of
        from reconciler.cli.text.remarks import Remarks
        from reconciler.operations.manifest_files import name_of_workspace

        code, message, _ = said(error)
        rows = tuple(remarks_of(error, self.command))
        name, tool = name_of_workspace(self.invocation), self.invocation.tool
        remarks = Remarks(self.command, name, self.environment, tool, rows, is_whole=False)
        values: dict[str, str | int | bool] = {"digest": "", "exit_code": code, "failure": message}
        return Outcome(values, remarks, dict.fromkeys(("create", "update", "delete"), 0))


def reports(given: Sequence[str] | None, command: Command, invocation: Invocation, environment: str | None) -> Reports:
    """Return what `--report` asks for.

    Raises:
        UsageError: A form is none, or a file may not be written; nothing was done.
    """
    from reconciler.cli.output_files import checked_output

    files: list[tuple[str, Path]] = []
    for each in given or ():
        form, equals, name = each.partition("=")
        if form not in _FORMS or not equals or not name:
            hint = did_you_mean(nearest(form, _FORMS), otherwise=f"Forms: {', '.join(_FORMS)}.")
            raise UsageError(f"--report {each} is not FORM=FILE", hint=f"Write it as --report html=plan.html. {hint}")
        path = checked_output("--report", Path(name), "a report", is_added_to=form in _ADDED_TO)
        files.append((form, invocation.cwd / path))
    return Reports(tuple(files), command, invocation, environment)


def plan_outcome(planned: Planned, verdict: ReconcilerError | None) -> Outcome:
    """Return a plan in the words of a pipeline."""
    from reconciler.cli.text.remarks import plan_remarks
    from reconciler.planning.actions import is_dangerous
    from reconciler.planning.plan_rows import summary_of

    plan, counts = planned.plan, summary_of(planned.plan)
    values: dict[str, str | int | bool] = {
        "digest": plan.digest,
        "empty": plan.is_empty,
        "actions": len(plan.actions),
        **counts,
        "danger": sum(map(is_dangerous, plan.actions)),
        "errors": len(plan.errors),
        **_verdict(verdict),
    }
    return Outcome(values, plan_remarks(plan), {name: counts[name] for name in ("create", "update", "delete")})


def drift_outcome(drifted: Drifted) -> Outcome:
    """Return drift in the words of a pipeline."""
    from reconciler.cli.text.drift_text import drift_remarks

    values: dict[str, str | int | bool] = {
        "findings": len(drifted.findings),
        "failing": len(drifted.failing),
        "errors": len(drifted.errors),
        **_verdict(drifted.verdict),
    }
    return Outcome(values, drift_remarks(drifted), {"create": 0, "update": len(drifted.failing), "delete": 0})


def _verdict(verdict: ReconcilerError | None) -> dict[str, str | int | bool]:
    if verdict is None:
        return {"exit_code": 0, "failure": ""}
    return {"exit_code": verdict.exit_code, "failure": verdict.message.partition("\n")[0]}


def _printed(show: Callable[[], None]) -> bytes:
    """Return what is printed on standard output meanwhile."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(stream):
        show()
    stream.flush()
    return raw.getvalue()


def _quietly(show: Callable[[Form], None], form: Form) -> None:
    with suppress(Exception):  # the error that is being written; it goes on from where it came
        show(form)


def _write(path: Path, body: bytes) -> None:
    from reconciler.objectstore.directory import write_whole

    try:
        write_whole(path, body)
    except OSError as error:
        raise _refused(path, error) from error


def _write_for_pipelines(form: str, path: Path, outcome: Outcome) -> None:
    match form:
        case "outputs":
            lines = "".join(f"{name}={_value(value)}\n" for name, value in outcome.values.items())
            try:
                with path.open("ab") as file:
                    file.write(lines.encode())
            except OSError as error:
                raise _refused(path, error) from error
        case "annotations":
            _write(path, "".join(f"{each}\n" for each in github_commands(outcome.remarks)).encode())
        case _:
            _write(path, orjson.dumps(dict(outcome.counts)) + b"\n")


def _refused(path: Path, error: OSError) -> UsageError:
    message = f"--report {path}: {error.strerror or error}"
    return UsageError(message, hint="Name a file in a folder that can be written.")


def _value(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else visible(one_line(str(value)))


# GitHub's commands: `::error file=F,line=N,title=T::MESSAGE`.


_MOST: Final = 50
"""GitHub shows ten of a kind in a step; more of them cost and are seen by nobody."""


def github_commands(remarks: Remarks) -> Iterator[str]:
    """Yield a command for each error and warning, gravest first, at file and line where it has one."""
    shown = [each for each in remarks.rows if each.level != "note" and not each.is_skipped]
    for each in shown[:_MOST]:
        file, colon, number = (each.source or "").rpartition(":")
        place = f" file={_property(file)},line={number}," if colon and number.isdecimal() else " "
        said = ". ".join(part for part in (each.message, each.hint) if part)
        yield f"::{each.level}{place}title={_property(each.about)}::{_data(said)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
