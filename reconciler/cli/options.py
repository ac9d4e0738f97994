"""The options that many commands share, in bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, get_args

from typer import Option

from reconciler.cli.again import TypedOptions
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.workflow.beginning.invocation import Invocation, Select

Form: TypeAlias = Literal["text", "json", "markdown", "junit", "sarif"]
_FORMATS: Final = get_args(Form)

AnyForm = Annotated[Form, Option("--format", help="What to print; junit and sarif are for pages that collect results.")]
TextOrJson = Annotated[Literal["text", "json"], Option("--format", help="What to print.")]
OutFolder = Annotated[
    Path, Option("--out", "-o", metavar="DIR", help="A folder for the manifests.", show_default=False)
]
IntoFolder = Annotated[bool, Option("--force", help="Also into a folder that holds something; no file is overwritten.")]


@dataclass(frozen=True, slots=True)
class Here:
    """For a command that needs no workspace."""

    verbose: Annotated[bool, Option("--verbose", help="Log structured lines to standard error.")] = False

    def invocation(self) -> Invocation:
        """Read the edge once."""
        return Place(verbose=self.verbose).invocation()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works, and how much it says."""

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
            help="Act as this principal, such as User:checkout; else all is allowed.",
            show_default=False,
        ),
    ] = None
    host: Annotated[
        str | None,
        Option(
            metavar="HOST",
            help="With --principal: where from. Else only rules for all hosts count.",
            show_default=False,
        ),
    ] = None
    verbose: Annotated[bool, Option("--verbose", help="Log structured lines to standard error.")] = False

    def invocation(self) -> Invocation:
        """Read the edge once."""
        from reconciler.cli.edge import invocation

        made = invocation(self.workspace, self.principal, self.host)
        if self.verbose:
            from reconciler.cli.logs import log_to_stderr, note

            log_to_stderr()
            note("began", tool=made.tool, who=made.who, folder=str(made.cwd), ci_url=made.ci_url)
        return made

    def typed(self) -> TypedOptions:
        """Return what a hint has to name of it."""
        return TypedOptions(place=() if self.workspace is None else ("--workspace", str(self.workspace)))


@dataclass(frozen=True, slots=True)
class Files:
    """Which reading of the files: the environment and its variables."""

    environment: Annotated[
        str | None, Option("--environment", "-e", metavar="ENV", help="The overlay and its state.", show_default=False)
    ] = None
    var: Annotated[
        list[str] | None, Option("--var", metavar="NAME=VALUE", help="Set a variable.", show_default=False)
    ] = None
    var_file: Annotated[
        list[Path] | None, Option("--var-file", metavar="FILE", help="Set variables from a file.", show_default=False)
    ] = None

    def select(self) -> Select:
        """Say it in the words of the workflow."""
        from reconciler.workflow.beginning.invocation import Select

        return Select(
            environment=self.environment, variables=tuple(self.var or ()), var_files=tuple(self.var_file or ())
        )

    def typed(self) -> TypedOptions:
        """Return what a hint has to name of it."""
        return TypedOptions(
            environment=() if self.environment is None else ("-e", self.environment),
            variables=(*_each("--var", self.var), *_each("--var-file", self.var_file)),
        )


@dataclass(frozen=True, slots=True)
class Chosen(Files):
    """SELECT: which part of the workspace, and what is allowed to it."""

    target: Annotated[
        list[str] | None,
        Option("--target", metavar="ADDR", help="Only this, and what it depends on.", show_default=False),
    ] = None
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="ADDR", help="Leave this alone.", show_default=False)
    ] = None
    label: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="LABEL=VALUE", help="Only with this label.", show_default=False),
    ] = None
    changed_since: Annotated[
        str | None, Option(metavar="REF", help="Only from files changed since a git revision.", show_default=False)
    ] = None
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="VERB:ADDR", help="Allow what a guard would block.", show_default=False),
    ] = None

    def select(self) -> Select:
        """Say it in the words of the workflow."""
        from dataclasses import replace

        return replace(
            Files.select(self),
            targets=tuple(self.target or ()),
            excludes=tuple(self.exclude or ()),
            labels=tuple(self.label or ()),
            changed_since=self.changed_since,
            allow=tuple(self.allow or ()),
        )

    def typed(self) -> TypedOptions:
        """Return what a hint has to name of it."""
        changed_since = [self.changed_since] if self.changed_since else None
        return Files.typed(self).joined(
            TypedOptions(
                part=(
                    *_each("--target", self.target),
                    *_each("--exclude", self.exclude),
                    *_each("--label", self.label),
                    *_each("--changed-since", changed_since),
                )
            )
        )


def _each(option: str, values: Iterable[object] | None) -> Iterator[str]:
    for value in values or ():
        yield from (option, str(value))


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Return what `KEY=VALUE` options say.

    Raises:
        UsageError: One is not of that form, or a key is there twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"{option} '{text}' is not KEY=VALUE", hint=f"Write it as {option} retention.ms=7d")
        if key in found:
            raise UsageError(f"{option} {key} is given twice", hint="Give each key one value.")
        found[key] = value
    return found


def seconds(option: str, text: str) -> float:
    """Return the seconds of a duration such as 90s or 10m.

    Raises:
        UsageError: It is not a duration, or it has no end.
    """
    from reconciler.resources.quantities import parse_duration

    try:
        ms = parse_duration(int(text) * 1000 if text.isdigit() else text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", hint=f"Write it as {option} 10m") from error
    if ms < 0:
        raise UsageError(f"{option} {text} has no end", hint=f"Write it as {option} 10m")
    return ms / 1000
