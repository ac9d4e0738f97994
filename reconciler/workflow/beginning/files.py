"""A workspace's files: found and loaded. All that `validate` and `fmt` need; no store, no cluster, no plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UsageError
from reconciler.manifests.loading import find_workspace, load, load_workspace
from reconciler.manifests.variables import Variables

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.manifests.loading import Loaded
    from reconciler.resources.workspace import Workspace
    from reconciler.workflow.beginning.invocation import Invocation, Select


def load_files(invocation: Invocation, select: Select) -> Loaded:
    """Find the workspace and load its manifests.

    Raises:
        UserError: There is no workspace here, or its files have problems (`ManifestError` lists them all).
    """
    folder = workspace_folder(invocation)
    variables, within = variables_of(invocation, select), invocation.read_limit(folder)
    return load(folder, environment=select.environment, variables=variables, within=within)


def load_workspace_file(invocation: Invocation, select: Select) -> Workspace:
    """Find the workspace and load `reconciler.yaml` alone: the state can be asked while manifests are broken.

    Raises:
        UserError: There is no workspace here, or that file has problems.
    """
    folder = workspace_folder(invocation)
    variables, within = variables_of(invocation, select), invocation.read_limit(folder)
    return load_workspace(folder, environment=select.environment, variables=variables, within=within)


def workspace_folder(invocation: Invocation) -> Path:
    """Return the folder of `reconciler.yaml`: the one named, or the nearest upwards."""
    if invocation.workspace is None:
        return find_workspace(invocation.cwd)
    named = invocation.cwd / invocation.workspace
    folder = named.parent if named.name == "reconciler.yaml" else named
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="Give --workspace the folder of a reconciler.yaml.")
    if not (folder / "reconciler.yaml").exists():
        message = f"{folder} is no workspace: it has no reconciler.yaml"
        raise UsageError(message, hint="Name another folder, or make one with: reconciler init")
    return folder


def variables_of(invocation: Invocation, select: Select) -> Variables:
    """Return the variables of a command line and the environment."""
    files = tuple(invocation.cwd / path for path in select.var_files)
    return Variables.of(select.variables, files=files, environ=invocation.environ)
