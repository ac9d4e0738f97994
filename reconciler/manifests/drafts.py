"""Read `reconciler.yaml`, and merge manifests with their overlays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.manifests.files import OVERLAYS, WORKSPACE_FILE, Findings, Place
from reconciler.manifests.models import find_header_complaints, validate_draft
from reconciler.manifests.overlays import Draft, Values, Variables, build_draft, is_deletion, merge_drafts, read_values
from reconciler.manifests.positions import Problem
from reconciler.manifests.yaml_documents import Document, parse_yaml
from reconciler.resources.address import Address, find_document_address
from reconciler.resources.base import FieldProblem
from reconciler.resources.inventory import DeclaredResource
from reconciler.resources.workspace import Workspace

if TYPE_CHECKING:
    from pydantic import BaseModel

_TWICE = f"Keep one of the two; what differs in an environment belongs below {OVERLAYS}/"


class DraftCollector:
    """Merges overlays into manifests, and validates the merged documents.

    Call `add_overlays`, then `add_bases`, then `add_unmatched_overlays`.
    """

    def __init__(self, findings: Findings) -> None:
        self.desired: dict[Address, DeclaredResource] = {}
        self.places: dict[Address, tuple[Place, ...]] = {}
        self.declared: set[Address] = set()
        self.unread: dict[Address, tuple[tuple[Place, ...], tuple[str, ...]]] = {}
        """Address of an invalid manifest → its places and config keys."""
        self._findings = findings
        self._overlays: dict[Address, tuple[Draft, bool]] = {}
        self._first: dict[Address, Place] = {}
        self._specs: dict[str, BaseModel] = {}

    def add_overlays(self, drafts: Iterable[Draft]) -> None:
        """Store an environment's overlays until their bases are added."""
        for draft in drafts:
            complaints = list(find_header_complaints(draft.content))
            address = find_document_address(draft.content)
            if address is None or complaints:
                self._findings.is_whole = False
                self._validate(draft)  # Validation reports the errors of the draft's header.
                continue
            drops = is_deletion(draft.content, complaints)
            if address in self._overlays:
                other = self._overlays[address][0].places[0]
                message = f"the overlay already has {address}, at {other}"
                complaints.append(FieldProblem(message, "Put both into one document", ("metadata", "name")))
            self._findings.add_complaints(draft.places, complaints)
            self._overlays.setdefault(address, (draft, drops))

    def add_bases(self, drafts: Iterable[Draft]) -> None:
        """Merge base manifests with their overlays and validate them."""
        for draft in drafts:
            address = find_document_address(draft.content)
            if address is None:
                self._findings.is_whole = False
                self._validate(draft)
            elif not self._is_first(address, draft) or address not in self._overlays:
                self._validate(draft, address)
            else:
                override, drops = self._overlays.pop(address)
                if not drops:
                    self._validate(merge_drafts(draft, override), address)

    def add_unmatched_overlays(self) -> None:
        """Validate overlays without a base."""
        for address, (draft, drops) in self._overlays.items():
            if drops:
                message = f"{address} is dropped, and nothing declares it"
                complaint = FieldProblem(message, "Correct its name, or leave it out", ("metadata", "name"))
                self._findings.add_complaint(draft.places, complaint)
            else:
                self._validate(draft, address)
        self._overlays.clear()

    def _is_first(self, address: Address, draft: Draft) -> bool:
        place = draft.places[0]
        first = self._first.setdefault(address, place)
        if first is place:
            return True
        complaint = FieldProblem(f"{address} is declared already, at {first}", _TWICE, ("metadata", "name"))
        self._findings.add_complaint(draft.places, complaint)
        return False

    def _validate(self, draft: Draft, address: Address | None = None) -> None:
        if address is not None:
            self.declared.add(address)
        resource, complaints = validate_draft(draft, self._specs)
        if isinstance(resource, Workspace):
            message = f"a Workspace may only be in {WORKSPACE_FILE} at the top"
            complaints.append(
                FieldProblem(message, "Move it there; other workspaces have their own folders", ("kind",))
            )
        elif resource is not None:
            self.desired[resource.address] = DeclaredResource(resource, str(draft.places[-1]))
            self.places[resource.address] = draft.places
        elif address is not None:
            self.unread[address] = draft.places, _list_config_keys(draft.content)
        self._findings.add_complaints(draft.places, complaints)


def _list_config_keys(content: Any) -> tuple[str, ...]:
    spec = content.get("spec")
    configs = spec.get("configs") if isinstance(spec, dict) else None
    if not isinstance(configs, dict):
        return ()
    # `Substitution` reports keys that contain variables.
    return tuple(key for key in configs if isinstance(key, str) and "${" not in key)


VALUES_FILE = "values.yaml"


class WorkspaceFile(NamedTuple):
    """Content of `reconciler.yaml`. An invalid file sets all fields but `workspace`."""

    workspace: Workspace | None
    manifests: tuple[str, ...]
    apart: frozenset[Path]
    """Files and folders that the search for manifests skips."""
    values: Values


def read_workspace(folder: Path, overlay: Path | None, variables: Variables, findings: Findings) -> WorkspaceFile:
    """Read `reconciler.yaml` and the values of all variables."""
    document = _read_document(folder, findings)
    content = document.content if document is not None else None
    spec = content.get("spec") if isinstance(content, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    files = [folder / name for name in _list_strings(spec.get("values"))]
    if overlay is not None and (overlay / VALUES_FILE).exists():
        files.append(overlay / VALUES_FILE)
    values, problems = read_values(folder, files, variables, findings.read)
    findings.problems += problems
    workspace = _validate_workspace(build_draft(document, WORKSPACE_FILE, values), findings) if document else None
    manifests = (
        workspace.spec.manifests if workspace is not None else _list_strings(spec.get("manifests")) or ("manifests",)
    )
    apart = frozenset({folder / WORKSPACE_FILE, folder / OVERLAYS, *files})
    return WorkspaceFile(workspace, manifests, apart, values)


def _read_document(folder: Path, findings: Findings) -> Document | None:
    raw = findings.read(folder / WORKSPACE_FILE, WORKSPACE_FILE)
    if isinstance(raw, Problem):
        findings.add_unreadable(raw)
        return None
    parsed = parse_yaml(raw, WORKSPACE_FILE)
    findings.problems += parsed.problems
    if not parsed.documents and parsed.is_whole:
        hint = "It begins with `apiVersion: reconciler/v1` and `kind: Workspace`; `reconciler init` writes one"
        findings.problems.append(Problem(WORKSPACE_FILE, None, None, "", "declares no Workspace", hint))
    for document in parsed.documents[1:]:
        message = "holds one document, the Workspace, and this is another"
        hint = "Move it to its own file below spec.manifests"
        findings.problems.append(Problem(WORKSPACE_FILE, document.line, 1, "", message, hint))
    return parsed.documents[0] if parsed.documents else None


def _validate_workspace(draft: Draft, findings: Findings) -> Workspace | None:
    resource, complaints = validate_draft(draft)
    if resource is not None and not isinstance(resource, Workspace):
        hint = "Write `kind: Workspace` here, and manifests below spec.manifests"
        complaints.append(FieldProblem(f"is {resource.kind}, and this file declares the Workspace", hint, ("kind",)))
    findings.add_complaints(draft.places, complaints)
    return resource if isinstance(resource, Workspace) and not complaints else None


def _list_strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
