"""`reconciler topic alter`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.emergency import Acting
from reconciler.cli.options import Files, Place, pairs
from reconciler.cli.render.lines import line
from reconciler.errors import UsageError


@bundled
def command(
    files: Files,
    acting: Acting,
    place: Place,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Give a config a value.", show_default=False)
    ] = None,
    delete: Annotated[
        list[str] | None, Option("--delete", metavar="KEY", help="Reset a config.", show_default=False)
    ] = None,
) -> None:
    """Change a topic's configs now. For emergencies: the next drift shows what the files do not say."""
    values = pairs("--set", set_)
    if not values and not delete:
        raise UsageError("there is nothing to alter", hint="Give --set KEY=VALUE or --delete KEY")
    from reconciler.cli.render.altered_text import altered_text
    from reconciler.workflow.altering import alter_topic

    with acting.emergency(files, place, "topic alter") as emergency:
        altered = alter_topic(emergency, address, values, tuple(delete or ()))
    screen = out()
    screen.show(altered_text(altered))
    if not altered.changes:
        screen.show([line(f"{altered.address} is like that already")])
