"""What a topic is, as all its readers see it: what must not change by travelling between clusters."""

from __future__ import annotations

from typing import Any

from reconciler.embedded.catalog.tiering_state import find_tiering
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.samples import read


def seen(bucket: Bucket, full_name: str = CLICKS, cluster: str = "west") -> dict[str, Any]:
    """Return everything about a topic that a reader, or who looks at it, can see."""
    opened = bucket.cluster(cluster)
    topic, log = opened.topics()[full_name], opened.log(full_name)
    tiering = find_tiering(opened.catalog.read(), full_name, opened.cluster_id)
    assert tiering is not None
    bounds = log.read_bounds()
    return {
        "partitions": topic.partitions,
        "replication": topic.replication_factor,
        "configs": {key: each.value for key, each in opened.effective_configs(full_name).items()},
        "location": str(tiering.location),
        "uploads": tiering.uploads,
        "serves": tiering.serves,
        "policy": tiering.policy,
        "targets": tiering.targets,
        "bounds": {number: (each.start, each.end, each.compacted_to) for number, each in bounds.items()},
        "rows": {number: read(log, number) for number in bounds},
    }
