"""From a folder of YAML to what is desired: every problem of every file in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.manifests.drafts import read_drafts
from reconciler.manifests.files import find_workspace, label_of, manifest_files
from reconciler.manifests.findings import Findings
from reconciler.manifests.gathering import Gathering
from reconciler.manifests.links import check_links
from reconciler.manifests.mirrors import check_mirrors
from reconciler.manifests.overlays import overlay_folder
from reconciler.manifests.problems import ManifestError, Problem
from reconciler.manifests.references import check_references
from reconciler.manifests.sharing import check_sharing
from reconciler.manifests.variables import FROM_COMMAND_LINE, Variables
from reconciler.manifests.workspacefile import VALUES_FILE, read_workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.manifests.findings import Place
    from reconciler.manifests.variables import Values
    from reconciler.manifests.workspacefile import WorkspaceFile
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired
    from reconciler.resources.workspace import Workspace

__all__ = ["Loaded", "Variables", "find_workspace", "load", "load_workspace"]

_ADVICE: Final = "Mend them and run `reconciler validate`"


@dataclass(frozen=True)
class Loaded:
    """What the files of a workspace say, for one environment."""

    workspace: Workspace
    desired: Desired
    folder: Path
    environment: str | None
    warnings: tuple[Problem, ...]
    places: Mapping[Address, tuple[Place, ...]]
    """Where each address is written: in an overlay first, then in the base."""
    values: Values
    """The variables, for `explain`."""


def load(folder: Path, *, environment: str | None, variables: Variables, within: Path | None = None) -> Loaded:
    """Read and check everything a workspace declares. Secrets stay references.

    `within`: the folder outside of which nothing is read, but the files of variables that were typed as lying there.

    Raises:
        ManifestError: Something is wrong; carries every problem of every file.
        UserError: There is no such environment.
    """
    folder, overlay, findings = _begin(folder, environment, variables, within)
    file = read_workspace(folder, overlay, variables, findings)
    gathering = _gather(folder, overlay, file, findings)
    if findings.is_whole:
        check_references(gathering, findings)
        check_mirrors(gathering, findings)
        check_links(gathering, findings)
        check_sharing(gathering, folder, findings)
    for name in file.values.unused(FROM_COMMAND_LINE):
        message = f"the variable {name} is used nowhere"
        findings.warnings.append(Problem(FROM_COMMAND_LINE, None, None, name, message, "Check its name"))
    return Loaded(
        workspace=_sound(file.workspace, findings),
        desired=gathering.desired,
        folder=folder,
        environment=environment,
        warnings=tuple(findings.warnings),
        places=gathering.places,
        values=file.values,
    )


def load_workspace(
    folder: Path, *, environment: str | None, variables: Variables, within: Path | None = None
) -> Workspace:
    """Read `reconciler.yaml` alone: for what needs the state and no manifest. `within` as above.

    Raises:
        ManifestError: Something is wrong with it.
        UserError: There is no such environment.
    """
    folder, overlay, findings = _begin(folder, environment, variables, within)
    return _sound(read_workspace(folder, overlay, variables, findings).workspace, findings)


def _begin(
    folder: Path, environment: str | None, variables: Variables, within: Path | None
) -> tuple[Path, Path | None, Findings]:
    folder = folder.resolve()
    overlay = overlay_folder(folder, environment) if environment is not None else None
    return folder, overlay, Findings(folder, within=within, typed=variables.files)


def _gather(folder: Path, overlay: Path | None, file: WorkspaceFile, findings: Findings) -> Gathering:
    gathering = Gathering(findings)
    if overlay is not None:
        apart = frozenset({overlay / VALUES_FILE})
        found = manifest_files(
            folder, [label_of(overlay, folder)], apart=apart, may_be_empty=True, within=findings.within
        )
        findings.add(found)
        gathering.add_overlays(read_drafts(found.files, folder, file.values, findings))
    found = manifest_files(folder, file.manifests, apart=file.apart, within=findings.within)
    findings.add(found)
    gathering.add(read_drafts(found.files, folder, file.values, findings))
    gathering.finish()
    return gathering


def _sound(workspace: Workspace | None, findings: Findings) -> Workspace:
    if findings.problems or workspace is None:
        raise ManifestError(findings.problems, hint=_ADVICE)
    return workspace
