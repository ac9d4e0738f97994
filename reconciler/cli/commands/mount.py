"""Commands of `mount`, and `topic mount` and `topic unmount`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import open_stderr, open_stdout
from reconciler.cli.options import (
    Cluster,
    DryRun,
    FileOptions,
    Id,
    LeaseOptions,
    StateFilterOptions,
    StateOptions,
    TextOrJson,
    WorkspaceOptions,
    Yes,
    expand_bundles,
)
from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
from reconciler.cli.present import print_result, raise_verdict
from reconciler.cli.show import confirm_effects
from reconciler.cli.text.lines import make_line
from reconciler.cli.verbs import MigrationId, request_migration
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.operations.clusters.mount_orders import MountRequest, MountVerb
    from reconciler.operations.clusters.mounts import MigrationVerb, Release
    from reconciler.operations.steps.runner import SiteOptions
    from reconciler.resources.mount import Phase


@expand_bundles
def cancel_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    migration: Id,
    cluster: Cluster = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Stop a mount or unmount in progress, and undo it."""
    reach = by_state.build_site_options(files, place)
    _request_and_show(reach, MigrationId(migration, cluster), "cancel", yes=yes, form=form)


@expand_bundles
def delete_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    migration: Id,
    cluster: Cluster = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Delete the record of a planned, finished or cancelled migration."""
    reach = by_state.build_site_options(files, place)
    _request_and_show(reach, MigrationId(migration, cluster), "delete", yes=yes, form=form)


def _request_and_show(
    reach: SiteOptions, which: MigrationId, verb: MigrationVerb, *, yes: bool, form: Literal["text", "json"]
) -> None:
    from reconciler.cli.json.mounts_json import MIGRATION
    from reconciler.cli.text.mounts_text import format_cancellation, format_record_deletion

    done = request_migration(reach, which, verb, yes=yes, form=form)
    format_result = format_cancellation if verb == "cancel" else format_record_deletion
    print_result(form, lambda: format_result(done), lambda: MIGRATION.build_row(done))


@expand_bundles
def list_command(
    files: FileOptions,
    by_state: StateFilterOptions,
    place: WorkspaceOptions,
    clusters: Annotated[
        list[str] | None,
        Argument(metavar="CLUSTER", help="By default all that have object storage.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List mountable, mounted and moving topics, with their owners."""
    from reconciler.cli.json.mounts_json import MOUNTS
    from reconciler.cli.text.mounts_text import format_mountable_topics
    from reconciler.operations.clusters.mounts import list_mounts

    mounts = list_mounts(by_state.build_site_options(files, place), clusters or (), by_state.list_states())
    print_result(
        form, lambda: format_mountable_topics(mounts, width=open_stdout().width), lambda: MOUNTS.build_row(mounts)
    )
    raise_verdict(mounts.verdict)


@expand_bundles
def release_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    location: Annotated[
        str, Argument(metavar="LOCATION", help="<topic>/<cluster uuid>/<revision>, as `mount list` shows it.")
    ],
    owner: Annotated[str, Option("--owner", metavar="UUID", help="Id of the lost cluster.")],
    cluster: Annotated[
        str | None,
        Option(
            "--cluster",
            metavar="NAME",
            help="Cluster whose object storage has the topic, if there are several.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="release:LOCATION", help="Allow the loss of records.", show_default=False),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take a topic from a lost cluster; records that the cluster did not upload are lost. For emergencies."""
    from reconciler.cli.json.mounts_json import MOUNT_RELEASE
    from reconciler.cli.text.mounts_text import format_release, format_release_result
    from reconciler.operations.clusters.mounts import ReleaseRequest, release_topic_ownership
    from reconciler.operations.steps.runner import Stop

    def confirm(release: Release) -> bool:
        return confirm_effects(format_release(release), "Release the topic?", yes=yes, form=form)

    stop, request = Stop(), ReleaseRequest(location=location, owner=owner, cluster=cluster, allow=tuple(allow or ()))
    with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S):
        done = release_topic_ownership(by_state.build_site_options(files, place), request, confirm=confirm, stop=stop)
    print_result(form, lambda: format_release_result(done), lambda: MOUNT_RELEASE.build_row(done))


@expand_bundles
def status_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    migration: Annotated[
        int | None, Argument(metavar="ID", min=1, help="By default every migration.", show_default=False)
    ] = None,
    cluster: Cluster = None,
    form: TextOrJson = "text",
) -> None:
    """Show mounts and unmounts in progress, what each waits for, and the commands that it accepts."""
    from reconciler.cli.json.mounts_json import MOUNT_STATUS
    from reconciler.cli.text.mounts_text import format_migrations
    from reconciler.operations.clusters.mounts import read_mount_status

    status = read_mount_status(by_state.build_site_options(files, place), migration, cluster)
    print_result(
        form,
        lambda: format_migrations(status.migrations, is_whole=not status.lost),
        lambda: MOUNT_STATUS.build_row(status),
    )
    raise_verdict(status.verdict)


Mountable = Annotated[
    list[str] | None,
    Argument(
        metavar="ADDR",
        help="For example topic/west/shop:eu:orders, 'topic/west/shop:*', or topic/west/LOCATION.",
        show_default=False,
    ),
]
Topics = Annotated[
    list[str] | None,
    Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders, or 'topic/west/shop:*'.", show_default=False),
]
Prepare = Annotated[bool, Option("--prepare", help="Prepare only: topics are served as before; then --finish.")]
Finish = Annotated[bool, Option("--finish", help="Finish what was prepared or interrupted.")]


@expand_bundles
def topic_mount_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Mountable = None,
    to: Annotated[
        str | None, Option("--to", metavar="NAME", help="Another full name for a single topic.", show_default=False)
    ] = None,
    prepare: Prepare = False,
    finish: Finish = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Attach detached topics from object storage, several as one migration. For emergencies."""
    if to is not None and finish:
        raise UsageError(
            "--to was given when the mount was begun", hint="Name the topic by the name it gets: --finish ADDR"
        )
    request = _build_request("mount", addresses, prepare=prepare, finish=finish, to=to)
    _migrate(acting, files, place, request, dry_run=dry_run, yes=yes, form=form)


@expand_bundles
def topic_unmount_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Topics = None,
    prepare: Prepare = False,
    finish: Finish = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Detach topics into object storage, several as one migration: nothing is lost. For emergencies."""
    request = _build_request("unmount", addresses, prepare=prepare, finish=finish)
    _migrate(acting, files, place, request, dry_run=dry_run, yes=yes, form=form)


def _build_request(
    verb: MountVerb, addresses: list[str] | None, *, prepare: bool, finish: bool, to: str | None = None
) -> MountRequest:
    from reconciler.operations.clusters.mount_orders import MountRequest

    if prepare and finish:
        raise UsageError("--prepare and --finish are two phases", hint="Give --prepare first, and --finish later.")
    phase: Phase = "prepare" if prepare else "finish" if finish else "whole"
    return MountRequest(verb=verb, texts=tuple(addresses or ()), to=to, phase=phase)


def _migrate(
    acting: LeaseOptions,
    files: FileOptions,
    place: WorkspaceOptions,
    request: MountRequest,
    *,
    dry_run: bool,
    yes: bool,
    form: Literal["text", "json"],
) -> None:
    from reconciler.operations.clusters.mount_orders import migrate_topics

    is_prepared = request.phase == "prepare"
    with open_emergency(acting, files, place, f"topic {request.verb}", form, is_dry_run=dry_run) as emergency:
        confirm = build_change_confirmation(request.verb, "topics", yes=yes, form=form)
        result = migrate_topics(emergency, request, confirm=confirm, is_dry_run=dry_run)
        prepared = [address for address in result.addresses if address not in result.failed]
        if is_prepared and prepared and form == "text" and not dry_run:
            open_stderr().show(
                [make_line(f"To continue: reconciler topic {request.verb} --finish {' '.join(prepared)}")]
            )
        show_order_result(result, "prepared" if is_prepared else f"{request.verb}ed", form)
