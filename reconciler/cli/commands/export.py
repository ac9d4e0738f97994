"""`reconciler export`."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import Files, IntoFolder, OutFolder, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict


@bundled
def command(
    files: Files,
    place: Place,
    cluster: Annotated[
        str,
        Argument(metavar="CLUSTER", help="A cluster: declared, or a new name."),
    ],
    out: OutFolder,
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
    force: IntoFolder = False,
    bootstrap_server: Annotated[
        list[str] | None,
        Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="A Kafka cluster that nothing declares yet: writes a whole workspace.",
            show_default=False,
        ),
    ] = None,
    security: Annotated[
        list[str] | None,
        Option(
            "--security",
            metavar="FIELD=VALUE",
            help="With --bootstrap-server, as in a Cluster: protocol=SASL_SSL, 'password=${env:NAME}' …",
            show_default=False,
        ),
    ] = None,
    namespace_separator: Annotated[
        Literal[".", "_", "-"] | None,
        Option(
            "--namespace-separator",
            help="With --bootstrap-server: what ends a namespace in topic names; by default a dot.",
            show_default=False,
        ),
    ] = None,
    min_topics: Annotated[
        int,
        Option(
            "--min-topics",
            min=0,
            metavar="N",
            help="Of flat names: so many topics that begin alike are a namespace; 0: no number is.",
        ),
    ] = 3,
    form: TextOrJson = "text",
) -> None:
    """Write manifests of what is there. The next plan adopts it; from object storage, it recovers it."""
    from reconciler.cli.documents.exports import ExportDocument
    from reconciler.cli.render.export_text import export_text
    from reconciler.workflow.export import ExportOptions, export
    from reconciler.workflow.exporting.bare import bare_named

    invocation = place.invocation()
    folder = invocation.cwd / out
    bare = bare_named(
        cluster, bootstrap_server or (), security or (), namespace_separator, here=invocation.cwd, out=folder
    )
    options = ExportOptions(
        out=folder,
        is_archived=from_object_storage,
        cluster_id=cluster_id,
        is_forced=force,
        bare=bare,
        at_least=min_topics,
    )
    exported = export(invocation, files.select(), cluster, options)
    present(form, lambda: export_text(exported), lambda: ExportDocument.of(exported))
    raise_verdict(exported.verdict)
