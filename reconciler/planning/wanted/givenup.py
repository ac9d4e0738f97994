"""Clusters that a plan may do without: who fails over from a cluster needs nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.resources.address import cluster_address
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Desired


def given_up(desired: Desired) -> frozenset[str]:
    """Return the source clusters from which the files declare a mirror to fail over."""
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    return frozenset(
        link.spec.source for link in links if any(entry.state == "failed-over" for entry in link.spec.mirror_topics)
    )


def warnings_of_lost(situation: Situation) -> Iterator[Finding]:
    """Yield, once for each, the clusters that could not be read and are done without."""
    for cluster, why in sorted(situation.given.lost.items()):
        wanted = situation.wanted.get(cluster_address(cluster))
        yield Finding(
            cluster_address(cluster),
            wanted.source if wanted is not None else None,
            f"cluster {cluster} cannot be read, and nothing on it is planned: {why}",
            "What fails over from it needs nothing of it. Plan again once it answers.",
        )
