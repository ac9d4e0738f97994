"""Commands of `namespace`."""

from __future__ import annotations

from typing import Annotated

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
)
from reconciler.cli.present import print_result
from reconciler.errors import UsageError

Cluster = Annotated[str, Argument(metavar="CLUSTER", help="For example west.")]
Name = Annotated[str, Argument(metavar="NAME", help="For example shop:eu.")]
Set = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="A config that topics in it inherit.", show_default=False),
]


@expand_bundles
def create_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    cluster: Cluster,
    namespace: Annotated[str, Argument(metavar="NAME", help="For example shop:eu; parent namespaces are created too.")],
    set_: Set = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Create a namespace now. For emergencies: the next plan lists it as unmanaged until a file declares it."""
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.clusters.namespaces import change_namespace
    from reconciler.planning.orders import CreateNamespaceOrder

    order = CreateNamespaceOrder(cluster.removeprefix("cluster/"), namespace, parse_pairs("--set", set_))
    with open_emergency(acting, files, place, "namespace create", form, is_dry_run=dry_run) as emergency:
        show_order_result(change_namespace(emergency, order, is_dry_run=dry_run), "created", form)


@expand_bundles
def alter_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    cluster: Cluster,
    namespace: Name,
    set_: Set = None,
    delete: Annotated[
        list[str] | None, Option("--delete", metavar="KEY", help="Reset a config.", show_default=False)
    ] = None,
    acl: Annotated[
        list[str] | None,
        Option(
            metavar="YAML",
            help="Set an access rule, as in `acls` of a manifest: '{principal: User:checkout, operations: [read]}'. It "
            "replaces the rule of the same principal, host, resources and names.",
            show_default=False,
        ),
    ] = None,
    delete_acl: Annotated[
        list[str] | None,
        Option("--delete-acl", metavar="YAML", help="Remove a rule; operations are ignored.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask before a loss of records.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Change configs and access rules of a namespace now. For emergencies: the next drift shows what differs."""
    configs = parse_config_changes(set_, delete)
    if not (configs or acl or delete_acl):
        raise UsageError("there is nothing to alter", hint="Give --set KEY=VALUE, --delete KEY, --acl or --delete-acl")
    from reconciler.cli.orders import build_loss_confirmation, open_emergency, show_order_result
    from reconciler.operations.clusters.namespaces import change_namespace, parse_access_rule
    from reconciler.planning.orders import AlterNamespaceOrder

    order = AlterNamespaceOrder(
        cluster.removeprefix("cluster/"),
        namespace,
        configs,
        acls=tuple(parse_access_rule("--acl", text) for text in acl or ()),
        removed_acls=tuple(
            parse_access_rule("--delete-acl", text, {"operations": ["all"]}) for text in delete_acl or ()
        ),
    )
    with open_emergency(acting, files, place, "namespace alter", form, is_dry_run=dry_run) as emergency:
        confirm = build_loss_confirmation("change", yes=yes, form=form)
        show_order_result(change_namespace(emergency, order, confirm=confirm, is_dry_run=dry_run), "altered", form)


@expand_bundles
def delete_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    cluster: Cluster,
    namespace: Name,
    recursive: Annotated[bool, Option("--recursive", help="Also namespaces in it, with their topics.")] = False,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="delete:ADDR", help="Delete it despite deletionProtection.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Delete a namespace with its topics now. Shows what would be deleted, then asks."""
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.clusters.namespaces import change_namespace
    from reconciler.planning.orders import DeleteNamespaceOrder

    order = DeleteNamespaceOrder(cluster.removeprefix("cluster/"), namespace, recursive)
    with open_emergency(acting, files, place, "namespace delete", form, is_dry_run=dry_run) as emergency:
        result = change_namespace(
            emergency,
            order,
            confirm=build_change_confirmation("delete", "resources", yes=yes, form=form),
            allow=tuple(allow or ()),
            is_dry_run=dry_run,
        )
        show_order_result(result, "deleted", form)


@expand_bundles
def list_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    cluster: Annotated[
        str | None, Argument(metavar="CLUSTER", help="By default all of the workspace.", show_default=False)
    ] = None,
    under: Annotated[
        str | None, Argument(metavar="UNDER", help="List only namespaces below this one.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List the namespaces on the clusters."""
    from reconciler.cli.json.clusters_json import NAMESPACES
    from reconciler.cli.text.topics_text import format_namespaces
    from reconciler.operations.clusters.namespaces import list_namespaces

    rows = list_namespaces(by_state.build_site_options(files, place), cluster, under)
    print_result(form, lambda: format_namespaces(rows), lambda: NAMESPACES.build_row(rows))


@expand_bundles
def move_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    cluster: Cluster,
    source: Annotated[str, Argument(metavar="FROM", help="The topics' namespace; '' is the default one.")],
    target: Annotated[str, Argument(metavar="TO", help="New namespace of the topics, which must exist.")],
    topic: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Move only this topic; by default all in FROM and below.", show_default=False),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="move:ADDR", help="Move a topic even if records are lost.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Move topics to another namespace now, with records, offsets and ids. Change the files afterwards."""
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.clusters.namespaces import change_namespace
    from reconciler.planning.orders import MoveTopicsOrder

    order = MoveTopicsOrder(cluster.removeprefix("cluster/"), source, target, tuple(topic or ()))
    with open_emergency(acting, files, place, "namespace move", form, is_dry_run=dry_run) as emergency:
        result = change_namespace(emergency, order, allow=tuple(allow or ()), is_dry_run=dry_run)
        show_order_result(result, "moved", form)
