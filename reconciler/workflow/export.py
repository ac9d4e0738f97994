"""`export`: manifests of what is there, from a live cluster or from object storage alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import PartialError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.planning.deciding.recovered import RECOVERING
from reconciler.providers.base import Scope
from reconciler.resources.address import cluster_address
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.exporting.archives import Archives, LeftOut, archives_in, ends_text
from reconciler.workflow.exporting.writing import written
from reconciler.workflow.looking.overviews import recorded_clusters

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Work


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


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and what was not."""

    cluster: str
    files: tuple[Path, ...]
    addresses: tuple[Address, ...]
    archives: Archives
    left_out: tuple[LeftOut, ...] = ()
    is_archived: bool = False

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
    provider = work.providers[cluster]
    if provider.identify() is None:
        raise RetryableError(
            f"cluster {cluster} is not there", hint="From what its object storage has of it: --from-object-storage"
        )
    inventory = {
        address: found
        for address, found in provider.observe(Scope()).items()
        if found.hidden is None and not found.is_internal and address != cluster_address(cluster)
    }
    left_out = tuple(
        LeftOut(address, UserError("it is still being recovered", hint="Export again when that is done."))
        for address, found in sorted(inventory.items())
        if found.state == RECOVERING
    )
    gone = {each.place for each in left_out}
    kept = {address: found for address, found in inventory.items() if address not in gone}
    files = written(kept, options.out, lambda _: "", is_forced=options.is_forced)
    declared = tuple(address for address in sorted(kept) if not address.startswith("mirror/"))
    return Exported(cluster, files, declared, Archives(), left_out)
