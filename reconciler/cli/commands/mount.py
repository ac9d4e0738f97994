"""`mount`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import out
from reconciler.cli.options import ByState, Cluster, Files, Id, Place, TextOrJson, bundled
from reconciler.cli.present import present, raise_verdict
from reconciler.cli.show import approved
from reconciler.cli.verbs import MigrationId, ask_migration

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.cli.text.lines import Line
    from reconciler.operations.clusters.mounts import MigrationVerb, MountSite, Release, Underway


@bundled
def cancel_command(
    files: Files,
    by_state: ByState,
    place: Place,
    migration: Id,
    cluster: Cluster = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Stop a mount or unmount that has begun, and undo what it did: the topics are as before."""
    from reconciler.cli.text.mounts_text import cancelled_text

    _ask(by_state.reach(files, place), MigrationId(migration, cluster), "cancel", cancelled_text, yes=yes, form=form)


# `reconciler mount delete`.


@bundled
def delete_command(
    files: Files,
    by_state: ByState,
    place: Place,
    migration: Id,
    cluster: Cluster = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Drop the record of a migration that is planned, finished or cancelled."""
    from reconciler.cli.text.mounts_text import deleted_text

    _ask(by_state.reach(files, place), MigrationId(migration, cluster), "delete", deleted_text, yes=yes, form=form)


def _ask(
    reach: MountSite,
    which: MigrationId,
    verb: MigrationVerb,
    told: Callable[[Underway], list[Line]],
    *,
    yes: bool,
    form: Literal["text", "json"],
) -> None:
    """Ask a verb of a migration, and tell what became of it."""
    from reconciler.cli.json.mounts_json import MigrationDocument

    done = ask_migration(reach, which, verb, yes=yes, form=form)
    present(form, lambda: told(done), lambda: MigrationDocument.of(done))


# `reconciler mount list`.


@bundled
def list_command(
    files: Files,
    by_state: ByState,
    place: Place,
    clusters: Annotated[
        list[str] | None,
        Argument(metavar="CLUSTER", help="By default all that have object storage.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """List what can be mounted, what is mounted since it was detached, and what is on its way, with their owners."""
    from reconciler.cli.json.mounts_json import MountsDocument
    from reconciler.cli.text.mounts_text import mountables_text
    from reconciler.operations.clusters.mounts import list_mounts

    found = list_mounts(by_state.reach(files, place), clusters or ())
    present(form, lambda: mountables_text(found, width=out().width), lambda: MountsDocument.of(found))
    raise_verdict(found.verdict)


# `reconciler mount release`.


@bundled
def release_command(
    files: Files,
    by_state: ByState,
    place: Place,
    location: Annotated[
        str, Argument(metavar="LOCATION", help="<topic>/<cluster uuid>/<revision>, as `mount list` shows it.")
    ],
    owner: Annotated[str, Option("--owner", metavar="UUID", help="The cluster that will not come back.")],
    cluster: Annotated[
        str | None,
        Option("--cluster", metavar="NAME", help="By whose object storage, if several have it.", show_default=False),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="release:LOCATION", help="Allow what is lost by it.", show_default=False),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Take a topic from a cluster that will not come back: what it had not uploaded is lost. For emergencies."""
    from reconciler.cli.json.mounts_json import MountReleaseDocument
    from reconciler.cli.text.mounts_text import release_text, released_text
    from reconciler.operations.clusters.mounts import ReleaseOf, release_topic
    from reconciler.operations.steps.runner import Stop

    def confirm(release: Release) -> bool:
        return approved(release_text(release), "Release it?", yes=yes, form=form)

    stop, asked = Stop(), ReleaseOf(location=location, owner=owner, cluster=cluster, allow=tuple(allow or ()))
    with signals.stopping(stop, patience_s=signals.RUN_S):
        done = release_topic(by_state.reach(files, place), asked, confirm=confirm, stop=stop)
    present(form, lambda: released_text(done), lambda: MountReleaseDocument.of(done))


# `reconciler mount status`.


@bundled
def status_command(
    files: Files,
    by_state: ByState,
    place: Place,
    migration: Annotated[
        int | None, Argument(metavar="ID", min=1, help="By default every migration.", show_default=False)
    ] = None,
    cluster: Cluster = None,
    form: TextOrJson = "text",
) -> None:
    """Show the mounts and unmounts under way: how far each is, what it waits for, and what may be asked of it."""
    from reconciler.cli.json.mounts_json import MountStatusDocument
    from reconciler.cli.text.mounts_text import status_text
    from reconciler.operations.clusters.mounts import mount_status

    found = mount_status(by_state.reach(files, place), migration, cluster)
    present(
        form,
        lambda: status_text(found.migrations, is_whole=not found.lost),
        lambda: MountStatusDocument.of(found),
    )
    raise_verdict(found.verdict)
