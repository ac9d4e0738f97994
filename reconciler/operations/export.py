"""`export`: manifests of a cluster's resources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.errors import PartialError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.manifests.files import build_label
from reconciler.manifests.models import translate_validation_error
from reconciler.operations.export_archives import Archives, describe_next_offsets, select_archives
from reconciler.operations.export_layout import (
    MIN_TOPICS,
    ClusterContents,
    FactoredLayout,
    OmittedResource,
    factor_layout,
    format_manifests,
    write_files,
    write_manifests,
)
from reconciler.operations.init import SCHEMA, add_git_and_editor_files, format_schema, format_workspace_file
from reconciler.operations.steps.observe import read_recorded_clusters
from reconciler.operations.steps.workspace import Site, Work, open_undeclared, open_work
from reconciler.planning.diff.mount_changes import RECOVERING
from reconciler.providers.protocol import Provider, Scope, require_archives
from reconciler.resources.address import Address, cluster_address, full_name_of
from reconciler.resources.cluster import BROKERS_PROVIDER, FLAT_SEPARATOR, Cluster
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.resources.inventory import Inventory


_WORKSPACE: Final = "reconciler.yaml"
MANIFESTS: Final = "manifests"
_FILES: Final = frozenset({"caFile", "certFile", "keyFile"})


def parse_cluster(
    name: str, servers: Sequence[str], security: Sequence[str], separator: str | None, *, cwd: Path, out: Path
) -> Cluster | None:
    """Return the Kafka cluster of the command line; `None` if it names no servers.

    `security` has texts `field=value`. Paths in options are relative to `cwd`, in the result to `out`.
    """
    if not servers:
        if security or separator:
            hint = "Add --bootstrap-server, or set it in the manifest of the Cluster."
            raise UsageError("options for the connection are only for a cluster that no manifest declares", hint=hint)
        return None
    fields = dict(_parse_field(text, cwd, out) for text in security)
    separator = separator or FLAT_SEPARATOR
    connection: dict[str, object] = {"bootstrapServers": list(servers), "namespaceSeparator": separator}
    if fields:
        connection["security"] = fields
    content = {"metadata": {"name": name}, "spec": {"provider": BROKERS_PROVIDER, BROKERS_PROVIDER: connection}}
    try:
        return Cluster.model_validate(content)
    except ValidationError as error:
        wrong = next(translate_validation_error(error, Cluster, content))
        where = ".".join(map(str, wrong.at[2:] or wrong.at[1:]))
        # The original error may contain a secret.
        raise UsageError(f"{where}: {wrong.message}", hint=wrong.hint) from None


def add_workspace_files(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Add a workspace's other files to manifests, unless `reconciler.yaml` exists."""
    below = {f"{MANIFESTS}/{name}": text for name, text in texts.items()}
    if (folder / _WORKSPACE).exists():
        return below
    named = sorted({f"{match[1]}:{match[2]}" for text in texts.values() for match in SECRET_REFERENCE.finditer(text)})
    return {_WORKSPACE: format_workspace_file(folder.resolve(), references=named), **below, SCHEMA: format_schema()}


def _parse_field(text: str, cwd: Path, out: Path) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{name!r} is not field=value", hint="For example --security protocol=SASL_SSL")
    if name in _FILES and not Path(value).is_absolute():
        value = os.path.relpath(cwd / value, out)
    return name, value


def warn_unread(invocation: Invocation, folder: Path, listed: Iterable[str], out: Path) -> None:
    """Warn if the workspace does not read the output folder."""
    written = out.resolve()
    read = any(written.is_relative_to((folder / name).resolve()) for name in listed)
    if written.is_relative_to(folder.resolve()) and not read:
        name = build_label(written, folder.resolve())
        invocation.warn(f"the workspace does not read {name}: add it to spec.manifests of reconciler.yaml")


_CLOUD_CLUSTER: Final = "lkc-"
"""Prefix of ids of Confluent Cloud's clusters."""
NO_POLICIES: Final[Mapping[str, TieringPolicy]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Exported and omitted resources of a cluster."""

    layout: FactoredLayout
    inventory: Inventory
    cluster_id: str
    left_out: tuple[OmittedResource, ...]


def read_cluster(
    cluster: Cluster, provider: Provider, at_least: int, *, policies: Mapping[str, TieringPolicy] = NO_POLICIES
) -> LiveCluster:
    """Read and arrange a cluster's resources, except internal ones. `at_least`, `policies`: see `factor_layout`."""
    name = cluster.metadata.name
    identity = provider.identify()
    if identity is None:
        raise RetryableError(
            f"cluster {name} does not exist", hint="From what its object storage has of it: --from-object-storage"
        )
    shown = {address: seen for address, seen in provider.observe(Scope()).items() if seen.hidden is None}
    inventory = {
        address: seen for address, seen in shown.items() if not seen.is_internal and address != cluster_address(name)
    }
    left_out = tuple(
        OmittedResource(address, UserError("it is still being recovered", hint="Export again when that is done."))
        for address, seen in sorted(inventory.items())
        if seen.state == RECOVERING
    )
    gone = {left.place for left in left_out}
    complete = {address: seen for address, seen in inventory.items() if address not in gone}
    made = factor_layout(_read_contents(cluster, provider, complete), policies=policies, at_least=at_least)
    unsaid = (*made.unsaid, *_find_hidden_resources(name, provider), *_find_cluster_links(cluster, identity.cluster_id))
    return LiveCluster(FactoredLayout(made.resources, unsaid), complete, identity.cluster_id, left_out)


def _read_contents(cluster: Cluster, provider: Provider, inventory: Inventory) -> ClusterContents:
    separator = cluster.spec.connection.find_separator()
    mirrors = [address for address in inventory if address.startswith("mirror/")]
    return ClusterContents(
        cluster=cluster.metadata.name,
        resources=[seen.resource for address, seen in inventory.items() if address not in mirrors],
        capabilities=provider.capabilities,
        separator=separator,
        bindings=provider.list_unplaced_rules(),
        taken=[full_name_of(address).replace(":", separator or ":") for address in mirrors],
    )


def _find_hidden_resources(name: str, provider: Provider) -> Iterator[OmittedResource]:
    capabilities = provider.capabilities
    address: Address = cluster_address(name)
    if not capabilities.acls and "acls" in capabilities.lacks:
        why = UserError(f"no access rules: {capabilities.lacks['acls']}", hint="Topics are exported without them.")
        yield OmittedResource(address, why)
    if capabilities.may_hide:
        why = UserError(
            f"topics that the principal may not describe are left out: {capabilities.lacks.get('may_hide', '')}",
            hint="Export with a principal that may describe all topics.",
        )
        yield OmittedResource(address, why)


def _find_cluster_links(cluster: Cluster, cluster_id: str) -> Iterator[OmittedResource]:
    if cluster.spec.provider == BROKERS_PROVIDER and cluster_id.startswith(_CLOUD_CLUSTER):
        why = UserError(
            f"no cluster links: {cluster_id} is a cluster of Confluent Cloud, whose links its brokers do not report",
            hint="Declare it with provider: confluent and its restEndpoint, and export it by its name.",
        )
        yield OmittedResource(cluster.address, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export."""

    out: Path
    is_archived: bool = False
    """Whether to export from object storage instead of the cluster."""
    cluster_id: str | None = None
    """Id of the archived cluster; `None` uses the declared or recorded one."""
    is_forced: bool = False
    bare: Cluster | None = None
    at_least: int = MIN_TOPICS


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Written files and omitted resources."""

    cluster: str
    files: tuple[Path, ...]
    addresses: tuple[Address, ...]
    archives: Archives
    left_out: tuple[OmittedResource, ...] = ()
    is_archived: bool = False
    unsaid: tuple[OmittedResource, ...] = ()
    now_ms: int = 0

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error if resources were omitted, or nothing was exported."""
        if self.left_out:
            count = len(self.left_out)
            return PartialError(f"{count} left out of the export", hint="Each has its reason above.")
        if not self.addresses:
            where = "object storage" if self.is_archived else f"cluster {self.cluster}"
            return UserError(f"{where} has nothing to export", hint="Nothing was written.")
        return None


def export(invocation: Invocation, select: Select, cluster: str, options: ExportOptions) -> ExportResult:
    """Write manifests of a cluster's resources, or of those in its object storage."""
    if options.cluster_id is not None and not options.is_archived:
        hint = "Add --from-object-storage, or leave --cluster-id out."
        raise UsageError("--cluster-id chooses among the clusters in object storage", hint=hint)
    if options.bare is not None:
        return _export_bare(open_undeclared(invocation, options.bare, is_reader=True), options.bare, options)
    work = open_work(invocation, select, is_reader=True)
    return _export_archived(work, cluster, options) if options.is_archived else _export_live(work, cluster, options)


def _export_archived(work: Work, cluster: str, options: ExportOptions) -> ExportResult:
    if work.invocation.principal is not None:
        raise UserError("only the super user may read what is in object storage", hint="Leave --principal out.")
    stored = require_archives(work.providers[cluster]).read_stored_cluster(
        options.cluster_id or _find_cluster_id(work, cluster)
    )
    if stored is None:
        message = f"{cluster_address(cluster)}: its platform stores no whole cluster in object storage"
        raise UserError(message, hint="Export the live cluster: leave --from-object-storage out.")
    archives = select_archives(work.clusters[cluster], stored.topics, stored.metadata)

    def describe_recovery(address: Address) -> str:
        if address in archives.empty:
            return "# It comes back empty: none of its records were in object storage.\n"
        recoverable = archives.recoveries.get(address)
        return (
            ""
            if recoverable is None
            else f"# Next offset: {describe_next_offsets(recoverable)}. Records from there on were not uploaded.\n"
        )

    files = write_manifests(archives.inventory, options.out, describe_recovery, is_forced=options.is_forced)
    if files:
        warn_unread(work.invocation, work.loaded.folder, work.loaded.workspace.spec.manifests, options.out)
    addresses = tuple(sorted(archives.inventory))
    now_ms = work.invocation.now_ms()
    return ExportResult(
        cluster, files, addresses, archives, archives.left_out, is_archived=True, unsaid=archives.unsaid, now_ms=now_ms
    )


def _find_cluster_id(work: Work, cluster: str) -> str | None:
    known = work.clusters[cluster].spec.cluster_id or read_recorded_clusters(work).get(cluster_address(cluster))
    if known is not None:
        return known
    try:
        identity = work.providers[cluster].identify()
    except ReconcilerError:
        return None
    return None if identity is None else identity.cluster_id


def _export_live(work: Work, cluster: str, options: ExportOptions) -> ExportResult:
    provider = work.providers[cluster]
    resources = (declared.resource for declared in work.loaded.desired.values())
    policies = {policy.metadata.name: policy for policy in resources if isinstance(policy, TieringPolicy)}
    live = read_cluster(work.clusters[cluster], provider, options.at_least, policies=policies)
    texts = format_manifests(live.layout.resources.values(), live.inventory)
    files = write_files(texts, options.out, is_forced=options.is_forced) if texts else ()
    if files:
        warn_unread(work.invocation, work.loaded.folder, work.loaded.workspace.spec.manifests, options.out)
    return _build_result(cluster, files, live, live.layout.resources)


def _export_bare(site: Site, cluster: Cluster, options: ExportOptions) -> ExportResult:
    live = read_cluster(cluster, site.providers[cluster.metadata.name], options.at_least)
    spec = cluster.spec.model_copy(update={"cluster_id": live.cluster_id})
    resources = {cluster.address: cluster.model_copy(update={"spec": spec}), **live.layout.resources}
    texts = add_workspace_files(format_manifests(resources.values(), live.inventory), options.out)
    files = write_files(texts, options.out, is_forced=options.is_forced)
    return _build_result(cluster.metadata.name, (*files, *add_git_and_editor_files(options.out)), live, resources)


def _build_result(
    cluster: str, files: tuple[Path, ...], live: LiveCluster, resources: Iterable[Address]
) -> ExportResult:
    return ExportResult(cluster, files, tuple(resources), Archives(), live.left_out, unsaid=live.layout.unsaid)
