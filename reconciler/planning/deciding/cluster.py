"""The cluster itself: created where it is ours to make, adopted otherwise, its properties changed in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.actions import Change, Create, Reason
from reconciler.planning.deciding.converge import Sides, adopt, compare, update
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Observed

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.situation import Situation


def decide_cluster(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about a cluster that is who it should be."""
    cluster = sides.wanted.resource
    if not isinstance(cluster, Cluster):
        return
    identity = situation.given.identities[cluster.metadata.name]
    if identity is None:
        decision.actions.append(
            Create(address=sides.address, after=cluster, reasons=(Reason.DECLARED,), source=sides.wanted.source)
        )
        return
    # Not every platform says more of itself than who it is.
    seen = sides.before or Observed(cluster)
    before = replace(seen, incarnation=identity.cluster_id)
    found = compare(sides, before, situation)
    decision.drift.extend(found.drift)
    if sides.last is not None and sides.last.incarnation is None:
        learnt = Change("incarnation", None, identity.cluster_id)
        found = replace(found, record_changes=(*found.record_changes, learnt))
    if sides.last is None:
        decision.actions.append(adopt(sides, before, found, Reason.ALREADY_EXISTS))
    elif found.record_changes or (found.is_stale and not found.changes):
        decision.actions.append(adopt(sides, before, found, Reason.RECORD_ONLY))
    if found.changes:
        decision.actions.append(update(sides, before, found))
