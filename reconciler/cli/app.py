"""The tree of commands: names and one-liners from the table; a command's module is imported when it is run."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from reconciler.cli.table import COMMANDS, Entry

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def root() -> Command:
    """Return the whole command line."""
    app = _typer(COMMANDS, add_completion=True)
    app.callback(help="Plan and apply for streaming platforms: topics, namespaces and mirrors as YAML in git.")(
        _options
    )
    return get_command(app)


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports one when it is run."""

    entries: tuple[Entry, ...] = ()

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the names, in the table's order."""
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return the command of that name, importing its module; refuse any other with the nearest names."""
        for entry in self.entries:
            if cmd_name in (entry.name, entry.alias):
                return _load(entry)
        if not ctx.resilient_parsing and not cmd_name.startswith("-"):
            ctx.fail(_unknown(cmd_name, self.list_commands(ctx)))
        return None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - typer's signature
        """Write the commands by section, from the table alone."""
        width = max(len(entry.name) for entry in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries):
            with formatter.section(section):
                formatter.write_dl(
                    [(entry.name.ljust(width), entry.summary) for entry in self.entries if entry.section == section]
                )


def _typer(entries: tuple[Entry, ...], *, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=type("Group", (LazyGroup,), {"entries": entries}),
        add_completion=add_completion,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
    )


def _load(entry: Entry) -> Command:
    if entry.entries:
        app = _typer(entry.entries)
        app.callback(help=f"{entry.summary[0].upper()}{entry.summary[1:]}.")(_nothing)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=SETTINGS)
        app.command(entry.name)(import_module(entry.module).command)
    command = get_command(app)
    command.name = entry.name
    return command


def _unknown(name: str, known: list[str]) -> str:
    nearest = get_close_matches(name, known)
    return f"There is no command '{name}'" + (f"; did you mean '{nearest[0]}'?" if nearest else "")


def _show_version(asked: bool) -> None:
    if asked:
        from reconciler.cli.version import version_line

        typer.echo(version_line())
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options of the program itself."""


def _nothing() -> None:
    """Hold a group's help."""
