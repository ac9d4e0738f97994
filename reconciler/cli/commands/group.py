"""Commands of `group`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.options import FileOptions, StateOptions, TextOrJson, WorkspaceOptions, expand_bundles
from reconciler.cli.present import print_result
from reconciler.cli.show import confirm_effects
from reconciler.cli.text.topics_text import (
    format_deletion_result,
    format_group_deletion,
    format_reset,
    format_reset_result,
)

if TYPE_CHECKING:
    from reconciler.operations.clusters.groups import GroupDeletion, GroupReset


@expand_bundles
def delete_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    topic: Annotated[
        str | None,
        Option(metavar="NAME", help="Delete only its offsets of this topic, as shop:eu:orders.", show_default=False),
    ] = None,
    force: Annotated[bool, Option("--force", help="Act even while the group is reading.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Delete a consumer group, or its offsets of one topic. Shows the offsets, then asks."""
    from reconciler.cli.json.clusters_json import GROUP_DELETION
    from reconciler.operations.clusters.groups import GroupChange, delete_group

    def confirm(deletion: GroupDeletion) -> bool:
        return confirm_effects(format_group_deletion(deletion), "Delete the group?", yes=yes, form=form)

    change = GroupChange(cluster=cluster, group=group, topic=topic, force=force)
    done = delete_group(by_state.build_site_options(files, place), change, confirm=confirm)
    print_result(form, lambda: format_deletion_result(done), lambda: GROUP_DELETION.build_row(done))


@expand_bundles
def describe_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    form: TextOrJson = "text",
) -> None:
    """Describe a consumer group: committed offsets, lag, and activity."""
    from reconciler.cli.json.clusters_json import GROUP
    from reconciler.cli.text.topics_text import format_group
    from reconciler.operations.clusters.groups import describe_group

    described = describe_group(by_state.build_site_options(files, place), cluster, group)
    print_result(form, lambda: format_group(described), lambda: GROUP.build_row(described))


@expand_bundles
def list_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    form: TextOrJson = "text",
) -> None:
    """List the consumer groups of a cluster."""
    from reconciler.cli.json.clusters_json import GROUPS
    from reconciler.cli.text.topics_text import format_group_names
    from reconciler.operations.clusters.groups import list_groups

    groups = list_groups(by_state.build_site_options(files, place), cluster)
    print_result(form, lambda: format_group_names(groups), lambda: GROUPS.build_row(groups))


@expand_bundles
def reset_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    group: Annotated[str, Argument(metavar="GROUP", help="For example shop:eu:checkout.")],
    to: Annotated[
        str, Option("--to", metavar="earliest|latest|TIME|OFFSET|±N", help="Position to continue reading from.")
    ],
    topic: Annotated[
        str | None, Option(metavar="NAME", help="Only this topic, as shop:eu:orders.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Use only this partition.", show_default=False)
    ] = None,
    force: Annotated[bool, Option("--force", help="Act even while the group is reading.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Set the committed offsets of a consumer group. Shows each move, then asks."""
    from reconciler.cli.json.clusters_json import GROUP_RESET
    from reconciler.operations.clusters.groups import GroupChange, reset_group

    def confirm(reset: GroupReset) -> bool:
        return confirm_effects(format_reset(reset), "Reset the offsets?", yes=yes, form=form)

    change = GroupChange(cluster=cluster, group=group, topic=topic, partition=partition, force=force)
    done = reset_group(by_state.build_site_options(files, place), change, to, confirm=confirm)
    print_result(
        form,
        lambda: format_reset_result(done) if done.moves else format_reset(done),
        lambda: GROUP_RESET.build_row(done),
    )
