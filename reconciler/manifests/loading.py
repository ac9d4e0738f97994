"""From a folder of YAML to what is desired: every problem of every file in one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.manifests.documents import parse
from reconciler.manifests.files import WORKSPACE_FILE, find_workspace, label_of, manifest_files, read_bounded
from reconciler.manifests.findings import Findings, Place
from reconciler.manifests.identities import identify
from reconciler.manifests.overlays import is_deletion, merge, overlay_folder
from reconciler.manifests.problems import ManifestError, Problem
from reconciler.manifests.reading import header_complaints, null_complaints, read
from reconciler.manifests.references import check_references
from reconciler.manifests.substitution import Substitution
from reconciler.manifests.variables import FROM_COMMAND_LINE, Values, Variables
from reconciler.manifests.workspacefile import WorkspaceFile, read_workspace
from reconciler.resources.base import Complaint
from reconciler.resources.inventory import Declared
from reconciler.resources.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.manifests import positions
    from reconciler.manifests.documents import Document
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired

__all__ = ["Loaded", "Variables", "find_workspace", "load", "load_workspace"]

ADVICE = "Mend them and run `reconciler validate`"


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


def load(folder: Path, *, environment: str | None, variables: Variables) -> Loaded:
    """Read and check everything a workspace declares. Secrets stay references.

    Raises:
        ManifestError: Something is wrong; carries every problem of every file.
        UserError: There is no such environment.
    """
    folder = folder.resolve()
    overlay = overlay_folder(folder, environment) if environment is not None else None
    findings = Findings(folder)
    read_first = read_workspace(folder, overlay, variables, findings)
    loader = _Loader(folder, read_first.values, findings)
    if overlay is not None:
        loader.read_overlays(overlay)
    loader.read_base(read_first)
    loader.add_new_of_overlays()
    if loader.is_whole:
        check_references(loader.desired, loader.places, findings)
    for name in read_first.values.unused(FROM_COMMAND_LINE):
        message = f"the variable {name} is used nowhere"
        findings.warnings.append(Problem("--var", None, None, name, message, "Check its name"))
    if findings.problems or read_first.workspace is None:
        raise ManifestError(findings.problems, hint=ADVICE)
    return Loaded(
        workspace=read_first.workspace,
        desired=loader.desired,
        folder=folder,
        environment=environment,
        warnings=tuple(findings.warnings),
        places=loader.places,
        values=read_first.values,
    )


def load_workspace(folder: Path, *, environment: str | None, variables: Variables) -> Workspace:
    """Read `reconciler.yaml` alone: for what needs the state and no manifest.

    Raises:
        ManifestError: Something is wrong with it.
        UserError: There is no such environment.
    """
    folder = folder.resolve()
    overlay = overlay_folder(folder, environment) if environment is not None else None
    findings = Findings(folder)
    workspace = read_workspace(folder, overlay, variables, findings).workspace
    if findings.problems or workspace is None:
        raise ManifestError(findings.problems, hint=ADVICE)
    return workspace


@dataclass(frozen=True, slots=True)
class _Overlay:
    """A document of an overlay, waiting for its base."""

    content: dict[str, Any]
    place: Place
    has_null: bool
    drops: bool
    secrets: Sequence[positions.Path]


@dataclass
class _Loader:
    """Reads file by file, so that at no time more than one file's values are held beside the resources."""

    folder: Path
    values: Values
    findings: Findings
    desired: dict[Address, Declared] = field(default_factory=dict)
    places: dict[Address, tuple[Place, ...]] = field(default_factory=dict)
    is_whole: bool = True
    """Every file was read to its end and every document has an address: only then absence means something."""
    overlays: dict[Address, _Overlay] = field(default_factory=dict)
    seen: dict[Address, Place] = field(default_factory=dict)

    def read_overlays(self, overlay: Path) -> None:
        """Read what an environment says differently; it is merged when its base is read."""
        apart = frozenset({overlay / "values.yaml"})
        found = manifest_files(self.folder, [label_of(overlay, self.folder)], apart=apart, may_be_empty=True)
        self.findings.problems += found.problems
        self.findings.warnings += found.warnings
        for document, place, has_reference in self._documents(found.files):
            self._keep_overlay(document, place, has_reference=has_reference)

    def read_base(self, workspace: WorkspaceFile) -> None:
        """Read every manifest, merge what the environment adds, and validate."""
        found = manifest_files(self.folder, workspace.manifests, apart=workspace.apart)
        self.findings.problems += found.problems
        self.findings.warnings += found.warnings
        self.is_whole &= not found.problems
        for document, place, has_reference in self._documents(found.files):
            content, secrets = document.content, ()
            if has_reference:
                content, secrets = self._substituted(content, place)
            address = identify(content)
            if address is None:
                self.is_whole = False
            elif self._is_new(address, place):
                if (over := self.overlays.pop(address, None)) is not None:
                    self._merge(
                        address, _Overlay(content, place, document.has_null, drops=False, secrets=secrets), over
                    )
                    continue
            self._validate(content, (place,), secrets, has_null=document.has_null)

    def add_new_of_overlays(self) -> None:
        """Add the addresses that only the environment has."""
        for address, over in self.overlays.items():
            if over.drops:
                complaint = Complaint(
                    f"{address} is dropped, and nothing declares it", "Correct its name, or leave it out", ("metadata",)
                )
                self.findings.complain((over.place,), complaint)
            elif self._is_new(address, over.place):
                self._validate(over.content, (over.place,), over.secrets, has_null=over.has_null)

    def _documents(self, files: Sequence[Path]) -> Iterator[tuple[Document, Place, bool]]:
        """Yield the documents of files, and whether they may hold a `${…}`."""
        for file in files:
            label = label_of(file, self.folder)
            raw = read_bounded(file, label)
            if isinstance(raw, Problem):
                self.findings.problems.append(raw)
                self.is_whole = False
                continue
            parsed = parse(raw, label)
            self.findings.problems += parsed.problems
            self.is_whole &= parsed.is_whole
            has_reference = b"${" in raw
            for document in parsed.documents:
                yield document, Place(label, document.index, document.line), has_reference

    def _substituted(self, content: Any, place: Place) -> tuple[Any, Sequence[positions.Path]]:
        substitution = Substitution(self.values)
        done = substitution.of(content)
        self.findings.complain_all((place,), substitution.complaints)
        return done, substitution.secrets

    def _is_new(self, address: Address, place: Place) -> bool:
        first = self.seen.setdefault(address, place)
        if first is place:
            return True
        hint = "Keep one of the two; what an environment says differently belongs into overlays/ENV/"
        complaint = Complaint(f"{address} is declared already, at {first}", hint, ("metadata", "name"))
        self.findings.complain((place,), complaint)
        return False

    def _keep_overlay(self, document: Document, place: Place, *, has_reference: bool) -> None:
        content, secrets = document.content, ()
        if has_reference:
            content, secrets = self._substituted(content, place)
        complaints = list(header_complaints(content))
        address = identify(content)
        if address is None or complaints:
            # The model knows best which name is missing.
            self._validate(content, (place,), secrets, has_null=False)
            self.is_whole = False
            return
        over = _Overlay(content, place, document.has_null, is_deletion(content, complaints), secrets)
        self.findings.complain_all((place,), complaints)
        if (first := self.overlays.setdefault(address, over)) is not over:
            complaint = Complaint(
                f"the overlay says something about {address} already, at {first.place}",
                "Put both into one document",
                ("metadata", "name"),
            )
            self.findings.complain((place,), complaint)

    def _merge(self, address: Address, base: _Overlay, over: _Overlay) -> None:
        if over.drops:
            return
        complaints: list[Complaint] = []
        content = merge(base.content, over.content, complaints)
        self.findings.complain_all((over.place,), complaints)
        places = (over.place, base.place)
        self._validate(content, places, (*base.secrets, *over.secrets), has_null=base.has_null or over.has_null)
        del address

    def _validate(
        self, content: Any, places: tuple[Place, ...], secrets: Sequence[positions.Path], *, has_null: bool
    ) -> None:
        nulls = list(null_complaints(content)) if has_null else []
        resource, complaints = read(content, secrets=secrets)
        if isinstance(resource, Workspace):
            hint = f"One workspace has one {WORKSPACE_FILE}"
            complaints = [Complaint(f"a Workspace stands only in {WORKSPACE_FILE} at its top", hint, ("kind",))]
        said = {complaint.at for complaint in nulls}
        complaints = [*nulls, *(complaint for complaint in complaints if complaint.at not in said)]
        if complaints:
            self.findings.complain_all(places, complaints)
        elif resource is not None and not isinstance(resource, Workspace):
            address = resource.address
            self.desired[address] = Declared(resource, str(places[-1]))
            self.places[address] = places
