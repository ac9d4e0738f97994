"""Reading a log of which the older part lies in object storage: the same bytes, wherever a record lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.records.log import OffsetRange
from tests.embedded.archiving import TIERED, archive, evict, tiered_cluster
from tests.embedded.samples import numbered, read, rows_of

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

TOPIC = "orders"
PART = 10


def filled(parts: int = 6, **made: Any) -> EmbeddedCluster:
    """Return a cluster with a tiered topic of a few parts, all of it local."""
    cluster = tiered_cluster(**made)
    cluster.create_topic(TOPIC, partitions=1, configs=TIERED)
    sink = cluster.sink(TOPIC)
    for base in range(0, parts * PART, PART):
        at = OffsetRange(base, base + PART)
        sink.publish([sink.stage(0, [numbered(base, PART)], at=at)])
    return cluster


@pytest.mark.fact("F-R-039", "F-K-041")
@pytest.mark.parametrize("local_start", [0, 10, 30, 60])
def test_every_offset_is_readable_after_local_eviction_the_same_bytes(local_start: int) -> None:
    cluster = filled()
    before = read(cluster.log(TOPIC))
    archive(cluster, TOPIC)
    evict(cluster, TOPIC, to=local_start)
    log = cluster.log(TOPIC)
    bounds = log.bounds()[0]
    assert (bounds.start, bounds.local_start, bounds.end) == (0, local_start, 60)
    assert read(log) == before == rows_of([numbered(0, 60)])
    for start, stop in [(0, 1), (5, 25), (29, 31), (25, 60), (59, 60)]:
        assert read(log, start=start, stop=stop) == before[start:stop]
