"""`reconciler init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.options import Here
from reconciler.cli.render.lines import EMPTY, line


@bundled
def command(
    here: Here,
    directory: Annotated[Path, Argument(metavar="DIR", help="Where to make it.", show_default=True)] = Path(),
    state: Annotated[
        str | None,
        Option(metavar="URL", help="Where its state lies: file://folder or s3://bucket/prefix.", show_default=False),
    ] = None,
) -> None:
    """Make a workspace to start from; overwrites nothing."""
    from reconciler.workflow.init import init

    made = init(here.invocation(), directory, state=state)
    screen = out()
    screen.show([line(f"Made a workspace in {made.folder}, its state in {made.state}")])
    screen.show([line("  + ", str(path.relative_to(made.folder))) for path in made.files])
    screen.show([EMPTY, line("Next:  edit manifests/example.yaml, then  reconciler plan")])
