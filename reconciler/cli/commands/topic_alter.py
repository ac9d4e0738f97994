"""`reconciler topic alter`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.bundles import bundled
from reconciler.cli.console import err, out
from reconciler.cli.options import Files, Place, pairs, seconds
from reconciler.cli.render.lines import line
from reconciler.errors import UsageError


@bundled
def command(
    files: Files,
    place: Place,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Give a config a value.", show_default=False)
    ] = None,
    delete: Annotated[
        list[str] | None, Option("--delete", metavar="KEY", help="Reset a config.", show_default=False)
    ] = None,
    state: Annotated[
        str | None,
        Option(metavar="URL", help="Where the state is, in place of a workspace.", show_default=False),
    ] = None,
    no_state: Annotated[bool, Option("--no-state", help="Act without the state; the next plan finds it.")] = False,
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10s",
) -> None:
    """Change a topic's configs now. For emergencies: the next drift shows what the files do not say."""
    values = pairs("--set", set_)
    if not values and not delete:
        raise UsageError("there is nothing to alter", hint="Give --set KEY=VALUE or --delete KEY")
    from reconciler.cli.render.altered_text import altered_text
    from reconciler.cli.reporting import reporter
    from reconciler.workflow.altering import alter_topic
    from reconciler.workflow.stopping import Stop

    stop = Stop()
    with signals.stopping(stop), reporter("text") as report:
        altered = alter_topic(
            place.invocation(),
            files.select(),
            address,
            set_=values,
            delete=tuple(delete or ()),
            no_state=no_state,
            state_url=state,
            lock_timeout_s=seconds("--lock-timeout", lock_timeout),
            report=report,
            stop=stop,
        )
    screen = out()
    screen.show(altered_text(altered))
    if not altered.changes:
        screen.show([line(f"{altered.address} is like that already")])
    elif no_state:
        err().show([line("The state does not know of this. What the files say otherwise, the next apply sets back")])
