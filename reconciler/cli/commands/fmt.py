"""`reconciler fmt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.options import Place
from reconciler.cli.presenting import raise_verdict
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import line


@bundled
def command(
    place: Place,
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="PATH", help="Files or folders; by default the workspace's.", show_default=False),
    ] = None,
    check: Annotated[bool, Option("--check", help="Change nothing; exit 1 where something would change.")] = False,
) -> None:
    """Put manifests into canonical form. Comments stay."""
    from reconciler.workflow.fmt import fmt

    formatted = fmt(place.invocation(), tuple(paths or ()), check=check)
    word = "would change" if check else "changed"
    screen = out()
    screen.show([line(f"{word}  {path}") for path in formatted.changed])
    screen.show([line(f"{counted(formatted.files, 'file')}, {len(formatted.changed)} {word}")])
    raise_verdict(formatted.verdict)
