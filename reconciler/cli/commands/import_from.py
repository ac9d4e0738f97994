"""`reconciler import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.options import IntoFolder, OutFolder, Place, TextOrJson
from reconciler.cli.presenting import present, raise_verdict

Tool = Literal[
    "terraform",
    "terraform-state",
    "topicctl",
    "jikkou",
    "julie",
    "kafka-gitops",
    "strimzi",
]


@bundled
def command(
    place: Place,
    path: Annotated[Path, Argument(metavar="PATH", help="The file or folder of the other tool.")],
    tool: Annotated[
        Tool,
        Option(
            "--from",
            help="Whose it is; terraform: its state, or what `terraform show -json` prints.",
            show_default=False,
        ),
    ],
    out: OutFolder,
    cluster: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="What the cluster is called here; THEIRS=OURS where the files know of several.",
            show_default=False,
        ),
    ] = None,
    min_topics: Annotated[
        int,
        Option(
            "--min-topics",
            min=0,
            metavar="N",
            help="So many topics that begin alike are a namespace; 0: only what access rules begin with.",
        ),
    ] = 0,
    namespace_separator: Annotated[
        Literal[".", "_", "-"] | None,
        Option(
            "--namespace-separator",
            help="What ends a namespace in topic names; by default as declared, else a dot.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        bool, Option("--init", help="Make DIR a workspace of its own, with the clusters that the files name.")
    ] = False,
    bootstrap_server: Annotated[
        list[str] | None,
        Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="The same, of a cluster of which the files do not say where it is.",
            show_default=False,
        ),
    ] = None,
    force: IntoFolder = False,
    form: TextOrJson = "text",
) -> None:
    """Write manifests of what another tool's files say, and tell what they could not carry over. Asks no cluster."""
    from reconciler.cli.documents.imports import ImportDocument
    from reconciler.cli.render.import_text import import_text
    from reconciler.workflow.importing.run import ImportOptions, import_files

    options = ImportOptions(
        tool=tool,
        path=path,
        out=out,
        clusters=tuple(cluster or ()),
        separator=namespace_separator,
        at_least=min_topics,
        bootstrap_servers=tuple(bootstrap_server or ()),
        is_workspace=init,
        is_forced=force,
    )
    imported = import_files(place.invocation(), options)
    present(form, lambda: import_text(imported), lambda: ImportDocument.of(imported))
    raise_verdict(imported.verdict)
