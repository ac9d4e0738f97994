"""What jobs counted, summed up over passes: a counter must go on where it was, whoever runs the next pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.resources.address import cluster_of

if TYPE_CHECKING:
    from reconciler.workflow.upkeep.outcomes import Upkeep

MIRROR_BYTES: Final = "cluster_link_mirror_topic_bytes"
"""Stored bytes that were copied into mirrors."""

Totals: TypeAlias = dict[tuple[str, str], float]
"""(name of what is counted, cluster) → how often, up to now."""


def counted(before: Totals, upkeep: Upkeep) -> Totals:
    """Return what was counted before, and in a pass. Pure."""
    totals = dict(before)
    for job in upkeep.jobs:
        for name, count in ({} if job.upkept is None else job.upkept.counts).items():
            place = name, job.cluster
            totals[place] = totals.get(place, 0) + count
    for one in upkeep.synced:
        place = MIRROR_BYTES, cluster_of(one.address) or ""
        totals[place] = totals.get(place, 0) + one.bytes
    return totals
