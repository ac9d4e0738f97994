"""`reconciler namespace create`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.options import Files, Place, TextOrJson, pairs
from reconciler.cli.presenting import present


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="For example west.")],
    namespace: Annotated[str, Argument(metavar="NAME", help="For example shop:eu; every tier above is made too.")],
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A config that topics in it inherit.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Make a namespace now. For emergencies: the next plan shows what the files do not say."""
    configs = pairs("--set", set_)
    from reconciler.cli.documents.namespaces import NamespaceCreationDocument
    from reconciler.cli.render.namespaces_text import created_text
    from reconciler.workflow.namespaces.creating import create_namespace

    with acting.emergency(files, place, "namespace create") as emergency:
        made = create_namespace(emergency, cluster.removeprefix("cluster/"), namespace, configs)
    present(form, lambda: created_text(made), lambda: NamespaceCreationDocument.of(made))
