"""`export`: manifests of what a cluster has."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.errors import PartialError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.manifests.files import label_of
from reconciler.manifests.models import complaints_of
from reconciler.operations.export_archives import Archives, archives_in, ends_text
from reconciler.operations.export_layout import (
    AT_LEAST,
    ClusterContents,
    Factored,
    LeftOut,
    factored,
    saved,
    texts_of,
    written,
)
from reconciler.operations.init import SCHEMA, ignored, schema_text, workspace_text
from reconciler.operations.steps.observe import recorded_clusters
from reconciler.operations.steps.workspace import Site, Work, open_bare, open_work
from reconciler.planning.diff.mount_changes import RECOVERING
from reconciler.providers.protocol import Provider, Scope, archives_of
from reconciler.resources.address import Address, cluster_address, full_name_of
from reconciler.resources.cluster import FLAT_SEPARATOR, OF_BROKERS, Cluster
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.resources.tiering_policy import TieringPolicy

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.resources.inventory import Inventory


# A cluster that no file declares yet: reached by what was typed, and written as the workspace that declares it.


_WORKSPACE: Final = "reconciler.yaml"
MANIFESTS: Final = "manifests"
_FILES: Final = frozenset({"caFile", "certFile", "keyFile"})


def bare_named(
    name: str, servers: Sequence[str], security: Sequence[str], separator: str | None, *, here: Path, out: Path
) -> Cluster | None:
    """Return the Kafka cluster that was typed; `None`: none was.

    `security` are fields of a Cluster's, `field=value`; files are named from `here`, and declared as seen from `out`.

    Raises:
        UsageError: It cannot be declared like that. A secret that is written out is one reason.
    """
    if not servers:
        if security or separator:
            hint = "Add --bootstrap-server, or say it in the manifest of the Cluster."
            raise UsageError("options for the connection are only for a cluster that no manifest declares", hint=hint)
        return None
    fields = dict(_field(each, here, out) for each in security)
    separator = separator or FLAT_SEPARATOR
    connection: dict[str, object] = {"bootstrapServers": list(servers), "namespaceSeparator": separator}
    if fields:
        connection["security"] = fields
    said = {"metadata": {"name": name}, "spec": {"provider": OF_BROKERS, OF_BROKERS: connection}}
    try:
        return Cluster.model_validate(said)
    except ValidationError as error:
        wrong = next(complaints_of(error, Cluster, said))
        where = ".".join(map(str, wrong.at[2:] or wrong.at[1:]))
        raise UsageError(f"{where}: {wrong.message}", hint=wrong.hint) from None  # It may hold the secret itself.


def in_workspace(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return files as a workspace has them; one that is there already stays as it is."""
    below = {f"{MANIFESTS}/{name}": text for name, text in texts.items()}
    if (folder / _WORKSPACE).exists():
        return below
    named = sorted({f"{found[1]}:{found[2]}" for text in texts.values() for found in SECRET_REFERENCE.finditer(text)})
    return {_WORKSPACE: workspace_text(folder.resolve(), references=named), **below, SCHEMA: schema_text()}


def _field(text: str, here: Path, out: Path) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{name!r} is not field=value", hint="For example --security protocol=SASL_SSL")
    if name in _FILES and not Path(value).is_absolute():
        value = os.path.relpath(here / value, out)
    return name, value


def tell_unread(invocation: Invocation, folder: Path, listed: Iterable[str], out: Path) -> None:
    """Warn that a workspace does not read what was written into a folder of it."""
    written = out.resolve()
    read = any(written.is_relative_to((folder / name).resolve()) for name in listed)
    if written.is_relative_to(folder.resolve()) and not read:
        name = label_of(written, folder.resolve())
        invocation.warn(f"the workspace does not read {name}: add it to spec.manifests of reconciler.yaml")


# What a cluster has now, as the resources that declare it.


NO_POLICIES: Final[Mapping[str, TieringPolicy]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Live:
    """What there is, factored; what it was made from; and what is left out until it is whole."""

    factored: Factored
    inventory: Inventory
    cluster_id: str
    left_out: tuple[LeftOut, ...]


def look(
    cluster: Cluster, provider: Provider, at_least: int, *, policies: Mapping[str, TieringPolicy] = NO_POLICIES
) -> Live:
    """Read a cluster and factor what it has; what the platform made for itself is left out.

    `policies` are declared already.

    Raises:
        RetryableError: It is not there, or cannot be reached.
    """
    name = cluster.metadata.name
    identity = provider.identify()
    if identity is None:
        raise RetryableError(
            f"cluster {name} is not there", hint="From what its object storage has of it: --from-object-storage"
        )
    shown = {address: found for address, found in provider.observe(Scope()).items() if found.hidden is None}
    inventory = {
        address: found for address, found in shown.items() if not found.is_internal and address != cluster_address(name)
    }
    left_out = tuple(
        LeftOut(address, UserError("it is still being recovered", hint="Export again when that is done."))
        for address, found in sorted(inventory.items())
        if found.state == RECOVERING
    )
    gone = {each.place for each in left_out}
    kept = {address: found for address, found in inventory.items() if address not in gone}
    made = factored(_found(cluster, provider, kept), policies=policies, at_least=at_least)
    unsaid = (*made.unsaid, *_unseen(name, provider))
    return Live(Factored(made.resources, unsaid), kept, identity.cluster_id, left_out)


def _found(cluster: Cluster, provider: Provider, inventory: Inventory) -> ClusterContents:
    separator = cluster.spec.connection.separator()
    mirrors = [address for address in inventory if address.startswith("mirror/")]
    return ClusterContents(
        cluster=cluster.metadata.name,
        resources=[found.resource for address, found in inventory.items() if address not in mirrors],
        capabilities=provider.capabilities,
        separator=separator,
        bindings=provider.unplaced(),
        taken=[full_name_of(address).replace(":", separator or ":") for address in mirrors],
    )


def _unseen(name: str, provider: Provider) -> Iterator[LeftOut]:
    """Yield what may be there and was not shown to the process that acts."""
    capabilities = provider.capabilities
    address: Address = cluster_address(name)
    if not capabilities.acls and "acls" in capabilities.lacks:
        why = UserError(f"no access rules: {capabilities.lacks['acls']}", hint="Topics are exported without them.")
        yield LeftOut(address, why)
    if capabilities.may_hide:
        why = UserError(
            f"topics that the principal may not describe are left out: {capabilities.lacks.get('may_hide', '')}",
            hint="Export with a principal that may describe all topics.",
        )
        yield LeftOut(address, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What is exported, and where to."""

    out: Path
    is_archived: bool = False
    """From object storage alone: the cluster is not asked for anything."""
    cluster_id: str | None = None
    """Of what is archived, what this cluster made; `None`: the declared one, as far as its id is known."""
    is_forced: bool = False
    """Also into a folder that holds something; nothing there is overwritten."""
    bare: Cluster | None = None
    """A cluster that no file declares: a whole workspace is written, which does."""
    at_least: int = AT_LEAST
    """Topics that make a prefix of flat names a namespace; 0: no number does."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and what was not."""

    cluster: str
    files: tuple[Path, ...]
    addresses: tuple[Address, ...]
    archives: Archives
    left_out: tuple[LeftOut, ...] = ()
    is_archived: bool = False
    unsaid: tuple[LeftOut, ...] = ()
    """What is there and has no words in manifests: it stays as it is."""
    now_ms: int = 0
    """When object storage was looked at: how old what it has is."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """Return what the exit code says: something was left out, or nothing was there."""
        if self.left_out:
            count = len(self.left_out)
            return PartialError(f"{count} left out of the export", hint="The reason is shown for each of them.")
        if not self.addresses:
            where = "object storage" if self.is_archived else f"cluster {self.cluster}"
            return UserError(f"{where} has nothing to export", hint="Nothing was written.")
        return None


def export(invocation: Invocation, select: Select, cluster: str, options: ExportOptions) -> Exported:
    """Write manifests of all that a cluster has, or of what can be recovered from its object storage.

    Raises:
        UserError: The cluster or its object storage cannot be read, or the folder holds something.
    """
    if options.cluster_id is not None and not options.is_archived:
        hint = "Add --from-object-storage, or leave --cluster-id out."
        raise UsageError("--cluster-id chooses among what lies in object storage", hint=hint)
    if options.bare is not None:
        return _bare(open_bare(invocation, options.bare, is_reader=True), options.bare, options)
    work = open_work(invocation, select, is_reader=True)
    return _archived(work, cluster, options) if options.is_archived else _live(work, cluster, options)


def _archived(work: Work, cluster: str, options: ExportOptions) -> Exported:
    if work.invocation.principal is not None:
        raise UserError("what lies in object storage is the super user's to read", hint="Leave --principal out.")
    stored = archives_of(work.providers[cluster]).cluster(options.cluster_id or _own_id(work, cluster))
    if stored is None:
        message = f"{cluster_address(cluster)}: its platform stores no whole cluster in object storage"
        raise UserError(message, hint="Export the live cluster: leave --from-object-storage out.")
    archives = archives_in(work.clusters[cluster], stored.topics, stored.metadata)

    def above(address: Address) -> str:
        if address in archives.empty:
            return "# It comes back empty: none of its records were in object storage.\n"
        found = archives.found.get(address)
        return "" if found is None else f"# Next offset: {ends_text(found)}. Records from there on were not uploaded.\n"

    files = written(archives.inventory, options.out, above, is_forced=options.is_forced)
    if files:
        tell_unread(work.invocation, work.loaded.folder, work.loaded.workspace.spec.manifests, options.out)
    addresses = tuple(sorted(archives.inventory))
    now_ms = work.invocation.now_ms()
    return Exported(
        cluster, files, addresses, archives, archives.left_out, is_archived=True, unsaid=archives.unsaid, now_ms=now_ms
    )


def _own_id(work: Work, cluster: str) -> str | None:
    """Return the id of a cluster that may be lost: as declared, recorded, or as its root says it."""
    known = work.clusters[cluster].spec.cluster_id or recorded_clusters(work).get(cluster_address(cluster))
    if known is not None:
        return known
    try:
        identity = work.providers[cluster].identify()
    except ReconcilerError:  # That root may be why what it left behind is exported.
        return None
    return None if identity is None else identity.cluster_id


def _live(work: Work, cluster: str, options: ExportOptions) -> Exported:
    provider = work.providers[cluster]  # First: it says which clusters there are.
    resources = (declared.resource for declared in work.loaded.desired.values())
    policies = {each.metadata.name: each for each in resources if isinstance(each, TieringPolicy)}
    live = look(work.clusters[cluster], provider, options.at_least, policies=policies)
    texts = texts_of(live.factored.resources.values(), live.inventory)
    files = saved(texts, options.out, is_forced=options.is_forced) if texts else ()
    if files:
        tell_unread(work.invocation, work.loaded.folder, work.loaded.workspace.spec.manifests, options.out)
    return _exported(cluster, files, live, live.factored.resources)


def _bare(site: Site, cluster: Cluster, options: ExportOptions) -> Exported:
    """Write a workspace that declares the cluster, too: with its id, so that no other is ever taken for it."""
    live = look(cluster, site.providers[cluster.metadata.name], options.at_least)
    spec = cluster.spec.model_copy(update={"cluster_id": live.cluster_id})
    resources = {cluster.address: cluster.model_copy(update={"spec": spec}), **live.factored.resources}
    texts = in_workspace(texts_of(resources.values(), live.inventory), options.out)
    files = saved(texts, options.out, is_forced=options.is_forced)
    return _exported(cluster.metadata.name, (*files, *ignored(options.out)), live, resources)


def _exported(cluster: str, files: tuple[Path, ...], live: Live, resources: Iterable[Address]) -> Exported:
    return Exported(cluster, files, tuple(resources), Archives(), live.left_out, unsaid=live.factored.unsaid)
