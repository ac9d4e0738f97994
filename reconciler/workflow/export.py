"""`export`: manifests of what is there, from a live cluster or from object storage alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import PartialError, ReconcilerError, UsageError, UserError
from reconciler.resources.address import cluster_address
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.workflow.beginning.opening import open_bare, open_work
from reconciler.workflow.exporting.archives import Archives, LeftOut, archives_in, ends_text
from reconciler.workflow.exporting.bare import in_workspace
from reconciler.workflow.exporting.files import texts_of
from reconciler.workflow.exporting.live import look
from reconciler.workflow.exporting.prefixes import AT_LEAST
from reconciler.workflow.exporting.writing import saved, written
from reconciler.workflow.init import ignored
from reconciler.workflow.looking.overviews import recorded_clusters

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reconciler.resources.address import Address
    from reconciler.resources.cluster import Cluster
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site, Work
    from reconciler.workflow.exporting.live import Live


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

    @property
    def verdict(self) -> ReconcilerError | None:
        """Return what the exit code says: something was left out, or nothing was there."""
        if self.left_out:
            count = len(self.left_out)
            return PartialError(f"{count} left out of the export", hint="Why is told for each of them.")
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
    archives = archives_in(cluster, work.providers[cluster].archived(options.cluster_id or _own_id(work, cluster)))

    def above(address: Address) -> str:
        found = archives.found.get(address)
        return "" if found is None else f"# Next offset: {ends_text(found)}. Records from there on were not uploaded.\n"

    files = written(archives.inventory, options.out, above, is_forced=options.is_forced)
    addresses = tuple(sorted(archives.inventory))
    return Exported(cluster, files, addresses, archives, archives.left_out, is_archived=True)


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
