"""`import`: manifests from the files of other tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.errors import PartialError, ReconcilerError, UsageError, UserError
from reconciler.importers import jikkou, julie, kafka_gitops, strimzi, topicctl
from reconciler.importers.base import (
    YAML,
    Document,
    ImportedCluster,
    ImportedLink,
    NotImported,
    SourcePlace,
    SourceReading,
    TargetCluster,
    list_files_below,
    read_documents,
)
from reconciler.importers.julie import import_julie
from reconciler.importers.resources import ClusterResources, ImportedResources, compose_resources
from reconciler.importers.terraform import import_terraform, is_state
from reconciler.manifests.files import build_label, find_manifests, find_workspace
from reconciler.operations.export import add_workspace_files, warn_unread
from reconciler.operations.export_layout import (
    ClusterContents,
    FactoredLayout,
    factor_layout,
    format_manifests,
    format_resource,
    write_files,
)
from reconciler.operations.init import add_git_and_editor_files
from reconciler.operations.steps.invocation import (
    Invocation,
    Select,
    find_workspace_folder,
    load_files,
    load_workspace_file,
)
from reconciler.planning.resolve.acting_configs import Inheritance
from reconciler.resources.acls import OPERATIONS, AccessBinding, expand_namespace_rules
from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of
from reconciler.resources.cluster import BROKERS_PROVIDER, FLAT_SEPARATOR, Cluster
from reconciler.resources.configs import format_value
from reconciler.resources.inventory import AccessControl, Capabilities, DeclaredResource, Resource
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.manifests.load import LoadedWorkspace


class Tool(NamedTuple):
    """Functions that recognize and read a tool's YAML documents."""

    is_own_document: Callable[[Any], bool]
    read: Callable[[tuple[Document, ...], SourceReading], None]


TERRAFORM: Final = ("terraform", "terraform-state")
JULIE: Final = "julie"
GITOPS: Final = "kafka-gitops"
_YAML_TOOLS: Final[dict[str, Tool]] = {
    "topicctl": Tool(topicctl.is_own_document, topicctl.import_documents),
    "jikkou": Tool(jikkou.is_own_document, jikkou.import_documents),
    GITOPS: Tool(kafka_gitops.is_own_document, kafka_gitops.import_documents),
    "strimzi": Tool(strimzi.is_own_document, strimzi.import_documents),
}
_CLAIMS: Final[dict[str, Callable[[Any], bool]]] = {
    **{name: tool.is_own_document for name, tool in _YAML_TOOLS.items()},
    JULIE: julie.is_own_document,
}


def read_files(tool: str, path: Path, cwd: Path) -> SourceReading:
    """Read a tool's files below a path."""
    files = list_files_below(path)
    reading = SourceReading()
    if tool in TERRAFORM:
        is_any = import_terraform(path, files, cwd, reading)
    else:
        is_any = _read_yaml(tool, path, files, cwd, reading)
    if not is_any:
        raise _no_files_error(tool, path, files, cwd)
    return reading


def _read_yaml(tool: str, path: Path, files: tuple[Path, ...], cwd: Path, reading: SourceReading) -> bool:
    suffixes = (*YAML, ".json") if tool == JULIE else YAML
    chosen = [file for file in files if file.suffix in suffixes or file == path]
    documents = read_documents(chosen, cwd)
    is_own_document = _CLAIMS[tool]
    own = tuple(document for document in documents if is_own_document(document.content))
    if tool == GITOPS and not path.is_dir():
        own += _read_settings_files(own, cwd)
    reading.files = sorted({document.file for document in own})
    reading.unread = sorted({build_label(file, cwd) for file in chosen} - set(reading.files))
    if tool == JULIE:
        import_julie(own, [file for file in files if file.suffix == ".properties"], cwd, reading)
    else:
        _YAML_TOOLS[tool].read(own, reading)
    return bool(own)


def _read_settings_files(documents: tuple[Document, ...], cwd: Path) -> tuple[Document, ...]:
    named: list[Path] = []
    for document in documents:
        settings = document.content.get("settings")
        files = settings.get("files") if isinstance(settings, dict) else None
        for name in files.values() if isinstance(files, dict) else ():
            if isinstance(name, str) and (file := document.path.parent / name) not in named:
                named.append(file)
    documents_read = read_documents(named, cwd)
    return tuple(document for document in documents_read if kafka_gitops.is_own_document(document.content))


def _no_files_error(tool: str, path: Path, files: tuple[Path, ...], cwd: Path) -> UserError:
    other_tools = {name: count for name, count in _count_files(files, cwd).items() if count and name != tool}
    message = f"there is no file of {tool}'s in {build_label(path, cwd)}"
    if other_tools:
        named = ", ".join(f"{name} ({pluralize(count, 'file', grouping='')})" for name, count in other_tools.items())
        first = max(other_tools, key=lambda name: other_tools[name])
        return UserError(f"{message}, but of {named}", hint=f"Read those with --from {first}")
    known = ", ".join(("terraform", *sorted(_CLAIMS)))
    return UserError(message, hint=f"Name the folder that holds them. Read are those of {known}.")


def _count_files(files: tuple[Path, ...], cwd: Path) -> dict[str, int]:
    counts = dict.fromkeys(("terraform", *sorted(_CLAIMS)), 0)
    counts["terraform"] = sum(map(is_state, files))
    for file in files:
        if file.suffix in YAML:
            for name in _find_claiming_tools(file, cwd):
                counts[name] += 1
    return counts


def _find_claiming_tools(file: Path, cwd: Path) -> list[str]:
    try:
        documents = read_documents([file], cwd)
    except UserError:
        return []
    return [
        name
        for name, is_own_document in _CLAIMS.items()
        if any(is_own_document(document.content) for document in documents)
    ]


_SET_IT: Final = "Set it at the topic; `default` is what the brokers have."
_STAYS: Final = "It stays on the cluster as it is."


@dataclass(slots=True)
class FactoredImport:
    """Imported resources, their positions in source files, and skipped fields."""

    resources: dict[Address, Resource] = field(default_factory=dict)
    places: dict[Address, SourcePlace] = field(default_factory=dict)
    lost: list[NotImported] = field(default_factory=list)


def factor_imported(
    flat: Mapping[str, ClusterResources],
    targets: Iterable[TargetCluster],
    policies: Mapping[str, TieringPolicy],
    at_least: int,
) -> FactoredImport:
    """Arrange imported resources by cluster. `policies` exist."""
    gathered = FactoredImport()
    taken = dict(policies)
    by_name = {target.name: target for target in targets}
    for target in by_name.values():
        contents = ClusterContents(
            cluster=target.name,
            resources=[*flat[target.name].topics.values(), *_list_namespaces(target)],
            capabilities=_assume_capabilities(target),
            separator=target.separator,
            bindings=sorted(flat[target.name].bindings),
            may_share=not _list_namespaces(target),
        )
        inherited = _InheritedConfigs(target, policies)
        made = factor_layout(contents, policies=taken, at_least=at_least)
        for address, resource in made.resources.items():
            _add_resource(gathered, address, resource, target, flat[target.name])
            if isinstance(resource, Topic) and address in gathered.resources:
                gathered.lost += inherited.find_inherited(resource, flat[target.name])
            if isinstance(resource, TieringPolicy):
                taken[resource.metadata.name] = resource
        gathered.lost += _report_inexpressible(made, flat[target.name], target)
    for name in by_name:
        for link, imported in flat[name].links:
            _add_link(gathered, link, imported, by_name)
    return gathered


def _add_link(
    gathered: FactoredImport, link: MirrorLink, imported: ImportedLink, targets: Mapping[str, TargetCluster]
) -> None:
    """Add a link with the names that its source topics have in the manifests."""
    declared = targets[link.cluster].declared.get(link.address)
    if declared is not None:
        why = f"{link.address} is declared already, at {declared.source}"
        gathered.lost.append(NotImported(imported.place, imported.subject, "", why, "Keep one of the two."))
        return
    source, entries = targets[link.spec.source], []
    names = {
        full_name_of(address).replace(":", source.separator): full_name_of(address)
        for address in (*source.declared, *gathered.resources)
        if kind_of(address) == "topic" and cluster_of(address) == source.name
    }
    for entry in link.spec.mirror_topics:
        name = names.get(entry.source, entry.source)
        if link.spec.prefix and ":" in name:
            why = f"the link's prefix would stand after the namespace of {name}, and its mirror has it in front"
            gathered.lost.append(NotImported(imported.place, imported.subject, entry.source, why, is_expressible=False))
        else:
            entries.append(entry.model_copy(update={"source": name}))
    spec = link.spec.model_copy(update={"mirror_topics": tuple(entries)})
    gathered.resources[link.address] = link.model_copy(update={"spec": spec})
    gathered.places[link.address] = imported.place


def _report_inexpressible(made: FactoredLayout, flat: ClusterResources, target: TargetCluster) -> Iterator[NotImported]:
    rules = {str(binding): place for binding, place in flat.bindings.items()}
    for left in made.unsaid:
        name = full_name_of(Address(left.place)).replace(":", target.separator)
        place = rules.get(left.place) or flat.places.get(name)
        if place is not None:
            subject, key = (left.place, "") if left.place in rules else (f"topic {name}", "acls")
            yield NotImported(place, subject, key, left.error.message, _STAYS, is_expressible=False)


def _add_resource(
    gathered: FactoredImport, address: Address, resource: Resource, target: TargetCluster, flat: ClusterResources
) -> None:
    name = full_name_of(address).replace(":", target.separator)
    place = flat.places.get(name) if kind_of(address) == "topic" else None
    declared = target.declared.get(address)
    if declared is None:
        gathered.resources[address] = resource
        if place is not None:
            gathered.places[address] = place
    elif place is not None:
        why = f"{address} is declared already, at {declared.source}"
        gathered.lost.append(NotImported(place, f"topic {name}", "", why, "Keep one of the two."))
    elif isinstance(resource, Namespace) and isinstance(declared.resource, Namespace):
        declared_bindings = {*_list_bindings(declared.resource, target)}
        why = f"{address} is declared already, at {declared.source}, without this rule"
        for binding in _list_bindings(resource, target):
            if binding not in declared_bindings and (place := flat.bindings.get(binding)) is not None:
                gathered.lost.append(NotImported(place, str(binding), "", why, "Add it there."))


def _list_bindings(namespace: Namespace, target: TargetCluster) -> Iterator[AccessBinding]:
    prefix = namespace.metadata.name.replace(":", target.separator) + target.separator
    return expand_namespace_rules(prefix, namespace.spec.acls)


class _InheritedConfigs:
    def __init__(self, target: TargetCluster, policies: Mapping[str, TieringPolicy]) -> None:
        self._target = target
        known = {policy.address: DeclaredResource(policy, "") for policy in policies.values()}
        self._inheritance = Inheritance({**known, **target.declared}, {})
        self._assume_capabilities = replace(_assume_capabilities(target), inherits_configs=False)

    def find_inherited(self, topic: Topic, flat: ClusterResources) -> Iterator[NotImported]:
        name = topic.full_name.replace(":", self._target.separator)
        own = flat.topics[name].spec.configs
        for key, (value, origin) in sorted(self._inheritance.above(topic, self._assume_capabilities).items()):
            if key not in own:
                at = self._target.declared.get(Address(origin))
                where = f"{origin}, at {at.source}" if at is not None else origin
                why = f"is set in no file, and the topic gets {format_value(key, value, KAFKA_CONFIGS)} from {where}"
                yield NotImported(flat.places[name], f"topic {name}", key, why, _SET_IT)


def _list_namespaces(target: TargetCluster) -> list[Namespace]:
    resources = (declared.resource for declared in target.declared.values())
    return [resource for resource in resources if isinstance(resource, Namespace)]


def _assume_capabilities(target: TargetCluster) -> Capabilities:
    configs = target.catalog or {}
    if target.has_namespaces:
        return Capabilities(platform=target.provider, tiering=True, acls=True, inherits_configs=True, configs=configs)
    return Capabilities(
        platform=target.provider,
        configs=configs,
        tiering=True,
        tiering_words="kip-405" if target.provider == BROKERS_PROVIDER else "directions",
        acls=True,
        access=AccessControl(operations=OPERATIONS, hosts_are_addresses=True),
    )


_UNNAMED: Final = BROKERS_PROVIDER
_INVALID_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TargetWorkspace:
    """The workspace that receives the manifests."""

    folder: Path | None = None
    manifests: Sequence[str] = ()
    targets: Mapping[str, TargetCluster] = field(default_factory=dict)
    policies: Mapping[str, TieringPolicy] = field(default_factory=dict)


def read_target_workspace(invocation: Invocation, select: Select, out: Path) -> TargetWorkspace:
    """Return the named workspace, or the nearest one above `out` or the current folder."""
    folder = _find_folder(invocation, out)
    if folder is None:
        return TargetWorkspace()
    within = replace(invocation, workspace=folder)
    listed = load_workspace_file(within, select).spec.manifests
    limit = invocation.read_limit(folder)
    if not find_manifests(folder, listed, apart=frozenset(), may_be_empty=True, within=limit).files:
        return TargetWorkspace(folder, listed)
    loaded = load_files(within, select)
    resources = (declared.resource for declared in loaded.desired.values())
    policies = {policy.metadata.name: policy for policy in resources if isinstance(policy, TieringPolicy)}
    return TargetWorkspace(folder, listed, {target.name: target for target in _list_declared_targets(loaded)}, policies)


def choose_targets(
    reading: SourceReading, around: TargetWorkspace, options: Iterable[str], separator: str | None
) -> dict[str, TargetCluster]:
    """Map cluster names in source files to clusters of the workspace."""
    theirs = _list_cluster_names(reading)
    wanted = _parse_clusters(options, theirs)
    several = [name for name in theirs if name]
    # An empty name means the only named cluster, unless the files declare an unnamed one.
    meant = several[0] if len(several) == 1 and "" not in {cluster.name for cluster in reading.clusters} else ""
    is_only = len({name or meant for name in theirs}) == 1
    targets: dict[str, TargetCluster] = {}
    owners: dict[str, str] = {}
    for name in theirs:
        ours = wanted.get(name or meant) or _match_cluster(name or meant, around, is_only=is_only)
        owner = owners.setdefault(ours, name or meant)
        if owner != (name or meant) and not {owner, name} <= wanted.keys():
            one, other = (quote(f"{cluster_name or _UNNAMED}=") for cluster_name in (owner, name))
            hint = f"Name them: --cluster {one}NAME --cluster {other}OTHER"
            raise UsageError(f"two clusters of the files would get the same name, {ours}", hint=hint)
        undeclared = TargetCluster(name=ours, provider=reading.platforms.get(name, BROKERS_PROVIDER))
        targets[name] = _apply_separator(around.targets.get(ours, undeclared), separator)
    return targets


def _find_folder(invocation: Invocation, out: Path) -> Path | None:
    if invocation.workspace is not None:
        return find_workspace_folder(invocation)
    for start in (out, invocation.cwd):
        try:
            return find_workspace(start)
        except UserError:
            continue
    return None


def _list_declared_targets(loaded: LoadedWorkspace) -> Iterable[TargetCluster]:
    for declared in loaded.desired.values():
        cluster = declared.resource
        if isinstance(cluster, Cluster):
            separator = cluster.spec.connection.find_separator()
            yield TargetCluster(
                name=cluster.metadata.name,
                separator=separator or FLAT_SEPARATOR,
                has_namespaces=separator is None,
                provider=cluster.spec.provider,
                is_declared=True,
                identity=cluster.spec.connection.build_identity(),
                declared={
                    address: item
                    for address, item in loaded.desired.items()
                    if cluster_of(address) == cluster.metadata.name
                },
            )


def _list_cluster_names(reading: SourceReading) -> list[str]:
    clusters = {cluster.name for cluster in reading.clusters}
    used = {topic.cluster for topic in reading.topics} | {rule.cluster for rule in reading.rules}
    linked = {cluster for link in reading.links.values() for cluster in (link.cluster, link.source)}
    return sorted(clusters | used | linked)


def _parse_clusters(options: Iterable[str], theirs: list[str]) -> dict[str, str]:
    several = [name for name in theirs if name]
    wanted: dict[str, str] = {}
    for text in options:
        left, sign, right = text.rpartition("=")
        if not sign and len(several) > 1:
            example = f"--cluster {several[0]}={text}"
            raise UsageError(
                f"the files contain the clusters {', '.join(several)}", hint=f"Name one of them: {example}"
            )
        left = "" if left == _UNNAMED and left not in theirs and "" in theirs else left
        if sign and left not in theirs:
            hint = f"They contain {', '.join(several)}." if several else f"They name none: --cluster {right}"
            raise UsageError(f"no cluster {left!r} is in these files", hint=hint)
        wanted[left if sign else (several or theirs or [""])[0]] = right
    return wanted


def _match_cluster(theirs: str, around: TargetWorkspace, *, is_only: bool) -> str:
    if theirs in around.targets:
        return theirs
    if same := next((target.name for target in around.targets.values() if theirs in target.identity), None):
        return same
    real = [target.name for target in around.targets.values() if not target.has_namespaces]
    if is_only and len(real) == 1:
        return real[0]
    return _INVALID_CHARACTERS.sub("-", theirs).strip("-._") or _UNNAMED


def _apply_separator(target: TargetCluster, separator: str | None) -> TargetCluster:
    if separator is None or separator == target.separator:
        return target
    if target.is_declared and not target.has_namespaces:
        hint = "Leave --namespace-separator out, or change namespaceSeparator there."
        raise UsageError(f"cluster {target.name} is declared with the separator {target.separator!r}", hint=hint)
    return replace(target, separator=separator)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import."""

    tool: str
    path: Path
    out: Path
    clusters: tuple[str, ...] = ()
    """Clusters of the workspace: `NAME`, or `NAME_IN_SOURCE=NAME`."""
    separator: str | None = None
    """Separator instead of `:` in topic names; `None` uses the declared one, or a dot."""
    at_least: int = 0
    """Number of topics that make a prefix a namespace; with 0, only access rules do."""
    bootstrap_servers: tuple[str, ...] = ()
    """Brokers as `HOST:PORT` or `NAME=HOST:PORT`, which make the folder a workspace."""
    is_workspace: bool = False
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """A cluster that the written manifests refer to."""

    name: str
    is_declared: bool
    manifest: str | None
    """Cluster manifest with fields from the source files."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Written files, and what was not imported."""

    tool: str
    path: str
    read: tuple[str, ...]
    unread: tuple[str, ...]
    """Files that belong to other tools."""
    files: tuple[Path, ...]
    addresses: tuple[Address, ...]
    places: Mapping[Address, SourcePlace]
    clusters: tuple[ClusterNote, ...]
    lost: tuple[NotImported, ...]

    @property
    def left_out(self) -> tuple[NotImported, ...]:
        """Skipped resources, importable from corrected files."""
        return tuple(lost for lost in self.lost if lost.is_expressible)

    @property
    def unsaid(self) -> tuple[NotImported, ...]:
        """Settings that manifests cannot express."""
        return tuple(lost for lost in self.lost if not lost.is_expressible)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error if resources were skipped, or nothing was imported."""
        if not self.addresses:
            where = f"{self.tool}'s files in {self.path}"
            if self.left_out:
                message = f"all resources that {where} declare were left out"
                return UserError(message, hint="Nothing was written. Each has its reason above.")
            return UserError(f"{where} have nothing to import", hint="Nothing was written.")
        if self.left_out:
            return PartialError(f"{len(self.left_out)} left out of the import", hint="Each has its reason above.")
        return None


def import_files(invocation: Invocation, select: Select, options: ImportOptions) -> ImportResult:
    """Write manifests of resources in another tool's files."""
    path, out = invocation.cwd / options.path, invocation.cwd / options.out
    is_workspace = options.is_workspace or bool(options.bootstrap_servers)
    reading = read_files(options.tool, path, invocation.cwd)
    around = TargetWorkspace() if is_workspace else read_target_workspace(invocation, select, out)
    targets = choose_targets(reading, around, options.clusters, options.separator)
    reading.clusters = _apply_addresses(options, reading, targets)
    composed = compose_resources(reading, targets)
    gathered = factor_imported(composed.flat, targets.values(), around.policies, options.at_least)
    if is_workspace and gathered.resources:
        _check_brokers_known(composed, targets)
    files = _write_files(composed, gathered, out, is_workspace=is_workspace, is_forced=options.is_forced)
    if files and around.folder is not None:
        warn_unread(invocation, around.folder, around.manifests, out)
    lost = sorted((*composed.lost, *gathered.lost), key=lambda item: (item.place.file, item.place.line or 0))
    return ImportResult(
        tool=options.tool,
        path=build_label(path, invocation.cwd),
        read=tuple(reading.files),
        unread=tuple(reading.unread),
        files=files,
        addresses=tuple(sorted(gathered.resources)),
        places=gathered.places,
        clusters=tuple(_build_notes(composed, targets, is_workspace=is_workspace)),
        lost=tuple(lost),
    )


def _write_files(
    composed: ImportedResources, gathered: FactoredImport, out: Path, *, is_workspace: bool, is_forced: bool
) -> tuple[Path, ...]:
    if not gathered.resources:
        return ()
    clusters = composed.clusters.values() if is_workspace else ()
    texts = format_manifests([*clusters, *gathered.resources.values()], {})
    if not is_workspace:
        return write_files(texts, out, is_forced=is_forced)
    files = write_files(add_workspace_files(texts, out), out, is_forced=is_forced)
    return (*files, *add_git_and_editor_files(out))


def _apply_addresses(
    options: ImportOptions, reading: SourceReading, targets: Mapping[str, TargetCluster]
) -> list[ImportedCluster]:
    if not targets:
        return []
    theirs = {target.name: name for name, target in targets.items()}
    names = {targets[cluster.name].name for cluster in reading.clusters}
    servers_by_cluster = _parse_addresses(
        options.bootstrap_servers, targets, sorted(theirs.keys() - names) or sorted(theirs)
    )
    place = SourcePlace("--bootstrap-server")
    more = [
        ImportedCluster(name=theirs[name], place=place, bootstrap_servers=servers)
        for name, servers in servers_by_cluster.items()
        if name not in names
    ]
    reached = (
        replace(
            cluster, bootstrap_servers=servers_by_cluster.get(targets[cluster.name].name, cluster.bootstrap_servers)
        )
        for cluster in reading.clusters
    )
    return [*reached, *more]


def _parse_addresses(
    typed: Iterable[str], targets: Mapping[str, TargetCluster], unnamed: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    known = {target.name: target.name for target in targets.values()}
    known |= {theirs: target.name for theirs, target in targets.items() if theirs}
    servers: dict[str, tuple[str, ...]] = {}
    for text in typed:
        name, sign, address = text.rpartition("=")
        if not sign and len(unnamed) > 1:
            hint = f"For each of them: --bootstrap-server {unnamed[0]}={address}"
            raise UsageError(f"there are several clusters: {', '.join(unnamed)}", hint=hint)
        if sign and name not in known:
            raise UsageError(f"no cluster {name!r} is in these files", hint=f"They contain {', '.join(sorted(known))}.")
        ours = known[name] if sign else unnamed[0]
        servers[ours] = (*servers.get(ours, ()), address)
    return servers


def _check_brokers_known(composed: ImportedResources, targets: Mapping[str, TargetCluster]) -> None:
    missing = sorted({target.name for target in targets.values()} - composed.clusters.keys())
    for target in targets.values():
        if target.name in missing and target.provider != BROKERS_PROVIDER:
            message = f"cluster {target.name} runs on {target.provider}, and the files do not say how to connect to it"
            raise UserError(
                message, hint="Declare it in a workspace and import there, without --init and --bootstrap-server."
            )
    if missing:
        is_only = len({target.name for target in targets.values()}) == 1
        options = " ".join(f"--bootstrap-server {'' if is_only else f'{name}='}HOST:PORT" for name in missing)
        hint = f"Add {options}; or leave --init out, and declare the cluster yourself."
        named = f"cluster {missing[0]}" if len(missing) == 1 else f"clusters {', '.join(missing)}"
        raise UserError(f"the files do not name the brokers of {named}", hint=hint)


def _build_notes(
    composed: ImportedResources, targets: Mapping[str, TargetCluster], *, is_workspace: bool
) -> list[ClusterNote]:
    texts = {name: format_resource(cluster, {}) for name, cluster in composed.clusters.items()}
    ours = {target.name: target for target in targets.values()}
    return [ClusterNote(name, is_workspace or ours[name].is_declared, texts.get(name)) for name in sorted(ours)]
