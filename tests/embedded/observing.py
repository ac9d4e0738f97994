"""What of a cluster anybody can observe, read through its own interface, in the form `Model.seen` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.records.log import OffsetRange
from tests.embedded.model import Row
from tests.embedded.samples import rows_of

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.records.log import Isolation
    from tests.embedded.model import Seen

GROUPS = ("readers", "shop:readers")


def observe(cluster: EmbeddedCluster) -> Seen:
    """Read everything a cluster has."""
    topics = cluster.topics()
    groups = {
        group: {place: each.offset for place, each in cluster.groups.fetch(group).items()} for group in sorted(GROUPS)
    }
    return {
        "namespaces": cluster.namespaces(),
        "topics": {name: observe_topic(cluster, name) for name in topics},
        "groups": {group: offsets for group, offsets in groups.items() if offsets},
    }


def observe_topic(cluster: EmbeddedCluster, name: str) -> list[tuple[int, int, int, list[Row], list[Row]]]:
    """Read one topic, committed and uncommitted."""
    bounds = cluster.log(name).bounds()
    return [
        (
            each.start,
            each.stable,
            each.end,
            _rows(cluster, name, number, "read_committed"),
            _rows(cluster, name, number, "read_uncommitted"),
        )
        for number, each in sorted(bounds.items())
    ]


def _rows(cluster: EmbeddedCluster, name: str, partition: int, isolation: Isolation) -> list[Row]:
    log = cluster.log(name, isolation=isolation)
    return [
        Row(
            row["offset"],
            row["timestamp_ms"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows_of(log.read(partition, OffsetRange(0, 1 << 40)))
    ]
