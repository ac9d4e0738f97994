"""Evict uploaded data above the local capacity, and apply local retention.

The check runs every `retention_local_trim_interval`. It stores sizes, so only changed heads are read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.storage import check_storage_given
from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.keys import parse_head_key
from reconciler.embedded.maintenance.survey import HeadCache, MaintenanceResult, Survey, SurveyedPartition
from reconciler.embedded.segments.head import Head, Partition
from reconciler.embedded.segments.retention import (
    CleanupPolicy,
    ExpiryResult,
    Segment,
    count_live_bytes,
    delete_expired,
    find_next_expiry_ms,
    iter_expired,
    iter_live_entries,
    iter_segments,
    read_cleanup_policy,
)
from reconciler.embedded.tiered.remote_retention import (
    EvictionCandidates,
    TieredPartition,
    evict_segments,
    find_evictable_segments,
    measure_disk_under,
    plan_evictions,
    read_local_capacity,
)
from reconciler.embedded.tiered.remote_tier import build_remote_tier
from reconciler.errors import ReconcilerError
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.archives.location import TopicTiering
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


_JOB: Final = "space"


@dataclass(frozen=True, slots=True)
class LocalTrim:
    """Reduces a cluster's local data to its capacity."""

    retaining: RetentionJob
    heads: HeadCache
    is_wanted: Callable[[str], bool]
    disk_bytes: Callable[[ObjectStore], int | None] = measure_disk_under

    def evict_excess(self, job_result: MaintenanceResult) -> None:
        """Evict data above the capacity; record failures in `job_result`."""
        catalog, cluster_id = self.retaining.catalog.get_cached(), self.retaining.cluster_id
        properties = catalog.cluster.properties
        policies = _TopicPolicies(catalog, cluster_id)
        if not policies.evicts_any():
            return
        capacity = read_local_capacity(properties, self.disk_bytes(self.retaining.store))
        if capacity is None:
            return
        survey = Survey.load(self.retaining.store, cluster_id, _JOB)
        now_ms = self.retaining.now_ms()
        interval_ms = int(read_property(properties, "retention_local_trim_interval") or 0)
        if survey.notes.get("capacity") == capacity and now_ms < survey.notes.get("at_ms", 0) + interval_ms:
            return
        partitions = list(policies.existing_partitions(self.heads.list_heads(self.retaining.store, _JOB)))
        excess = self._measure_local_bytes(partitions, survey, job_result) - capacity
        if excess > 0:
            closed = {topic.id for topic in catalog.topics.values() if is_closed(topic)}
            excess -= self._evict_oldest(
                [partition for partition in partitions if self._may_evict(partition, closed)], excess, job_result
            )
        if excess <= 0:
            survey.notes |= {"at_ms": now_ms, "capacity": capacity}
        survey.store_if_changed()

    def _may_evict(self, surveyed: SurveyedPartition, closed: Container[str]) -> bool:
        is_held = surveyed.partition.topic_id in closed
        return surveyed.policy.evicts and not is_held and self.is_wanted(surveyed.partition.full_name)

    def _measure_local_bytes(
        self, partitions: list[SurveyedPartition], survey: Survey, job_result: MaintenanceResult
    ) -> int:
        before: dict[str, list[Any]] = survey.notes.get("used", {})
        store = self.retaining.store

        def measure(partition: SurveyedPartition) -> int:
            row = before.get(partition.key)
            if row is not None and row[0] == partition.hint:
                return int(row[1])
            try:
                head = self.heads.read_head(store, partition)
                return 0 if head is None else count_live_bytes(store, head)
            except ReconcilerError as error:
                job_result.record_failure(partition.partition, error)
                return 0

        sizes = list(map_in_parallel(measure, partitions, name="space"))
        survey.notes["used"] = {
            partition.key: [partition.hint, size]
            for partition, size in zip(partitions, sizes, strict=True)
            if not partition.is_changed
        }
        return sum(sizes)

    def _evict_oldest(self, partitions: list[SurveyedPartition], excess: int, job_result: MaintenanceResult) -> int:
        def find_candidates(partition: SurveyedPartition) -> EvictionCandidates:
            try:
                head = self.heads.read_head(self.retaining.store, partition)
                return EvictionCandidates() if head is None else self.retaining.find_evictable_segments(partition, head)
            except ReconcilerError as error:
                job_result.record_failure(partition.partition, error)
                return EvictionCandidates()

        candidates = list(map_in_parallel(find_candidates, partitions, name="space"))
        chosen = [
            (partition, candidate.segments[:count])
            for partition, candidate, count in zip(
                partitions, candidates, plan_evictions(candidates, excess), strict=True
            )
            if count
        ]

        def evict_chosen(candidate: tuple[SurveyedPartition, Sequence[Segment]]) -> int:
            partition, segments = candidate
            try:
                gone = evict_segments(self.retaining.store, partition.partition, segments)
            except ReconcilerError as error:
                job_result.record_failure(partition.partition, error)
                return 0
            return 0 if gone is None else gone.bytes

        freed = 0
        for (partition, _), size in zip(chosen, map_in_parallel(evict_chosen, chosen, name="space"), strict=True):
            self.heads.mark_changed(partition.partition)
            if size:
                job_result.count_work(records=0, stored=size)
                freed += size
        return freed


class _TopicPolicies:
    def __init__(self, catalog: Catalog, cluster_id: str) -> None:
        self._catalog = catalog
        self._cluster_id = cluster_id
        self._names = {entry.id: name for name, entry in catalog.topics.items()}
        self._known: dict[str, CleanupPolicy] = {}

    def evicts_any(self) -> bool:
        tiered = (name for name, entry in self._catalog.topics.items() if entry.tiering is not None)
        return any(self._get_policy(name).evicts for name in tiered)

    def existing_partitions(self, listed: Iterator[tuple[str, str, bool]]) -> Iterator[SurveyedPartition]:
        for key, hint, is_changed in listed:
            topic_id, number = parse_head_key(key)
            name = self._names.get(topic_id)
            if name is not None:
                yield SurveyedPartition(
                    Partition(name, topic_id, number), self._get_policy(name), key, hint, is_changed
                )

    def _get_policy(self, full_name: str) -> CleanupPolicy:
        if full_name not in self._known:
            self._known[full_name] = read_cleanup_policy(self._catalog, full_name, self._cluster_id)
        return self._known[full_name]


@dataclass(frozen=True, slots=True)
class RetentionJob:
    """Applies retention to single partitions in one pass. Thread-safe."""

    store: ObjectStore
    storage: ObjectStore | None
    cluster_id: str
    catalog: CatalogRegister
    now_ms: Callable[[], int]

    def expire_partition(self, surveyed: SurveyedPartition, head: Head) -> tuple[ExpiryResult | None, int | None]:
        """Delete expired records; return the result, or when to check again in ms (`None`: never)."""
        now_ms = self.now_ms()
        if surveyed.policy.tiering is not None:
            return self._make_tiered_partition(surveyed, surveyed.policy.tiering).apply_retention(head, now_ms=now_ms)
        segments = iter_segments(iter_live_entries(self.store, head), surveyed.policy.limits)
        stored, stable = count_live_bytes(self.store, head), head.bounds.stable
        gone = iter_expired(segments, surveyed.policy, stored_bytes=stored, stable=stable, now_ms=now_ms)
        if next(gone, None) is None:
            return None, find_next_expiry_ms(self.store, head, surveyed.policy)
        return delete_expired(self.store, surveyed.partition, surveyed.policy, now_ms=now_ms), now_ms

    def find_evictable_segments(self, surveyed: SurveyedPartition, head: Head) -> EvictionCandidates:
        """Return the segments that the local tier may drop."""
        if surveyed.policy.tiering is None:
            return EvictionCandidates()
        tier = self._make_tiered_partition(surveyed, surveyed.policy.tiering)
        head, manifest = tier.read_agreeing_state(head)
        return find_evictable_segments(
            self.store, head, surveyed.policy, lambda: tier.find_equal_end(head, manifest), now_ms=self.now_ms()
        )

    def _make_tiered_partition(self, surveyed: SurveyedPartition, tiering: TopicTiering) -> TieredPartition:
        cluster = self.catalog.get_cached().cluster
        check_storage_given(self.storage, cluster.storage_id)
        remote = build_remote_tier(self.storage, self.cluster_id, cluster)
        return TieredPartition(self.store, surveyed.partition, surveyed.policy, tiering, remote)
