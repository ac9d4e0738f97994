"""`reconciler init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.options import Here
from reconciler.cli.render.lines import EMPTY, line


@bundled
def command(
    here: Here,
    directory: Annotated[Path, Argument(metavar="DIR", help="Where to make it.", show_default=True)] = Path(),
) -> None:
    """Make a workspace to start from; overwrites nothing."""
    from reconciler.workflow.init import init

    made = init(here.invocation(), directory)
    screen = out()
    screen.show([line(f"Made a workspace in {made.folder}, its state in {made.state}")])
    screen.show([line("  + ", str(path.relative_to(made.folder))) for path in made.files])
    screen.show([EMPTY, line("Next:  edit manifests/example.yaml, then  reconciler plan")])
