"""Load a workspace's files, and find where values are declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.manifests.drafts import VALUES_FILE, DraftCollector, WorkspaceFile, read_workspace
from reconciler.manifests.files import (
    OVERLAYS,
    WORKSPACE_FILE,
    Findings,
    Place,
    build_label,
    find_manifests,
    read_bounded,
)
from reconciler.manifests.overlays import (
    FROM_COMMAND_LINE,
    Substitution,
    Values,
    Variables,
    find_overlay_folder,
    read_drafts,
)
from reconciler.manifests.positions import FieldPath, ManifestError, Problem, format_path
from reconciler.manifests.references import check_links, check_mirrors, check_references, check_shared_connections
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired
    from reconciler.resources.workspace import Workspace


_ADVICE: Final = "Correct them and run `reconciler validate`"
_SHOWN: Final = 10


@dataclass(frozen=True)
class LoadedWorkspace:
    """A valid workspace in one environment."""

    workspace: Workspace
    desired: Desired
    folder: Path
    environment: str | None
    warnings: tuple[Problem, ...]
    places: Mapping[Address, tuple[Place, ...]]
    values: Values

    def may_affect_all(self, file: str) -> bool:
        """Return whether a file affects other files' documents: the workspace file, values or an overlay."""
        values = map(self._resolve_path, (*self.workspace.spec.values, *self.values.origins))
        is_overlay = self.environment is not None and file.startswith(f"{OVERLAYS}/{self.environment}/")
        return file == WORKSPACE_FILE or self._resolve_path(file) in values or is_overlay

    @property
    def outside_paths(self) -> tuple[Path, ...]:
        """Sorted paths that the workspace reads outside its folder."""
        spec = self.workspace.spec
        places = set(map(self._resolve_path, (*spec.manifests, *spec.values, *self.values.origins)))
        return tuple(sorted(place for place in places if not place.is_relative_to(self.folder)))

    def _resolve_path(self, name: str) -> Path:
        return Path(normpath(self.folder / name))


def load_manifests(
    folder: Path,
    *,
    environment: str | None,
    variables: Variables,
    within: Path | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> LoadedWorkspace:
    """Read and check a workspace's files, without resolving secrets.

    Files outside `within` are rejected. `tell` receives progress texts.

    Raises:
        ManifestError: The manifests have problems.
        UserError: The environment does not exist.
    """
    folder, overlay, findings = _prepare_load(folder, environment, variables, within)
    findings.tell = tell
    file = read_workspace(folder, overlay, variables, findings)
    collector = _collect_drafts(folder, overlay, file, findings)
    if findings.is_whole:
        check_references(collector, findings)
        check_mirrors(collector, findings)
        check_links(collector, findings)
        check_shared_connections(collector, folder, findings)
    for name in file.values.list_unused(FROM_COMMAND_LINE):
        message = f"the variable {name} is used nowhere"
        findings.warnings.append(Problem(FROM_COMMAND_LINE, None, None, name, message, "Check its name"))
    return LoadedWorkspace(
        workspace=_require_valid(file.workspace, findings),
        desired=collector.desired,
        folder=folder,
        environment=environment,
        warnings=tuple(findings.warnings),
        places=collector.places,
        values=file.values,
    )


def load_workspace(
    folder: Path, *, environment: str | None, variables: Variables, within: Path | None = None
) -> Workspace:
    """Read only `reconciler.yaml`. Raises the errors of `load_manifests`."""
    folder, overlay, findings = _prepare_load(folder, environment, variables, within)
    return _require_valid(read_workspace(folder, overlay, variables, findings).workspace, findings)


def load_clusters(file: Path) -> tuple[Cluster, ...]:
    """Read a file's Clusters without workspace and variables."""
    findings = Findings(file.parent)
    collector = DraftCollector(findings)
    collector.add_bases(read_drafts([file], file.parent, Values({}), findings))
    if findings.problems:
        raise ManifestError(findings.problems, hint=f"Correct {file.name}.")
    resources = (declared.resource for declared in collector.desired.values())
    clusters = tuple(resource for resource in resources if isinstance(resource, Cluster))
    if not clusters:
        raise UserError(f"{file.name} declares no Cluster", hint="Write a document with kind: Cluster into it.")
    return clusters


def _prepare_load(
    folder: Path, environment: str | None, variables: Variables, within: Path | None
) -> tuple[Path, Path | None, Findings]:
    folder = folder.resolve()
    overlay = find_overlay_folder(folder, environment) if environment is not None else None
    return folder, overlay, Findings(folder, within=within, typed=variables.files)


def _collect_drafts(folder: Path, overlay: Path | None, file: WorkspaceFile, findings: Findings) -> DraftCollector:
    collector = DraftCollector(findings)
    if overlay is not None:
        apart = frozenset({overlay / VALUES_FILE})
        manifests = find_manifests(
            folder, [build_label(overlay, folder)], apart=apart, may_be_empty=True, within=findings.within
        )
        findings.add_search(manifests)
        collector.add_overlays(read_drafts(manifests.files, folder, file.values, findings))
    manifests = find_manifests(folder, file.manifests, apart=file.apart, within=findings.within)
    findings.add_search(manifests)
    collector.add_bases(read_drafts(manifests.files, folder, file.values, findings))
    collector.add_unmatched_overlays()
    return collector


def _require_valid(workspace: Workspace | None, findings: Findings) -> Workspace:
    if findings.problems or workspace is None:
        raise ManifestError(
            findings.problems, hint=_ADVICE, excerpts=findings.read_excerpts(findings.problems[:_SHOWN])
        )
    return workspace


def find_field_origins(loaded: LoadedWorkspace, address: Address) -> Mapping[str, str]:
    """Return where fields are declared: `spec.partitions` → `manifests/topics.yaml:12`.

    A variable is added: `… (var.partitions of values.yaml)`.
    """
    places, within = _find_declaration(loaded, address)
    origins: dict[FieldPath, str] = {}
    findings = Findings(loaded.folder)
    for place in reversed(places):  # The overlay is first in `places`, and its values replace those of the base.
        content = _read_document_content(loaded, place)
        substitution = Substitution(loaded.values)
        substitution.substitute(content)
        for path, value in _list_leaves(content):
            for replaced in [known for known in origins if known[: len(path)] == path]:
                del origins[replaced]
            if value is not None:
                used = substitution.used.get(path)
                origins[path] = findings.format_location((place,), path) + (f" ({used})" if used else "")
    return {
        format_path(path[len(within) :]): origin
        for path, origin in sorted(origins.items(), key=lambda item: list(map(str, item[0])))
        if path[: len(within)] == within
    }


def _find_declaration(loaded: LoadedWorkspace, address: Address) -> tuple[tuple[Place, ...], FieldPath]:
    if address in loaded.places:
        return loaded.places[address], ()
    for link_address, declared in loaded.desired.items():
        if isinstance(declared.resource, MirrorLink):
            for position, mirror in enumerate(declared.resource.mirrors()):
                if mirror.address == address:
                    return loaded.places[link_address], ("spec", "mirrorTopics", position)
    return (), ()


def _read_document_content(loaded: LoadedWorkspace, place: Place) -> Any:
    raw = read_bounded(loaded.folder / place.file, place.file)
    if isinstance(raw, Problem):
        return None
    documents = parse_yaml(raw, place.file).documents
    return documents[place.number].content if place.number < len(documents) else None


def _list_leaves(content: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    match content:
        case dict():
            for key, value in content.items():
                yield from _list_leaves(value, (*path, key))
        case list():
            yield path, None
            for index, value in enumerate(content):
                yield from _list_leaves(value, (*path, index))
        case _:
            yield path, content
