"""Shared options, in bundles (dataclasses) that commands take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer
from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import discard_output, open_stderr, open_stdout
from reconciler.cli.hint_rewrite import TypedOptions, remember_typed_options
from reconciler.cli.text.lines import make_line
from reconciler.errors import InterruptedRunError, UsageError
from reconciler.forges.protocol import Kind
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_non_utf8

if TYPE_CHECKING:
    from reconciler.forges.environment import ForgeRequest
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.operations.steps.runner import EmergencyRun, SiteOptions


OutputFormat: TypeAlias = Literal["text", "json", "markdown", "html", "junit", "sarif"]
ListFormat: TypeAlias = Literal["text", "json", "markdown", "junit", "sarif"]

AnyForm = Annotated[
    OutputFormat,
    Option("--format", help="Output format; html is a page, junit and sarif are for tools that collect results."),
]
Report = Annotated[
    list[str] | None,
    Option(
        "--report",
        metavar="FORM=FILE",
        help="Also write to a file; may be repeated. FORM: as --format, or for pipelines outputs or gitlab.",
        show_default=False,
    ),
]
ForLists = Annotated[
    ListFormat, Option("--format", help="Output format; junit and sarif are for tools that collect results.")
]
TextOrJson = Annotated[Literal["text", "json"], Option("--format", help="Output format.")]
OutFolder = Annotated[Path, Option("--out", "-o", metavar="DIR", help="Folder for the manifests.", show_default=False)]
IntoFolder = Annotated[bool, Option("--force", help="Write into a folder that is not empty; no file is overwritten.")]


@dataclass(frozen=True, slots=True)
class VerbosityOptions:
    """`--verbose`, for commands that need no workspace."""

    verbose: Annotated[bool, Option("--verbose", help="Log structured lines to standard error.")] = False

    def read_invocation(self) -> Invocation:
        """Build the invocation from the process environment."""
        return WorkspaceOptions(verbose=self.verbose).read_invocation()


@dataclass(frozen=True, slots=True)
class WorkspaceOptions:
    """Workspace, principal and verbosity."""

    workspace: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="The workspace; by default the nearest reconciler.yaml upwards.", show_default=False
        ),
    ] = None
    principal: Annotated[
        str | None,
        Option(
            metavar="USER",
            help="Act as this principal, such as User:checkout; by default everything is allowed.",
            show_default=False,
        ),
    ] = None
    host: Annotated[
        str | None,
        Option(
            metavar="HOST",
            help="Client host, with --principal. Without it only rules for all hosts apply.",
            show_default=False,
        ),
    ] = None
    verbose: Annotated[bool, Option("--verbose", help="Log structured lines to standard error.")] = False

    def read_invocation(self) -> Invocation:
        """Build the invocation from the process environment."""
        from reconciler.cli.environment import warn
        from reconciler.process import build_invocation

        made = build_invocation(self.workspace, self.principal, self.host, warn=warn)
        if self.verbose:
            from reconciler.cli.environment import log_event, log_to_stderr

            log_to_stderr()
            log_event("began", tool=made.tool, who=made.who, folder=str(made.cwd), ci_url=made.ci_url)
        return made

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        return TypedOptions(place=() if self.workspace is None else ("--workspace", str(self.workspace)))


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The environment and the variables of manifests."""

    environment: Annotated[
        str | None, Option("--environment", "-e", metavar="ENV", help="Overlay with its own state.", show_default=False)
    ] = None
    var: Annotated[
        list[str] | None, Option("--var", metavar="NAME=VALUE", help="Set a variable.", show_default=False)
    ] = None
    var_file: Annotated[
        list[Path] | None, Option("--var-file", metavar="FILE", help="Set variables from a file.", show_default=False)
    ] = None

    def build_select(self) -> Select:
        """Build the selection for operations."""
        from reconciler.operations.steps.invocation import Select

        typed = self.list_typed_options()
        _check_utf8((*typed.environment, *typed.variables, *typed.part))
        return Select(
            environment=self.environment, variables=tuple(self.var or ()), var_files=tuple(self.var_file or ())
        )

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        return TypedOptions(
            environment=() if self.environment is None else ("-e", self.environment),
            variables=(*_repeat_option("--var", self.var), *_repeat_option("--var-file", self.var_file)),
        )


@dataclass(frozen=True, slots=True)
class SelectOptions(FileOptions):
    """Selected resources, and allowed dangers."""

    target: Annotated[
        list[str] | None,
        Option(
            "--target", metavar="ADDR", help="Only this address or pattern, with its dependencies.", show_default=False
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        Option("--exclude", metavar="ADDR", help="Exclude this address or pattern.", show_default=False),
    ] = None
    label: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="LABEL=VALUE", help="Only resources with this label.", show_default=False),
    ] = None
    changed_since: Annotated[
        str | None, Option(metavar="REF", help="Only from files that changed since a git revision.", show_default=False)
    ] = None
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="VERB:ADDR", help="Allow an action that a guard would block.", show_default=False),
    ] = None

    def build_select(self) -> Select:
        """Build the selection for operations."""
        from dataclasses import replace

        _check_utf8(tuple(_repeat_option("--allow", self.allow)))
        return replace(
            FileOptions.build_select(self),
            targets=tuple(self.target or ()),
            excludes=tuple(self.exclude or ()),
            labels=tuple(self.label or ()),
            changed_since=self.changed_since,
            allow=tuple(self.allow or ()),
        )

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        changed_since = [self.changed_since] if self.changed_since else None
        return FileOptions.list_typed_options(self).merge(
            TypedOptions(
                part=(
                    *_repeat_option("--target", self.target),
                    *_repeat_option("--exclude", self.exclude),
                    *_repeat_option("--label", self.label),
                    *_repeat_option("--changed-since", changed_since),
                )
            )
        )


def _check_utf8(typed: Sequence[str]) -> None:
    """Reject invalid UTF-8, which saved plans cannot store."""
    for option, value in zip(typed[::2], typed[1::2], strict=True):
        if (shown := escape_non_utf8(value)) != value:
            raise UsageError(f"{option} {shown} is not UTF-8", hint="Type it in UTF-8, and rename a file that is not.")


def _repeat_option(option: str, values: Iterable[object] | None) -> Iterator[str]:
    for value in values or ():
        yield from (option, str(value))


def parse_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse `KEY=VALUE` options."""
    values: dict[str, str] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"{option} '{text}' is not KEY=VALUE", hint=f"Write it as {option} KEY=VALUE")
        if key in values:
            raise UsageError(f"{option} {key} is given twice", hint="Give each key one value.")
        values[key] = value
    return values


def parse_config_changes(set_: list[str] | None, delete: list[str] | None) -> dict[str, str | None]:
    """Parse `--set KEY=VALUE` and `--delete KEY`, whose value is `None`."""
    values, reset = parse_pairs("--set", set_), set(delete or ())
    both = sorted(values.keys() & reset)
    if both:
        raise UsageError(f"{both[0]} is set and deleted", hint="Give --set or --delete for it, not both.")
    return {**values, **dict.fromkeys(sorted(reset))}


def parse_seconds(option: str, text: str) -> float:
    """Parse a duration such as 90s or 10m; return seconds."""
    from reconciler.resources.base import parse_duration

    try:
        ms = parse_duration(int(text) * 1000 if text.isdigit() else text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", hint=f"Write it as {option} 10m") from error
    if ms < 0:
        raise UsageError(f"{option} {text} has no end", hint=f"Write it as {option} 10m")
    return ms / 1000


@dataclass(frozen=True, slots=True)
class StateUrlOptions:
    """`--state`: connections from a state instead of a workspace."""

    state: Annotated[
        str | None,
        Option(metavar="URL", help="URL of the state, instead of a workspace.", show_default=False),
    ] = None

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        return TypedOptions(state=() if self.state is None else ("--state", self.state))

    def build_site_options(self, files: FileOptions, place: WorkspaceOptions) -> SiteOptions:
        """Build the access to clusters."""
        from reconciler.operations.steps.runner import SiteOptions

        return SiteOptions(invocation=place.read_invocation(), select=files.build_select(), state_url=self.state)


@dataclass(frozen=True, slots=True)
class StateOptions(StateUrlOptions):
    """`--state`, and `--no-state` if the state cannot be read."""

    no_state: Annotated[
        bool, Option("--no-state", help="Continue if the state, which has the cluster's id, cannot be read.")
    ] = False

    def build_site_options(self, files: FileOptions, place: WorkspaceOptions) -> SiteOptions:
        """Build the access to clusters."""
        from dataclasses import replace

        _check_state_options(self.state, no_state=self.no_state)
        return replace(StateUrlOptions.build_site_options(self, files, place), no_state=self.no_state)


@dataclass(frozen=True, slots=True)
class StateFilterOptions:
    """`--state` as URL or as filter by topic state, and `--no-state`."""

    state: Annotated[
        list[str] | None,
        Option(
            "--state",
            metavar="STATE|URL",
            help="Only topics in that state: mountable, mounting, mounted, unmounting, or one of a migration; may be "
            "repeated. A URL selects a state instead of a workspace.",
            show_default=False,
        ),
    ] = None
    no_state: Annotated[
        bool, Option("--no-state", help="Continue if the state, which has the cluster's id, cannot be read.")
    ] = False

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        return self._build_state_options().list_typed_options()

    def build_site_options(self, files: FileOptions, place: WorkspaceOptions) -> SiteOptions:
        """Build the access to clusters."""
        return self._build_state_options().build_site_options(files, place)

    def list_states(self) -> tuple[str, ...]:
        """Return the topic states to filter by; empty for all."""
        return tuple(text for text in self.state or () if "://" not in text)

    def _build_state_options(self) -> StateOptions:
        urls = [text for text in self.state or () if "://" in text]
        if len(urls) > 1:
            raise UsageError("--state has two URLs", hint="Give --state one URL.")
        return StateOptions(state=urls[0] if urls else None, no_state=self.no_state)


Id = Annotated[int, Argument(metavar="ID", min=1, help="Id of the migration, as `mount status` shows it.")]
Cluster = Annotated[
    str | None,
    Option(
        "--cluster", metavar="NAME", help="Cluster of the migration; each cluster has its own ids.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class ForgeOptions:
    """The forge, and the time limit of its requests."""

    forge: Annotated[
        Kind | None, Option("--forge", help="Kind of forge; by default that of the pipeline.", show_default=False)
    ] = None
    repository: Annotated[
        str | None,
        Option("--repository", metavar="OWNER/NAME", help="By default that of the pipeline.", show_default=False),
    ] = None
    timeout: Annotated[
        str, Option("--timeout", metavar="TIME", help="Time limit for all requests to the forge, retries included.")
    ] = "2m"
    allow_http: Annotated[
        bool, Option("--allow-http", help="Allow unencrypted requests with secrets to other hosts.")
    ] = False

    def build_forge_request(self, pull_request: int | None = None) -> ForgeRequest:
        """Build the request options of the forge."""
        from reconciler.forges.environment import ForgeRequest

        return ForgeRequest(
            forge=self.forge,
            repository=self.repository,
            pull_request=pull_request,
            timeout_s=parse_seconds("--timeout", self.timeout),
            allows_http=self.allow_http,
        )


def expand_bundles(body: Callable[..., None]) -> Callable[..., None]:
    """Turn `body` into a command with an option per field of its bundles."""
    hints = get_type_hints(body, include_extras=True)
    bundles = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters = list(_list_parameters(body, hints, bundles))

    def run(**values: Any) -> None:
        filled = {name: _extract_bundle(kind, values) for name, kind in bundles.items()}
        remember_typed_options(filled.values())
        _run_guarded(body, filled | values)

    run.__doc__ = body.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    return run


def _list_parameters(
    body: Callable[..., None], hints: dict[str, Any], bundles: dict[str, type]
) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(body).parameters.items():
        if name not in bundles:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
    for kind in bundles.values():
        inside = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=inside[field.name]
            )


def _extract_bundle(kind: type, values: dict[str, Any]) -> Any:
    return kind(**{field.name: values.pop(field.name) for field in fields(kind)})


def _run_guarded(body: Callable[..., None], values: dict[str, Any]) -> None:
    try:
        body(**values)
    except KeyboardInterrupt as error:
        raise InterruptedRunError("Interrupted", hint="Run the same command again") from error
    except BrokenPipeError as error:
        discard_output(open_stdout().stream)
        raise typer.Exit from error


DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done and lost; change nothing.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]


def _check_state_options(state: str | None, *, no_state: bool) -> None:
    if state is not None and no_state:
        hint = "Leave one out. Without a workspace and a state: --no-state --cluster NAME=URL"
        raise UsageError("--state and --no-state cannot be combined", hint=hint)


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Options of emergency commands for the state and its lease."""

    state: Annotated[
        str | None,
        Option(metavar="URL", help="URL of the state, instead of a workspace.", show_default=False),
    ] = None
    no_state: Annotated[bool, Option("--no-state", help="Act without the state; the next plan finds it.")] = False
    at: Annotated[
        list[str] | None,
        Option(
            "--cluster",
            metavar="NAME=URL|FILE",
            help="Location of a cluster, instead of a workspace: the URL of an embedded one, or a file with its "
            "manifest; with --no-state.",
            show_default=False,
        ),
    ] = None
    lock_timeout: Annotated[str, Option(metavar="TIME", help="Longest wait for the lease.")] = "10s"

    def list_typed_options(self) -> TypedOptions:
        """Return the given options."""
        clusters = ("--no-state", *_repeat_option("--cluster", self.at)) if self.at else ()
        return TypedOptions(state=() if self.state is None else ("--state", self.state), clusters=clusters)

    @contextmanager
    def open_emergency(
        self,
        files: FileOptions,
        place: WorkspaceOptions,
        command: str,
        *,
        form: Literal["text", "json"] = "text",
    ) -> Iterator[EmergencyRun]:
        """Yield access to clusters until a signal; warn if the state does not record the change."""
        _check_state_options(self.state, no_state=self.no_state)
        if self.at and not self.no_state:
            raise UsageError("--cluster works only without a workspace and a state", hint="Give --no-state with it.")
        from reconciler.cli.progress import open_reporter
        from reconciler.operations.steps.runner import EmergencyRun, Stop

        stop = Stop()
        with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S), open_reporter(form) as report:
            yield EmergencyRun(
                invocation=place.read_invocation(),
                select=files.build_select(),
                command=command,
                no_state=self.no_state,
                state_url=self.state,
                lock_timeout_s=parse_seconds("--lock-timeout", self.lock_timeout),
                report=report,
                stop=stop,
                at=tuple(self.at or ()),
            )
        if self.no_state:
            open_stderr().show(
                [
                    make_line(
                        "The state does not record this change. See what the next plan does with it: reconciler plan"
                    )
                ]
            )
