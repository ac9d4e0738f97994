"""`reconciler schema`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.cli.bundles import bundled
from reconciler.cli.console import out
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import line
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@bundled
def command(
    kind: Annotated[
        str | None, Argument(metavar="KIND", help="Which schema; by default their names.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        Option("--out", "-o", metavar="DIR", help="Write them here, one file each.", show_default=False),
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of manifest or of an output, for editors and programs."""
    from reconciler.cli.documents.schemas import schema_bytes
    from reconciler.cli.outputs import check_name

    bodies = schema_bytes()
    if kind is not None:
        bodies = {_named(kind, bodies): bodies[_named(kind, bodies)]}
    if folder is not None:
        check_name("--out", folder)
        _write(folder, bodies)
    elif kind is not None:
        out().write_bytes(next(iter(bodies.values())))
    else:
        out().show([line(name) for name in bodies])


def _named(kind: str, bodies: Mapping[str, bytes]) -> str:
    for name in bodies:
        if name.lower() == kind.lower():
            return name
    raise UsageError(f"there is no schema '{kind}'", hint=f"Schemas: {', '.join(bodies)}")


def _write(folder: Path, bodies: Mapping[str, bytes]) -> None:
    from reconciler.cli.outputs import checked_output
    from reconciler.objectstore.files import write_whole

    paths = {name: checked_output("--out", folder / f"{name}.json", "a JSON Schema") for name in bodies}
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        write_whole(paths[name], body)
    out().show([line(f"Wrote {counted(len(bodies), 'schema')} into {folder}")])
