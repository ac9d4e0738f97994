"""Before anything is written: the cluster that answers is the one that is declared, and the one we applied to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.address import cluster_address
from reconciler.workflow.looking.observing import gone, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Site


def refuse_another_cluster(site: Site, name: str, snapshot: Snapshot | None) -> None:
    """Return if the cluster called `name` may be written to.

    Raises:
        UserError: Another one answers in its place.
        RetryableError: It is recorded, and nothing is there.
    """
    identity = site.providers[name].identify()
    recorded = snapshot.record.get(cluster_address(name)) if snapshot is not None else None
    if identity is None and recorded is not None:
        raise unreachable({name: gone()})
    if identity is not None:
        expected = site.clusters[name].spec.cluster_id, recorded.incarnation if recorded is not None else None
        refuse_stranger(name, identity.cluster_id, expected, consequence="Nothing was written. ")


def refuse_stranger(name: str, answers: str, expected: Iterable[str | None], *, consequence: str = "") -> None:
    """Return if the cluster that answers under a name is what it should be; `None` is whatever is there.

    Raises:
        UserError: Another one answers.
    """
    for wanted in expected:
        if wanted not in {None, answers}:
            raise UserError(
                f"cluster {name} should be {wanted}, but {answers} answers",
                hint=f"{consequence}Correct the connection; `reconciler plan` says more.",
            )
