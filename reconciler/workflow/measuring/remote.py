"""Metrics of object storage, in Redpanda's names with our prefix in place of `redpanda_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.address import full_name_of
from reconciler.resources.vitals import COUNTED, LEVELS
from reconciler.workflow.measuring.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.resources.vitals import Vitals
    from reconciler.workflow.measuring.totals import Totals
    from reconciler.workflow.upkeep.outcomes import JobOutcome

REMOTE: Final = "cloud_storage_"
_OF_TOPICS: Final = (
    ("bytes", "bytes", "Bytes of the topic in object storage."),
    ("segments", "segments", "Segments of the topic in object storage."),
    ("pending_deletion", "segments_pending_deletion", "Segments that are marked and not deleted yet."),
    ("log_bytes", "cloud_log_size", "Bytes of the whole log, what lies in both tiers counted once."),
    ("pending_bytes", "pending_bytes", "Bytes of the topic that are still to be uploaded."),
)


def of_remote(vitals: Mapping[str, Vitals], jobs: Sequence[JobOutcome], totals: Totals) -> Iterator[Metric]:
    """Yield what topics have in object storage, what was counted up to now, and what holds after the pass."""
    for field_name, name, text in _OF_TOPICS:
        metric = Metric(f"{REMOTE}{name}", text)
        for cluster, one in vitals.items():
            for topic in one.measured:
                value = None if topic.remote is None else getattr(topic.remote, field_name)
                if value is not None:
                    metric.add(value, cluster=cluster, topic=full_name_of(topic.address))
        yield metric
    for name, text in COUNTED.items():
        metric = Metric(f"{REMOTE}{name}", text, kind="counter")
        for (counted, cluster), total in sorted(totals.items()):
            if counted == name:
                metric.add(total, cluster=cluster)
        yield metric
    for name, text in LEVELS.items():
        metric = Metric(f"{REMOTE}{name}", text)
        found = {cluster: one.levels[name] for cluster, one in vitals.items() if name in one.levels}
        found |= {job.cluster: job.upkept.levels[name] for job in jobs if job.upkept and name in job.upkept.levels}
        for cluster, level in sorted(found.items()):
            metric.add(level, cluster=cluster)
        yield metric
