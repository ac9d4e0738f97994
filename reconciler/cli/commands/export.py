"""`reconciler export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict


@bundled
def command(
    files: Files,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="A cluster that is declared.")],
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="A folder for the manifests.", show_default=False)],
    from_object_storage: Annotated[
        bool, Option("--from-object-storage", help="Read its objectStorage alone: topics come with recoverFrom.")
    ] = False,
    cluster_id: Annotated[
        str | None,
        Option(
            "--cluster-id",
            metavar="UUID",
            help="Of object storage: what this cluster made; by default CLUSTER itself.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Also into a folder that holds something; no file is overwritten.")
    ] = False,
    form: TextOrJson = "text",
) -> None:
    """Write manifests of what is there. The next plan adopts it; from object storage, it recovers it."""
    from reconciler.cli.documents.exports import ExportDocument
    from reconciler.cli.render.export_text import export_text
    from reconciler.workflow.export import ExportOptions, export

    invocation = place.invocation()
    options = ExportOptions(
        out=invocation.cwd / out, is_archived=from_object_storage, cluster_id=cluster_id, is_forced=force
    )
    exported = export(invocation, files.select(), cluster, options)
    present(form, lambda: export_text(exported), lambda: ExportDocument.of(exported))
    raise_verdict(exported.verdict)
