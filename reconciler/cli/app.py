"""The tree of commands; `--help` imports no command's module."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import TyperException
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import find_similar

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command implemented in `module`, or a group with `entries`."""

    name: str
    summary: str
    section: str
    module: str = ""
    function: str = ""
    entries: tuple[CommandEntry, ...] = ()
    alias: str | None = None


def _define_command(
    section: str, name: str, summary: str, module: str, alias: str | None = None, *, group: str | None = None
) -> CommandEntry:
    function = f"{'' if group is None else f'{group}_'}{name.replace('-', '_')}_command"
    return CommandEntry(name, summary, section, f"reconciler.cli.commands.{module}", function, alias=alias)


_NAMESPACE: Final = (
    _define_command("Commands", "list", "namespaces, and how many topics each holds", "namespace"),
    _define_command("Commands", "create", "create a namespace now; for emergencies", "namespace"),
    _define_command("Commands", "alter", "change configs and access rules now; for emergencies", "namespace"),
    _define_command("Commands", "move", "move topics to another namespace now", "namespace"),
    _define_command("Commands", "delete", "delete a namespace with its topics now", "namespace"),
)

_TOPIC: Final = (
    _define_command("Commands", "list", "topics; with --sizes also records and bytes", "topic"),
    _define_command(
        "Commands", "describe", "one topic: partitions, offsets, configs and where they come from", "topic"
    ),
    _define_command("Commands", "storage", "size of topics on local disk and in object storage", "topic"),
    _define_command("Commands", "profile", "what a topic holds: sizes, keys, skew, what can be freed", "topic"),
    _define_command("Commands", "create", "create a topic now; for emergencies", "topic"),
    _define_command("Commands", "alter", "change configs or add partitions now; for emergencies", "topic"),
    _define_command("Commands", "delete", "delete topics with their records now; for emergencies", "topic"),
    _define_command("Commands", "trim", "delete records before an offset or a time now; for emergencies", "topic"),
    _define_command(
        "Commands", "mount", "attach topics from object storage now; for emergencies", "mount", group="topic"
    ),
    _define_command(
        "Commands", "unmount", "detach topics into object storage now; for emergencies", "mount", group="topic"
    ),
    _define_command("Commands", "produce", "write records from a file or standard input", "topic"),
    _define_command("Commands", "consume", "read records to a file or standard output", "topic"),
)

_CLUSTER: Final = (
    _define_command("Commands", "check", "check every register and object; --repair where it is safe", "inspect"),
    _define_command("Commands", "recover", "let Redpanda recover a lost cluster from its bucket", "cluster"),
)

_GROUP: Final = (
    _define_command("Commands", "list", "consumer groups", "group"),
    _define_command("Commands", "describe", "one group: committed offsets, lag, whether it is reading", "group"),
    _define_command("Commands", "reset", "set the offsets of a group", "group"),
    _define_command("Commands", "delete", "delete a group, or its offsets of one topic", "group"),
)

_MOUNT: Final = (
    _define_command(
        "Commands", "list", "topics that can be mounted, are mounted or are being moved, with owners", "mount"
    ),
    _define_command("Commands", "status", "mounts and unmounts in progress, and what they wait for", "mount"),
    _define_command("Commands", "cancel", "stop a mount or unmount in progress, and undo it", "mount"),
    _define_command("Commands", "delete", "delete the record of a planned or cancelled one", "mount"),
    _define_command("Commands", "release", "take a topic from a lost cluster", "mount"),
)

_MIRROR: Final = (
    _define_command("Commands", "create", "create mirrors over a link now; for emergencies", "mirror"),
    _define_command("Commands", "delete", "delete mirrors now, with their records; for emergencies", "mirror"),
    _define_command("Commands", "list", "mirrors, their states and lags", "mirror"),
    _define_command("Commands", "describe", "mirrors by partition, problems, allowed commands", "mirror"),
    _define_command("Commands", "errors", "problems of links, tasks, mirrors and transitions", "mirror"),
    _define_command("Commands", "pause", "stop fetching", "mirror"),
    _define_command("Commands", "resume", "resume fetching", "mirror"),
    _define_command("Commands", "promote", "turn mirrors into topics, without loss; for migrations", "mirror"),
    _define_command("Commands", "failover", "turn mirrors into topics at once; for disasters", "mirror"),
    _define_command("Commands", "reverse", "swap the roles of mirror and source, without loss", "mirror"),
    _define_command("Commands", "restore", "turn the original source into a mirror of its former mirror", "mirror"),
)

_LINK: Final = (
    _define_command("Commands", "create", "create links now; for emergencies", "mirror", group="link"),
    _define_command("Commands", "list", "links, their states and mirrors", "mirror", group="link"),
    _define_command(
        "Commands", "describe", "links: fields, tasks, mirrors by state, accepted commands", "mirror", group="link"
    ),
    _define_command("Commands", "alter", "change fields of links now; for emergencies", "mirror", group="link"),
    _define_command("Commands", "pause", "stop all mirrors of links from fetching", "mirror", group="link"),
    _define_command("Commands", "resume", "resume paused links", "mirror", group="link"),
    _define_command(
        "Commands", "delete", "delete links whose mirrors are stopped; --force stops them", "mirror", group="link"
    ),
)

_STATE: Final = (
    _define_command("Commands", "list", "what this workspace owns", "state"),
    _define_command("Commands", "show", "one resource as it was last applied", "state"),
    _define_command("Commands", "history", "the state's snapshots, newest first", "state"),
    _define_command("Commands", "diff", "differences between two states", "state"),
    _define_command("Commands", "rollback-plan", "a plan back to an earlier state", "state"),
    _define_command("Commands", "mv", "record a resource under another address", "state", "move"),
    _define_command("Commands", "rm", "stop owning resources; changes no cluster", "state", "forget"),
    _define_command("Commands", "unlock", "take the lease from a run that died", "state", "force-unlock"),
    _define_command("Commands", "repair", "rebuild a lost or damaged lockfile", "state"),
)

COMMANDS: Final = (
    _define_command("Write", "init", "a workspace to start from", "manifests"),
    _define_command("Write", "validate", "check the manifests, without any cluster", "manifests"),
    _define_command("Write", "fmt", "put manifests into canonical form", "manifests"),
    _define_command("Write", "export", "manifests of a cluster, or of topics to recover", "manifests"),
    _define_command("Write", "import", "manifests from other tools' files", "manifests"),
    _define_command("Write", "schema", "JSON Schema of manifests and outputs, for editors", "manifests"),
    _define_command("Change", "plan", "show what would change; changes nothing", "plan_apply"),
    _define_command("Change", "apply", "plan, ask, and apply", "plan_apply"),
    _define_command("Change", "destroy", "remove what this workspace created", "plan_apply"),
    _define_command("Change", "run", "the data pipeline: mirrors, uploads, retention, compaction, sweep", "plan_apply"),
    _define_command("Look", "drift", "what was changed on the clusters since the last apply", "plan_apply"),
    _define_command("Look", "show", "resources as files, state and cluster have them; or a saved plan", "inspect"),
    _define_command("Look", "graph", "clusters and links, a plan's order or a state machine", "inspect"),
    _define_command("Look", "explain", "where each value comes from, and why an action is planned", "inspect"),
    _define_command("Look", "verify", "compare two topic logs record for record", "inspect"),
    _define_command("Report", "comment", "write a result as a comment of its pull request", "comment"),
    CommandEntry("cluster", "check an embedded cluster, recover a Redpanda cluster", "Clusters", entries=_CLUSTER),
    CommandEntry("namespace", "list, create, move and delete namespaces", "Clusters", entries=_NAMESPACE),
    CommandEntry("topic", "list topics, write and read records", "Clusters", entries=_TOPIC),
    CommandEntry("mirror", "list mirrors, and act on them in an emergency", "Clusters", entries=_MIRROR),
    CommandEntry("link", "list links, and act on them in an emergency", "Clusters", entries=_LINK),
    CommandEntry("mount", "list mountable topics and migrations", "Clusters", entries=_MOUNT),
    CommandEntry("group", "list consumer groups, reset their offsets", "Clusters", entries=_GROUP),
    CommandEntry("state", "show the state, go back to an earlier one, repair it", "Clusters", entries=_STATE),
)


SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def build_root_command() -> Command:
    """Build `reconciler` with its commands and groups."""
    app = _build_typer(COMMANDS, add_completion=True)
    app.callback(help="Plan and apply for streaming platforms: topics, namespaces and mirrors as YAML in git.")(
        _accept_options
    )
    return get_command(app)


class LazyGroup(TyperGroup):
    """A command group that imports modules of commands when needed."""

    entries: tuple[CommandEntry, ...] = ()

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - typer's signature
        """List the command names as defined."""
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return a command; raise an error that suggests similar names."""
        for entry in self.entries:
            if cmd_name in (entry.name, entry.alias):
                return _load_command(entry)
        if not ctx.resilient_parsing and not cmd_name.startswith("-"):
            ctx.fail(_explain_unknown(cmd_name, self.list_commands(ctx)))
        return None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - typer's signature
        """Write the commands' summaries by section."""
        width = max(len(entry.name) for entry in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries):
            with formatter.section(section):
                formatter.write_dl(
                    [(entry.name.ljust(width), entry.summary) for entry in self.entries if entry.section == section]
                )


class _NamedCommand(TyperCommand):
    """A command whose usage errors name it, so hints name its help."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined] # its class is not public
            raise


def _build_typer(entries: tuple[CommandEntry, ...], *, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=type("Group", (LazyGroup,), {"entries": entries}),
        add_completion=add_completion,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
    )


def _load_command(entry: CommandEntry) -> Command:
    if entry.entries:
        app = _build_typer(entry.entries)
        app.callback(help=f"{entry.summary[0].upper()}{entry.summary[1:]}.")(_do_nothing)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=SETTINGS)
        app.command(entry.name, cls=_NamedCommand)(getattr(import_module(entry.module), entry.function))
    command = get_command(app)
    command.name = entry.name
    if "_RECONCILER_COMPLETE" in os.environ:
        from reconciler.cli.completion import add_completers

        add_completers(command)
    return command


def _explain_unknown(name: str, known: list[str]) -> str:
    near = find_similar(name, known)
    return f"No such command: '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from reconciler.cli.environment import format_version

        typer.echo(format_version())
        raise typer.Exit


def _accept_options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the options of the root command."""


def _do_nothing() -> None:
    pass
