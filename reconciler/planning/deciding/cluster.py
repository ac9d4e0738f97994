"""The cluster itself: created where it is ours to make, adopted otherwise, its properties changed in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.actions import Change, Create, Reason
from reconciler.planning.deciding.converge import adopt, compare, update
from reconciler.planning.deciding.decision import Sides
from reconciler.planning.fields import OBJECT_STORAGE, fields_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Observed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.deciding.decision import Decision
    from reconciler.planning.deciding.differences import Differences
    from reconciler.planning.situation import Situation


def decide_cluster(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Decide about a cluster that is who it should be."""
    cluster = sides.wanted.resource
    if not isinstance(cluster, Cluster):
        return
    identity = situation.given.identities[cluster.metadata.name]
    if identity is None:
        decision.actions.append(
            Create(
                address=sides.address,
                after=cluster,
                reasons=(Reason.DECLARED,),
                source=sides.wanted.source,
                origins=sides.wanted.origins,
            )
        )
        return
    # Not every platform says more of itself than who it is.
    seen = sides.before or Observed(cluster)
    before = replace(seen, incarnation=identity.cluster_id)
    found = compare(sides, before, situation)
    decision.drift.extend(found.drift)
    found = replace(found, record_changes=(*found.record_changes, *_learnt(sides, before, found)))
    if sides.last is None:
        decision.actions.append(adopt(sides, before, found, Reason.ALREADY_EXISTS))
    elif found.record_changes or (found.is_stale and not found.changes):
        decision.actions.append(adopt(sides, before, found, Reason.RECORD_ONLY))
    if found.changes:
        decision.actions.append(update(sides, before, found))


def _learnt(sides: Sides, before: Observed, found: Differences) -> Iterator[Change]:
    """Yield what only the record has to learn of a cluster that is recorded: its id, where its storage is reached."""
    if sides.last is None:
        return
    if sides.last.incarnation is None:
        yield Change("incarnation", None, before.incarnation)
    was, want = (fields_of(one.resource).get(OBJECT_STORAGE) for one in (sides.last, sides.wanted))
    if was != want and all(change.path != OBJECT_STORAGE for change in found.changes):
        yield Change(OBJECT_STORAGE, was, want)
