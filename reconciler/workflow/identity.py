"""Before anything is written: the cluster that answers is the one that is declared, and the one we applied to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.address import cluster_address

if TYPE_CHECKING:
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.opening import Site


def refuse_another_cluster(site: Site, name: str, snapshot: Snapshot | None) -> None:
    """Return if the cluster called `name` may be written to.

    Raises:
        UserError: Another one answers in its place.
    """
    identity = site.providers[name].identify()
    recorded = snapshot.record.get(cluster_address(name)) if snapshot is not None else None
    for expected in (site.clusters[name].spec.cluster_id, recorded.incarnation if recorded is not None else None):
        if identity is not None and expected is not None and identity.cluster_id != expected:
            raise UserError(
                f"cluster {name} should be {expected}, but {identity.cluster_id} answers",
                hint="Nothing was written. Correct the connection; `reconciler plan` says more.",
            )
