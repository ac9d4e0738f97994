"""`reconciler.yaml` itself, and the variables its values files define: read before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.manifests.documents import Document, parse
from reconciler.manifests.drafts import Draft, draft_of
from reconciler.manifests.files import OVERLAYS, WORKSPACE_FILE
from reconciler.manifests.findings import Findings
from reconciler.manifests.problems import Problem
from reconciler.manifests.reading import read
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
    document = _document(folder, findings)
    content = document.content if document is not None else None
    spec = content.get("spec") if isinstance(content, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    files = [folder / name for name in _texts(spec.get("values"))]
    if overlay is not None and (overlay / VALUES_FILE).exists():
        files.append(overlay / VALUES_FILE)
    values, problems = read_values(folder, files, variables, findings.read)
    findings.problems += problems
    workspace = _validated(draft_of(document, WORKSPACE_FILE, values), findings) if document else None
    manifests = workspace.spec.manifests if workspace is not None else _texts(spec.get("manifests")) or ("manifests",)
    apart = frozenset({folder / WORKSPACE_FILE, folder / OVERLAYS, *files})
    return WorkspaceFile(workspace, manifests, apart, values)


def _document(folder: Path, findings: Findings) -> Document | None:
    raw = findings.read(folder / WORKSPACE_FILE, WORKSPACE_FILE)
    if isinstance(raw, Problem):
        findings.lose(raw)
        return None
    parsed = parse(raw, WORKSPACE_FILE)
    findings.problems += parsed.problems
    if not parsed.documents and parsed.is_whole:
        hint = "It begins with `apiVersion: reconciler/v1` and `kind: Workspace`; `reconciler init` writes one"
        findings.problems.append(Problem(WORKSPACE_FILE, None, None, "", "declares no Workspace", hint))
    for document in parsed.documents[1:]:
        message = "holds one document, the Workspace, and this is another"
        hint = "Move it to a file of its own below spec.manifests"
        findings.problems.append(Problem(WORKSPACE_FILE, document.line, 1, "", message, hint))
    return parsed.documents[0] if parsed.documents else None


def _validated(draft: Draft, findings: Findings) -> Workspace | None:
    resource, complaints = read(draft)
    if resource is not None and not isinstance(resource, Workspace):
        hint = "Write `kind: Workspace` here, and manifests below spec.manifests"
        complaints.append(Complaint(f"is {resource.kind}, and this file declares the Workspace", hint, ("kind",)))
    findings.complain_all(draft.places, complaints)
    return resource if isinstance(resource, Workspace) and not complaints else None


def _texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts as far as it is one: the model says what is wrong with it."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
