"""The floor of starting: a typer app with as many commands as ours, which do nothing.

With FLOOR_MODELS=1 it also imports our models and makes those that a small workspace uses ready to validate.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

if os.environ.get("FLOOR_MODELS"):
    from reconciler.resources.inventory import MANIFEST_KINDS

    for kind in ("Workspace", "Cluster", "Namespace", "Topic"):
        MANIFEST_KINDS[kind].model_rebuild()  # ready to validate, which pydantic otherwise puts off

COMMANDS = {
    "": ["init", "validate", "fmt", "plan", "apply", "destroy", "drift", "show", "explain", "run", "verify", "schema"],
    "namespace": ["list"],
    "topic": ["list", "describe", "alter", "produce", "consume"],
    "state": ["list", "show", "history", "unlock"],
}


def nothing(
    address: Annotated[str, typer.Argument(help="An address.")] = "",
    *,
    workspace: Annotated[Path | None, typer.Option(help="The folder of reconciler.yaml.")] = None,
    environment: Annotated[str | None, typer.Option("-e", "--environment", help="An environment.")] = None,
    variable: Annotated[list[str] | None, typer.Option("--var", help="A variable.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only these addresses.")] = None,
    output_format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Do nothing."""


# Without rich, which typer would otherwise import to draw boxes.
app = typer.Typer(help="The floor.", rich_markup_mode=None, pretty_exceptions_enable=False)
for group, names in COMMANDS.items():
    home = typer.Typer(help=f"All about {group}.", rich_markup_mode=None) if group else app
    for name in names:
        home.command(name, help=f"{name.title()} something.")(nothing)
    if group:
        app.add_typer(home, name=group)

if __name__ == "__main__":
    app()
