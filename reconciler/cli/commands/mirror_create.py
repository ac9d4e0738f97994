"""`reconciler mirror create`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from reconciler.cli.bundles import bundled
from reconciler.cli.emergency import Acting
from reconciler.cli.linking import Addresses, show
from reconciler.cli.options import Files, Place, TextOrJson, pairs


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    addresses: Addresses,
    link: Annotated[str, Option("--link", metavar="NAME", help="The link that makes them; it has to be there.")],
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
    form: TextOrJson = "text",
) -> None:
    """Make mirrors over a link that is there. For emergencies: the next drift shows what the files do not say."""
    from reconciler.workflow.linking.commands.creating import NewMirrors, create_mirrors

    new = NewMirrors(link=link, source=source, configs=pairs("--config", config))
    with acting.emergency(files, place, "mirror create") as emergency:
        answers = create_mirrors(emergency, addresses, new)
    show(answers, form)
