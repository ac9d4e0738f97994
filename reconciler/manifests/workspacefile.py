"""`reconciler.yaml` itself, and the variables its values files define: read before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.manifests.documents import parse
from reconciler.manifests.files import OVERLAYS, WORKSPACE_FILE, read_bounded
from reconciler.manifests.findings import Findings, Place
from reconciler.manifests.problems import Problem
from reconciler.manifests.reading import null_complaints, read
from reconciler.manifests.substitution import Substitution
from reconciler.manifests.variables import Values, Variables, read_values
from reconciler.resources.base import Complaint
from reconciler.resources.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

VALUES_FILE = "values.yaml"


class WorkspaceFile(NamedTuple):
    """What is known before the manifests are read, also where the workspace itself is not valid."""

    workspace: Workspace | None
    manifests: tuple[str, ...]
    """The listed paths."""
    apart: frozenset[Path]
    """What lies beside the manifests and is none."""
    values: Values


def read_workspace(folder: Path, overlay: Path | None, variables: Variables, findings: Findings) -> WorkspaceFile:
    """Read `reconciler.yaml` and all values; what is wrong goes to `findings`."""
    content, place, has_null = _document(folder, findings)
    spec = content.get("spec") if isinstance(content, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    files = [folder / name for name in _texts(spec.get("values"))]
    if overlay is not None and (overlay / VALUES_FILE).exists():
        files.append(overlay / VALUES_FILE)
    values, problems = read_values(folder, files, variables)
    findings.problems += problems
    workspace = _validated(content, place, values, findings, has_null=has_null) if place is not None else None
    manifests = workspace.spec.manifests if workspace is not None else _texts(spec.get("manifests")) or ("manifests",)
    apart = frozenset({folder / WORKSPACE_FILE, folder / OVERLAYS, *files})
    return WorkspaceFile(workspace, manifests, apart, values)


def _document(folder: Path, findings: Findings) -> tuple[Any, Place | None, bool]:
    raw = read_bounded(folder / WORKSPACE_FILE, WORKSPACE_FILE)
    if isinstance(raw, Problem):
        findings.problems.append(raw)
        return None, None, False
    parsed = parse(raw, WORKSPACE_FILE)
    findings.problems += parsed.problems
    if not parsed.documents:
        if parsed.is_whole:
            hint = "It begins with `apiVersion: reconciler/v1` and `kind: Workspace`; `reconciler init` writes one"
            findings.problems.append(Problem(WORKSPACE_FILE, None, None, "", "declares no Workspace", hint))
        return None, None, False
    for document in parsed.documents[1:]:
        message = "holds one document, the Workspace, and this is another"
        findings.problems.append(
            Problem(WORKSPACE_FILE, document.line, 1, "", message, "Move it to a file of its own below spec.manifests")
        )
    first = parsed.documents[0]
    return first.content, Place(WORKSPACE_FILE, first.index, first.line), first.has_null


def _validated(content: Any, place: Place, values: Values, findings: Findings, *, has_null: bool) -> Workspace | None:
    substitution = Substitution(values)
    content = substitution.of(content)
    complaints = [*substitution.complaints, *(null_complaints(content) if has_null else ())]
    said = {complaint.at for complaint in complaints}
    resource, more = read(content, secrets=substitution.secrets)
    complaints += [complaint for complaint in more if complaint.at not in said]
    if resource is not None and not isinstance(resource, Workspace):
        hint = "Write `kind: Workspace` here, and manifests below spec.manifests"
        complaints.append(Complaint(f"is {resource.kind}, and this file declares the Workspace", hint, ("kind",)))
    findings.complain_all((place,), complaints)
    return resource if isinstance(resource, Workspace) and not complaints else None


def _texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts as far as it is one: the model says what is wrong with it."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
