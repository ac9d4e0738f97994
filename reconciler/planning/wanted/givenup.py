"""Clusters that a plan may do without: who fails over from a cluster needs nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.planning.wanted.commanded import commanded
from reconciler.resources.address import cluster_address
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.review import Review
    from reconciler.resources.inventory import Desired, Inventory, Record


def given_up(desired: Desired, recorded: Record, observed: Inventory) -> frozenset[str]:
    """Return the source clusters from which a mirror fails over, as the files declare it or a command has done it.

    `observed`: what could be read.
    """
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    declared_so = {
        link.spec.source for link in links if any(entry.state == "failed-over" for entry in link.spec.mirror_topics)
    }
    done = (found.mirror for found in commanded(desired, recorded, observed) if found.mirror.state == "failed-over")
    return frozenset(declared_so | {mirror.source_cluster for mirror in done})


def warnings_of_lost(review: Review) -> Iterator[Finding]:
    """Yield, once for each, the clusters that could not be read and are done without."""
    situation = review.situation
    for cluster, why in sorted(situation.given.lost.items()):
        wanted = situation.wanted.get(cluster_address(cluster))
        yield Finding(
            cluster_address(cluster),
            wanted.source if wanted is not None else None,
            f"cluster {cluster} cannot be read, and nothing on it is planned: {why}",
            "What fails over from it needs nothing of it. Plan again once it answers.",
        )
