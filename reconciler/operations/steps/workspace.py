"""Open a workspace: manifests, state store, providers and selection."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, RetryableError, UsageError, UserError
from reconciler.manifests.load import LoadedWorkspace, load_clusters, load_manifests
from reconciler.manifests.overlays import Values
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import StoreSettings
from reconciler.objectstore.wrappers import wrap_read_only
from reconciler.operations.steps.invocation import (
    Invocation,
    Select,
    find_workspace_folder,
    load_files,
    load_workspace_file,
    read_variables,
)
from reconciler.operations.steps.trust import Trust, reject_plaintext
from reconciler.planning.checks.guards import find_lowered_guards, merge_base_guards
from reconciler.planning.plan import PlanFinding, Selection
from reconciler.planning.selection import build_exclude_pattern, read_source_file
from reconciler.providers.protocol import Edge, Provider
from reconciler.providers.registry import open_provider
from reconciler.providers.secrets import build_account
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
    split_name,
)
from reconciler.resources.cluster import FOLDER_PROVIDER, Cluster, LocationSpec
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.owners import ResourceOwner
from reconciler.resources.workspace import Guards, SparkSpec, Workspace
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.state.lockfile import Owner, read_lockfile
from reconciler.state.snapshots import read_snapshot, read_snapshot_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.inventory import DeclaredResource, Desired, Recorded


_ALLOWANCE: Final = re.compile(r"[a-z-]+:.+", re.DOTALL)
_ON_CLUSTER: Final = ("namespace", "topic", "mounting", "link", "mirror")


def _find_affected_files(
    invocation: Invocation, select: Select, loaded: LoadedWorkspace, changed: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the changed manifests, and files whose resources got other values; `None` for all files."""
    base = invocation.files_at(loaded.folder, select.changed_since or "")
    if base is None or not loaded.folder.resolve().is_relative_to(base.root):
        return None
    variables = read_variables(invocation, select)
    files = (base.map_path(file) if file.is_relative_to(base.root) else file for file in variables.files)
    try:
        before = load_manifests(
            base.map_path(loaded.folder.resolve()),
            environment=select.environment,
            variables=replace(variables, files=tuple(files)),
            within=base.files,
        ).desired
    except UserError:
        return None
    affected = {file for file in changed if not loaded.may_affect_all(file)}
    affected |= {
        read_source_file(declared.source)
        for address, declared in chain(before.items(), loaded.desired.items())
        if address not in before
        or address not in loaded.desired
        or before[address].resource != loaded.desired[address].resource
    }
    return tuple(sorted(affected))


def split_pair(option: str, text: str) -> tuple[str, str]:
    """Return (name, value) of `NAME=VALUE`."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{option} {text!r} is not NAME=VALUE", hint=f"Write it as {option} NAME=VALUE.")
    return name, value


def find_excluded_clusters(clusters: Iterable[str], excludes: Iterable[str]) -> frozenset[str]:
    """Return clusters that `excludes` cover completely, such as `*/east/*`."""
    patterns = tuple(excludes)
    return frozenset(
        cluster
        for cluster in clusters
        # No name contains NUL, so a pattern that matches NUL matches all names.
        if all(any(matches_pattern(pattern, f"{kind}/{cluster}/\0") for pattern in patterns) for kind in _ON_CLUSTER)
    )


def check_allowance(text: str) -> str:
    """Check the syntax of an `--allow` value."""
    if not _ALLOWANCE.fullmatch(text):
        raise UsageError(
            f"--allow {text!r} is not VERB:ADDR",
            hint="Copy it from the plan's last line, for example --allow delete:topic/west/shop:orders.",
        )
    return text


class Providers(Mapping[str, Provider]):
    """Providers by cluster name, opened on first use."""

    def __init__(
        self, clusters: Mapping[str, Cluster], edge: Edge, check: Callable[[Cluster], None] = lambda _cluster: None
    ) -> None:
        self._clusters = clusters
        self._check = check
        self._edge = replace(edge, clusters=clusters)
        self._opened: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Provider:
        with self._lock:
            if name not in self._opened:
                cluster = self._get_cluster(name)
                self._check(cluster)
                self._opened[name] = open_provider(cluster, self._edge)
            return self._opened[name]

    def __contains__(self, name: object) -> bool:
        return name in self._clusters

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._clusters))

    def __len__(self) -> int:
        return len(self._clusters)

    def _get_cluster(self, name: str) -> Cluster:
        try:
            return self._clusters[name]
        except KeyError:
            known = ", ".join(sorted(self._clusters)) or "none"
            raise UserError(
                f"there is no cluster {name!r} in this workspace", hint=f"Clusters here: {known}. Check the address."
            ) from None


@dataclass(frozen=True)
class Site:
    """Clusters, state and owner for a command, not contacted yet."""

    invocation: Invocation
    edge: Edge
    owner: Owner
    state_settings: StoreSettings
    clusters: Mapping[str, Cluster]
    spark: SparkSpec

    @cached_property
    def state(self) -> ObjectStore:
        """Store of the state, read-only for readers."""
        self._check_state()
        store = open_store(self.state_settings)
        return wrap_read_only(store, self.edge.now_ms) if self.edge.is_reader else store

    @property
    def desired(self) -> Desired:
        """Resources of the files; empty without files."""
        return {}

    @property
    def clusters_to_read(self) -> tuple[str, ...]:
        """Clusters that the command reads."""
        return tuple(sorted(self.clusters))

    @cached_property
    def providers(self) -> Providers:
        """Providers of the clusters."""
        return Providers(self.clusters, self.edge, self.check_trusted)

    def check_trusted(self, cluster: Cluster) -> None:
        """Accept a cluster that the command line names."""

    def _check_state(self) -> None:
        pass

    def make_owner(self, lineage: str) -> ResourceOwner:
        """Return this workspace as owner of resources."""
        return ResourceOwner.create(self.owner.workspace, self.owner.environment, lineage, self.state_settings.url)

    def find_relative_root(self, name: str) -> str | None:
        """Return an embedded cluster's root if it is a relative URL, or `None`."""
        root = self.clusters[name].spec.root
        url = "" if root is None else root.url
        return url if url.startswith("file://") and not url.startswith("file:///") else None

    def warn_about_local_state(self) -> None:
        """Warn a CI job whose local state disappears with the machine."""
        if self.edge.environ.get("CI") and self.state_settings.scheme == "file":
            self.invocation.warn(
                f"the state is a local folder ({self.state_settings.url}): the next pipeline run will not see it"
            )


@dataclass(frozen=True)
class Work(Site):
    """A loaded workspace."""

    select: Select
    loaded: LoadedWorkspace
    back_to: int | None = None
    unread: dict[str, RetryableError] = field(default_factory=dict)
    """Errors of the clusters that did not answer, and are left out from then on."""

    @property
    def completed_select(self) -> Select:
        """The selection, without the clusters that did not answer."""
        return replace(self.select, excludes=(*self.select.excludes, *map(build_exclude_pattern, sorted(self.unread))))

    def build_selection(self) -> Selection:
        """Return the selection for planning."""
        select = self.completed_select
        return Selection(
            targets=select.targets,
            excludes=select.excludes,
            labels=tuple(split_pair("-l", text) for text in select.labels),
            changed_files=self._changed_files,
            left_out=frozenset(self.unread),
            allow=tuple(check_allowance(text) for text in select.allow),
        )

    @cached_property
    def _changed_files(self) -> tuple[str, ...] | None:
        """Manifests that `--changed-since` selects; `None` for all. Reads git."""
        if self.select.changed_since is None:
            return None
        loaded, revision = self.loaded, self.select.changed_since
        changed = tuple(sorted(self.invocation.changed_files(loaded.folder, loaded.outside_paths, revision)))
        if any(map(loaded.may_affect_all, changed)):
            return _find_affected_files(self.invocation, self.select, loaded, changed)
        return changed

    @cached_property
    def trust(self) -> Trust:
        """Checks where secrets may be sent."""
        variables = read_variables(self.invocation, self.select)
        return Trust(self.invocation, self.select, variables, self.loaded, self._read_recorded_clusters)

    @cached_property
    def guards(self) -> Guards:
        """Effective guards. A pull request needs at least the approvers of its base."""
        with suppress(UserError):
            return merge_base_guards(self.loaded.workspace.spec.guards, self.trust.base_guards)
        return self.loaded.workspace.spec.guards

    def list_lowered_guards(self) -> tuple[PlanFinding, ...]:
        """Find guards that a pull request lowers, or that cannot be compared."""
        try:
            base = self.trust.base_guards
        except UserError as error:
            message = f"whether this change lowers guards.approvals is not known: {error.message}"
            return (PlanFinding(None, None, message, error.hint, concerns_approval=True),)
        return () if base is None else tuple(find_lowered_guards(self.loaded.workspace.spec.guards, base))

    def find_relative_root(self, name: str) -> None:
        """Return `None`, because roots are relative to this workspace."""

    def check_trusted(self, cluster: Cluster) -> None:
        """Reject a cluster that may not receive its secrets."""
        self.trust.check_cluster(cluster)

    def _check_state(self) -> None:
        self.trust.check_state()

    def _read_recorded_clusters(self) -> Mapping[str, Cluster]:
        try:
            snapshot = read_snapshot(self.state, owner=self.owner)
        except ReconcilerError:
            return {}
        record = {} if snapshot is None else snapshot.record
        resources = (recorded.resource for recorded in record.values())
        return {resource.metadata.name: resource for resource in resources if isinstance(resource, Cluster)}

    @property
    def desired(self) -> Desired:
        """Resources that the files declare."""
        return self.loaded.desired

    @property
    def folder(self) -> Path:
        """Folder of `reconciler.yaml`."""
        return self.loaded.folder

    @property
    def clusters_to_read(self) -> tuple[str, ...]:
        """Clusters to read, without completely excluded ones and those that did not answer."""
        return tuple(name for name in self._selected_clusters if name not in self.unread)

    @cached_property
    def _selected_clusters(self) -> tuple[str, ...]:
        skipped = find_excluded_clusters(self.clusters, self.select.excludes)
        return tuple(name for name in sorted(self.clusters) if name not in skipped)


@dataclass(frozen=True)
class StateSite(Site):
    """A workspace's state, with only `reconciler.yaml` of the files."""

    trust: Trust

    def _check_state(self) -> None:
        self.trust.check_state()


def open_work(invocation: Invocation, select: Select, *, is_reader: bool = False) -> Work:
    """Load the workspace. Contacts neither clusters nor state; `is_reader` makes both read-only."""
    loaded = load_files(invocation, select)
    if select.changed_since is not None:
        # A branch no longer differs once it is merged, so saved plans and runs store a commit.
        select = replace(select, changed_since=invocation.fork_point(loaded.folder, select.changed_since))
    declared = (item.resource for item in loaded.desired.values())
    return Work(
        invocation=invocation,
        edge=build_edge(invocation, loaded.folder, loaded.desired, is_reader=is_reader),
        owner=Owner(loaded.workspace.metadata.name, select.environment),
        state_settings=_build_state_settings(loaded.workspace, loaded.folder, select),
        clusters={item.metadata.name: item for item in declared if isinstance(item, Cluster)},
        spark=loaded.workspace.spec.spark,
        select=select,
        loaded=loaded,
    )


def open_state(invocation: Invocation, select: Select, *, is_reader: bool = False) -> Site:
    """Open only the state, even if manifests are invalid; read-only for `is_reader`."""
    workspace, folder = load_workspace_file(invocation, select), find_workspace_folder(invocation)
    alone = LoadedWorkspace(
        workspace=workspace,
        desired={},
        folder=folder,
        environment=select.environment,
        warnings=(),
        places={},
        values=Values({}),
    )
    return StateSite(
        invocation=invocation,
        edge=build_edge(invocation, folder, is_reader=is_reader),
        owner=Owner(workspace.metadata.name, select.environment),
        state_settings=_build_state_settings(workspace, folder, select),
        clusters={},
        spark=workspace.spec.spark,
        trust=Trust(invocation, select, read_variables(invocation, select), alone, dict),
    )


def _build_state_settings(workspace: Workspace, folder: Path, select: Select) -> StoreSettings:
    state = build_store_settings(workspace.spec.state, folder)
    return state.join_prefix(f"env/{select.environment}") if select.environment else state


def open_site(invocation: Invocation, state_url: str, *, is_reader: bool = False) -> Site:
    """Open a state and its recorded clusters without files; read-only for `is_reader`."""
    settings = StoreSettings.resolve(state_url, folder=invocation.cwd)
    lockfile_row = read_lockfile(open_store(settings))
    if lockfile_row is None:
        raise UserError(f"{settings.url} holds no state", hint="Name the place that `spec.state` names.")
    snapshot = read_snapshot_of(open_store(settings), lockfile_row.lockfile)
    recorded = (item.resource for item in snapshot.record.values())
    return Site(
        invocation=invocation,
        edge=build_edge(invocation, invocation.cwd, snapshot.record, is_reader=is_reader),
        owner=Owner(lockfile_row.lockfile.workspace, lockfile_row.lockfile.environment),
        state_settings=settings,
        clusters={item.metadata.name: item for item in recorded if isinstance(item, Cluster)},
        spark=SparkSpec(),
    )


def open_clusters_at(invocation: Invocation, places: Sequence[str]) -> Site:
    """Open clusters without workspace and state: embedded ones as `NAME=URL`, others as manifest files."""
    clusters: dict[str, Cluster] = {}
    for text in places:
        is_place = "=" in text and not text.endswith((".yaml", ".yml"))
        for cluster in (_parse_cluster(text),) if is_place else load_clusters(invocation.cwd / text):
            name = cluster.metadata.name
            if name in clusters:
                raise UsageError(f"--cluster {name} is given twice", hint="Give each cluster one location.")
            clusters[name] = cluster
    return open_undeclared(invocation, *clusters.values())


def open_undeclared(invocation: Invocation, *clusters: Cluster, is_reader: bool = False) -> Site:
    """Open undeclared clusters without a state."""
    for cluster in clusters:
        reject_plaintext(cluster, str(cluster.address))
    return Site(
        invocation=invocation,
        edge=build_edge(invocation, invocation.cwd, is_reader=is_reader),
        owner=Owner("", None),
        state_settings=StoreSettings("memory://nothing-is-recorded"),
        clusters={cluster.metadata.name: cluster for cluster in clusters},
        spark=SparkSpec(),
    )


def _parse_cluster(text: str) -> Cluster:
    name, _, url = text.partition("=")
    try:
        return Cluster.model_validate(
            {"metadata": {"name": name}, "spec": {"provider": FOLDER_PROVIDER, FOLDER_PROVIDER: {"root": {"url": url}}}}
        )
    except ValueError as error:
        message = f"{name}={url} does not give the location of an embedded cluster"
        hint = (
            "Write it as east=s3://bucket/clusters/east or east=file:///folder. "
            "For a Kafka cluster name the file of its manifest: --cluster FILE"
        )
        raise UserError(message, hint=hint) from error


def build_edge(
    invocation: Invocation,
    folder: Path,
    declared: Mapping[Address, DeclaredResource | Recorded] = MappingProxyType({}),
    *,
    is_reader: bool = False,
) -> Edge:
    """Return folder, clocks and names for providers."""
    return Edge(
        folder=folder,
        environ=invocation.environ,
        new_id=invocation.new_id,
        now_ms=invocation.now_ms,
        principal=invocation.principal,
        host=invocation.host,
        declared=frozenset((*declared, *_list_mirrored_topics(declared.values()))),
        is_reader=is_reader,
        warn=invocation.warn,
    )


def _list_mirrored_topics(items: Iterable[DeclaredResource | Recorded]) -> Iterator[Address]:
    for item in items:
        match item.resource:
            case MirrorLink() as link:
                for mirror in link.mirrors():
                    yield from (mirror.address, address_of("topic", mirror.source_cluster, mirror.source))
                yield from _list_filter_namespaces(link)
            case MirrorTopic() as mirror:
                yield address_of("topic", mirror.source_cluster, mirror.source)
            case _:
                pass


def _list_filter_namespaces(link: MirrorLink) -> Iterator[Address]:
    making = link.spec.auto_create
    for name_filter in () if making is None else making.filters:
        namespace = split_name(name_filter.name)[0]
        for cluster in (link.cluster, link.spec.source) if namespace else ():
            yield address_of("namespace", cluster, namespace)


def build_store_settings(location: LocationSpec, folder: Path) -> StoreSettings:
    """Return store settings. Relative folders start at `folder`."""
    return StoreSettings(
        location.url,
        location.region,
        location.endpoint,
        location.force_path_style,
        location.kms_key_id,
        account=build_account(location.account) if location.account else None,
    ).resolve_path(folder)


def parse_topic_address(text: str) -> Address:
    """Return the topic's address for a topic, mirror or mounting."""
    address = Address(text)
    if kind_of(address) not in {"topic", "mirror", "mounting"} or text.count("/") < 2 or not full_name_of(address):  # noqa: PLR2004 - kind/cluster/name
        raise UsageError(f"{text!r} is not the address of a topic", hint="Write it as topic/west/shop:eu:orders.")
    return address_of("topic", cluster_of(address) or "", full_name_of(address))


def get_address_provider(site: Site, address: Address) -> Provider:
    """Return the provider of an address's cluster."""
    return site.providers[cluster_of(address) or ""]


def list_possible_clusters(site: Site, texts: Iterable[str]) -> tuple[str, ...]:
    """Return clusters that the arguments may name, sorted."""
    meant: set[str] = set()
    for text in texts:
        cluster = cluster_of(Address(text)) or "*"
        meant |= set(site.clusters) if "*" in cluster else {cluster}
    for name in sorted(meant):
        site.providers[name]
    return tuple(sorted(meant))
