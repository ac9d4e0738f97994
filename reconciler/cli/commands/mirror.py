"""Commands of `mirror` and `link`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

from typer import Argument, Option

from reconciler.cli.options import (
    DryRun,
    FileOptions,
    LeaseOptions,
    StateOptions,
    TextOrJson,
    WorkspaceOptions,
    Yes,
    expand_bundles,
    parse_config_changes,
    parse_pairs,
    parse_seconds,
)
from reconciler.cli.present import print_result, raise_verdict
from reconciler.errors import UsageError
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.planning.orders import RoleVerb

_DONE: Final[Mapping[str, str]] = {
    "pause": "paused",
    "resume": "resumed",
    "promote": "promoted",
    "failover": "failed over",
    "reverse-and-start": "reversed",
    "reverse-and-pause": "reversed",
    "truncate-and-restore": "restored",
}

Addresses = Annotated[list[str], Argument(metavar="ADDR", help="For example mirror/east/shop:eu:orders.")]
Choice = Annotated[
    list[str] | None,
    Argument(
        metavar="ADDR", help="For example mirror/east/shop:eu:orders, or 'mirror/east/shop:*'.", show_default=False
    ),
]
Links = Annotated[
    list[str] | None,
    Option("--link", metavar="LINK", help="All mirrors of a link, such as link/east/twin.", show_default=False),
]
RestoredFrom = Annotated[
    list[str] | None,
    Option(
        "--link",
        metavar="LINK",
        help="Restore from the stopped mirrors of this link, such as link/east/twin; without ADDR from all of them.",
        show_default=False,
    ),
]
Timeout = Annotated[
    str | None,
    Option("--timeout", metavar="TIME", help="Longest wait for lag 0.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class _VerbOptions:
    files: FileOptions
    acting: LeaseOptions
    place: WorkspaceOptions
    addresses: list[str] | None
    links: list[str] | None
    dry_run: bool
    form: TextOrJson


def _change_roles(
    typed: _VerbOptions,
    verb: RoleVerb,
    *,
    yes: bool | None = None,
    timeout: str | None = None,
    keeps_diverged: bool = False,
) -> None:
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.mirrors.mirror_orders import RoleOptions, change_roles
    from reconciler.operations.mirrors.mirror_selection import MirrorChoice

    word = {"truncate-and-restore": "restore"}.get(verb, verb.partition("-")[0])
    options = RoleOptions(
        timeout_ms=None if timeout is None else int(parse_seconds("--timeout", timeout) * 1000),
        keeps_diverged=keeps_diverged,
        is_dry_run=typed.dry_run,
    )
    choice = MirrorChoice(tuple(typed.addresses or ()), tuple(typed.links or ()))
    confirm = None if yes is None else build_change_confirmation(word, "mirrors", yes=yes, form=typed.form)
    command = f"mirror {word}"
    with open_emergency(
        typed.acting, typed.files, typed.place, command, typed.form, is_dry_run=typed.dry_run
    ) as emergency:
        result = change_roles(emergency, verb, choice, confirm=confirm, options=options)
        show_order_result(result, _DONE[verb], typed.form)


@expand_bundles
def create_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Addresses,
    link: Annotated[str, Option("--link", metavar="NAME", help="Existing link that copies the mirrors.")],
    source: Annotated[
        str | None,
        Option(
            "--source-topic",
            metavar="NAME",
            help="Full name on the source; by default the mirror's, without the prefix of the link.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        Option("--config", metavar="KEY=VALUE", help="A config that is not synced.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Create mirrors over an existing link. For emergencies: `drift` lists them until a file declares them."""
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.mirrors.mirror_orders import NewMirrorOptions, create_mirrors

    new = NewMirrorOptions(link=link, source=source, configs=parse_pairs("--config", config))
    with open_emergency(acting, files, place, "mirror create", form, is_dry_run=dry_run) as emergency:
        show_order_result(create_mirrors(emergency, addresses, new, is_dry_run=dry_run), "created", form)


@expand_bundles
def delete_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Addresses,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="delete:ADDR", help="Delete it despite deletionProtection.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Delete mirrors now, with their records. For emergencies: the next plan creates those that a file declares."""
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.mirrors.mirror_orders import delete_mirrors

    with open_emergency(acting, files, place, "mirror delete", form, is_dry_run=dry_run) as emergency:
        result = delete_mirrors(
            emergency,
            addresses,
            confirm=build_change_confirmation("delete", "mirrors", yes=yes, form=form),
            allow=tuple(allow or ()),
            is_dry_run=dry_run,
        )
        show_order_result(result, "deleted", form)


@expand_bundles
def describe_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    addresses: Addresses,
    form: TextOrJson = "text",
) -> None:
    """Show mirrors: state, lag and fetched offset by partition, problems, and accepted commands."""
    from reconciler.cli.json.mirrors_json import MIRROR_DESCRIPTION
    from reconciler.cli.text.mirrors_text import format_mirror_details
    from reconciler.operations.mirrors.mirror_views import describe_mirrors

    rows = describe_mirrors(by_state.build_site_options(files, place), addresses)
    print_result(form, lambda: format_mirror_details(rows), lambda: MIRROR_DESCRIPTION.build_row(rows))


@expand_bundles
def errors_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    addresses: Annotated[
        list[str] | None,
        Argument(metavar="ADDR", help="Mirrors or links; by default all.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List problems of links, their tasks, mirrors that do not fetch, and transitions that do not end."""
    from reconciler.cli.json.mirrors_json import MIRROR_ERRORS
    from reconciler.cli.text.mirrors_text import format_mirror_errors
    from reconciler.operations.mirrors.mirror_views import read_mirror_errors

    mirror_problems = read_mirror_errors(by_state.build_site_options(files, place), tuple(addresses or ()))
    print_result(form, lambda: format_mirror_errors(mirror_problems), lambda: MIRROR_ERRORS.build_row(mirror_problems))
    raise_verdict(mirror_problems.verdict)


@expand_bundles
def failover_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: Links = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Turn mirrors into ordinary topics at once; records not yet copied are lost. Needs neither source nor state."""
    _change_roles(_VerbOptions(files, acting, place, addresses, links, dry_run, form), "failover", yes=yes)


@expand_bundles
def list_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    clusters: Annotated[
        list[str] | None,
        Argument(metavar="CLUSTER", help="Destinations; by default all clusters.", show_default=False),
    ] = None,
    link: Annotated[
        str | None, Option("--link", metavar="NAME", help="Only mirrors of this link.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the mirrors of clusters, including stopped ones, with states and lags."""
    from reconciler.cli.json.mirrors_json import MIRRORS
    from reconciler.cli.text.mirrors_text import format_mirrors
    from reconciler.operations.mirrors.mirror_views import list_mirrors

    mirrors = list_mirrors(by_state.build_site_options(files, place), clusters or (), link)
    print_result(form, lambda: format_mirrors(mirrors), lambda: MIRRORS.build_row(mirrors))
    raise_verdict(mirrors.verdict)


@expand_bundles
def pause_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: Links = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Stop mirrors from fetching; their records stay readable."""
    _change_roles(_VerbOptions(files, acting, place, addresses, links, dry_run, form), "pause")


@expand_bundles
def promote_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: Links = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    timeout: Timeout = None,
    form: TextOrJson = "text",
) -> None:
    """Turn mirrors into ordinary topics without loss. Waits for lag 0, and needs both clusters."""
    _change_roles(
        _VerbOptions(files, acting, place, addresses, links, dry_run, form), "promote", yes=yes, timeout=timeout
    )


@expand_bundles
def restore_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: RestoredFrom = None,
    keep_diverged: Annotated[
        bool,
        Option("--keep-diverged", help="On Kafka: keep records that only the sources have in a topic NAME.diverged."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Turn original sources of stopped mirrors into their mirrors. Records that only the sources have are lost."""
    typed = _VerbOptions(files, acting, place, addresses, links, dry_run, form)
    _change_roles(typed, "truncate-and-restore", yes=yes, keeps_diverged=keep_diverged)


@expand_bundles
def resume_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: Links = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Resume paused mirrors where they stopped, and suspended reversals."""
    _change_roles(_VerbOptions(files, acting, place, addresses, links, dry_run, form), "resume")


@expand_bundles
def reverse_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Choice = None,
    links: Links = None,
    dry_run: DryRun = False,
    pause: Annotated[bool, Option("--pause", help="Leave the new mirror paused.")] = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Swap the roles of mirrors and their sources without loss, over a bidirectional link."""
    verb: RoleVerb = "reverse-and-pause" if pause else "reverse-and-start"
    _change_roles(_VerbOptions(files, acting, place, addresses, links, dry_run, form), verb, yes=yes)


LinkAddresses = Annotated[
    list[str] | None,
    Argument(metavar="ADDR", help="For example link/east/twin, or 'link/east/*'.", show_default=False),
]


NewLinks = Annotated[list[str] | None, Argument(metavar="ADDR", help="For example link/east/twin.", show_default=False)]


SetFields = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="FIELD=YAML",
        help="Set a field of the MirrorLink, such as 'autoCreate={enabled: true, filters: [{name: \"*\"}]}'.",
        show_default=False,
    ),
]


@expand_bundles
def link_alter_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: LinkAddresses = None,
    set_: SetFields = None,
    delete: Annotated[
        list[str] | None,
        Option("--delete", metavar="FIELD", help="Reset a field to its default.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Change fields of links now. For emergencies: the next `drift` shows the difference to the files."""
    if not parse_config_changes(set_, delete):
        raise UsageError("there is nothing to alter", hint="Give --set FIELD=YAML or --delete FIELD")
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.mirrors.link_orders import order_links, parse_link_changes
    from reconciler.planning.orders import AlterLinkOrder

    changes = parse_link_changes(parse_pairs("--set", set_), delete or ())
    with open_emergency(acting, files, place, "link alter", form, is_dry_run=dry_run) as emergency:
        result = order_links(
            emergency, addresses or (), lambda link, _is_named: AlterLinkOrder(link, changes), is_dry_run=dry_run
        )
        show_order_result(result, "altered", form)


@expand_bundles
def link_create_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    source: Annotated[
        str, Option("--source", metavar="CLUSTER", help="Cluster that records are copied from; it must be reachable.")
    ],
    addresses: NewLinks = None,
    mode: Annotated[
        Literal["destination", "source", "bidirectional"],
        Option("--mode", help="Cluster that runs the link; bidirectional and source create the link on both clusters."),
    ] = "destination",
    prefix: Annotated[
        str, Option("--prefix", metavar="PREFIX", help="Prefix of the names of its mirrors.", show_default=False)
    ] = "",
    set_: SetFields = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Create links now, without mirrors. For emergencies: `drift` lists them until a file declares them."""
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.mirrors.link_orders import create_links, parse_link_fields

    fields = parse_pairs("--set", set_)
    for key, option in (("source", "--source"), ("mode", "--mode"), ("prefix", "--prefix")):
        if key in fields:
            raise UsageError(f"--set {key} has its own option", hint=f"Give it with {option}.")
    spec = {"source": source, "mode": mode, "prefix": prefix, **parse_link_fields(fields)}
    with open_emergency(acting, files, place, "link create", form, is_dry_run=dry_run) as emergency:
        show_order_result(create_links(emergency, addresses or (), spec, is_dry_run=dry_run), "created", form)


@expand_bundles
def link_delete_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: LinkAddresses = None,
    force: Annotated[
        bool, Option("--force", help="First fail over mirrors that are not stopped; records not yet copied are lost.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Delete links; the topics of their stopped mirrors stay. Refused while mirrors copy, unless --force is given."""
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.mirrors.link_orders import order_links
    from reconciler.planning.orders import DeleteLinkOrder

    confirm = build_change_confirmation("delete", "links", yes=yes, form=form)
    with open_emergency(acting, files, place, "link delete", form, is_dry_run=dry_run) as emergency:
        result = order_links(
            emergency,
            addresses or (),
            lambda link, _is_named: DeleteLinkOrder(link, force),
            confirm=confirm,
            is_dry_run=dry_run,
        )
        show_order_result(result, "deleted", form)


@expand_bundles
def link_describe_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    addresses: LinkAddresses = None,
    form: TextOrJson = "text",
) -> None:
    """Show links: state, fields, tasks, mirrors by state, problems, and accepted commands."""
    from reconciler.cli.json.mirrors_json import LINK_DESCRIPTION
    from reconciler.cli.text.mirrors_text import format_link_details
    from reconciler.operations.mirrors.link_views import describe_links

    rows = describe_links(by_state.build_site_options(files, place), addresses or ())
    print_result(form, lambda: format_link_details(rows), lambda: LINK_DESCRIPTION.build_row(rows))


@expand_bundles
def link_list_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    clusters: Annotated[
        list[str] | None,
        Argument(metavar="CLUSTER", help="Destinations; by default all clusters.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the links of clusters, with states and numbers of mirrors."""
    from reconciler.cli.json.mirrors_json import LINKS
    from reconciler.cli.text.mirrors_text import format_links
    from reconciler.operations.mirrors.link_views import list_links

    links = list_links(by_state.build_site_options(files, place), clusters or ())
    print_result(form, lambda: format_links(links), lambda: LINKS.build_row(links))
    raise_verdict(links.verdict)


@expand_bundles
def link_pause_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: LinkAddresses = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Pause links: their mirrors stop fetching, and syncing stops. Records stay readable."""
    _pause_or_resume_links(acting, files, place, addresses, is_paused=True, is_dry_run=dry_run, form=form)


@expand_bundles
def link_resume_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: LinkAddresses = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Resume paused links. Mirrors that were paused by themselves stay paused."""
    _pause_or_resume_links(acting, files, place, addresses, is_paused=False, is_dry_run=dry_run, form=form)


def _pause_or_resume_links(
    acting: LeaseOptions,
    files: FileOptions,
    place: WorkspaceOptions,
    addresses: list[str] | None,
    *,
    is_paused: bool,
    is_dry_run: bool,
    form: TextOrJson,
) -> None:
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.mirrors.link_orders import order_links
    from reconciler.planning.orders import PauseLinkOrder

    command, done = ("link pause", "paused") if is_paused else ("link resume", "resumed")
    with open_emergency(acting, files, place, command, form, is_dry_run=is_dry_run) as emergency:
        result = order_links(
            emergency,
            addresses or (),
            lambda link, is_named: PauseLinkOrder(link, is_paused, is_named),
            is_dry_run=is_dry_run,
        )
        show_order_result(result, done, form)
