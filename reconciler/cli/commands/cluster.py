"""The command `cluster recover`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.console import open_stderr, open_stdout
from reconciler.cli.options import FileOptions, LeaseOptions, WorkspaceOptions, Yes, expand_bundles
from reconciler.cli.orders import open_emergency
from reconciler.cli.show import confirm_effects
from reconciler.cli.text.lines import Span, Tone, make_line
from reconciler.runtime.text import pluralize


@expand_bundles
def recover_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="The name of an empty Redpanda cluster.")],
    lost: Annotated[
        str | None,
        Option("--from", metavar="UUID", help="Id of the lost cluster, if the bucket has several.", show_default=False),
    ] = None,
    yes: Yes = False,
) -> None:
    """Recover a lost Redpanda cluster from its bucket into a new one. Run again, it follows the recovery."""
    from reconciler.operations.clusters.cluster_recovery import recover_cluster

    def confirm() -> bool:
        about = "its topics, configs, access rules and group offsets come from the last metadata in its bucket"
        lines = [
            make_line(Span(cluster, Tone.STRONG), f": {about}"),
            make_line("Topics without uploads come back empty."),
        ]
        return confirm_effects(lines, "Recover the cluster?", yes=yes, form="text")

    def tell(stage: str) -> None:
        open_stderr().show([make_line(stage)])

    with open_emergency(acting, files, place, "cluster recover", "text") as emergency:
        recovered = recover_cluster(emergency, cluster, lost, confirm=confirm, tell=tell)
        count = pluralize(recovered.topics, "topic")
        open_stdout().show(
            [
                make_line(Span("✓ ", Tone.ADD), Span(recovered.address, Tone.STRONG), f"  recovered: it has {count}"),
                make_line("See what the files say of them: reconciler plan"),
            ]
        )
