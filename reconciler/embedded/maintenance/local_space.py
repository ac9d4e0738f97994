"""Local space: evict uploaded data over capacity, and apply local retention.

It is looked at every `retention_local_trim_interval`, where the cluster has tiered topics and a limit. How much each
partition takes is remembered with the hint of its head, so only heads that have changed are read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.storage import check_given
from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.keys import partition_of_head
from reconciler.embedded.maintenance.survey import HeadCache, MaintenanceResult, Survey, SurveyedPartition
from reconciler.embedded.segments.head import Head, Partition
from reconciler.embedded.segments.retention import (
    CleanupPolicy,
    Expired,
    Segment,
    cleanup_policy,
    expired,
    live_bytes,
    live_entries,
    next_expiry_ms,
    retain,
    segments_of,
)
from reconciler.embedded.tiered.remote_retention import (
    Evictable,
    TieredPartition,
    capacity_of,
    disk_under,
    evict,
    evictable,
    first_to_go,
)
from reconciler.embedded.tiered.remote_tier import remote_tier
from reconciler.errors import ReconcilerError
from reconciler.resources.cluster_properties import property_of
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.archives.location import Tiering
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore


_JOB: Final = "space"


@dataclass(frozen=True, slots=True)
class Trimming:
    """Holds the local data of a cluster to its capacity, once."""

    retaining: Retaining
    heads: HeadCache
    is_wanted: Callable[[str], bool]
    disk_bytes: Callable[[ObjectStore], int | None] = disk_under

    def trim(self, tended: MaintenanceResult) -> None:
        """Let go of what is too much; what cannot be looked at is told, and the others are."""
        catalog, cluster_id = self.retaining.catalog.known(), self.retaining.cluster_id
        properties = catalog.cluster.properties
        policies = _Policies(catalog, cluster_id)
        if not policies.evicts_any():
            return
        capacity = capacity_of(properties, self.disk_bytes(self.retaining.store))
        if capacity is None:
            return
        survey = Survey.begun(self.retaining.store, cluster_id, _JOB)
        now_ms = self.retaining.now_ms()
        interval_ms = int(property_of(properties, "retention_local_trim_interval") or 0)
        if survey.notes.get("capacity") == capacity and now_ms < survey.notes.get("at_ms", 0) + interval_ms:
            return
        lying = list(policies.lying(self.heads.listed(self.retaining.store, _JOB)))
        excess = self._used(lying, survey, tended) - capacity
        if excess > 0:
            closed = {topic.id for topic in catalog.topics.values() if is_closed(topic)}
            excess -= self._freed([one for one in lying if self._may_leave(one, closed)], excess, tended)
        if excess <= 0:
            survey.notes |= {"at_ms": now_ms, "capacity": capacity}
        survey.end()

    def _may_leave(self, lying: SurveyedPartition, closed: Container[str]) -> bool:
        """Tell whether anything of a partition may; of what is being mounted or unmounted nothing does."""
        is_held = lying.partition.topic_id in closed
        return lying.policy.evicts and not is_held and self.is_wanted(lying.partition.full_name)

    def _used(self, lying: list[SurveyedPartition], survey: Survey, tended: MaintenanceResult) -> int:
        """Return how many bytes all partitions take locally; only heads that have changed are read."""
        before: dict[str, list[Any]] = survey.notes.get("used", {})
        store = self.retaining.store

        def used(one: SurveyedPartition) -> int:
            row = before.get(one.key)
            if row is not None and row[0] == one.hint:
                return int(row[1])
            try:
                head = self.heads.read(store, one)
                return 0 if head is None else live_bytes(store, head)
            except ReconcilerError as error:
                tended.fail(one.partition, error)
                return 0

        found = list(side_by_side(used, lying, name="space"))
        survey.notes["used"] = {
            one.key: [one.hint, size] for one, size in zip(lying, found, strict=True) if not one.is_changed
        }
        return sum(found)

    def _freed(self, lying: list[SurveyedPartition], excess: int, tended: MaintenanceResult) -> int:
        """Evict what is oldest, and return how many bytes that freed."""

        def look(one: SurveyedPartition) -> Evictable:
            try:
                head = self.heads.read(self.retaining.store, one)
                return Evictable() if head is None else self.retaining.evictable(one, head)
            except ReconcilerError as error:
                tended.fail(one.partition, error)
                return Evictable()

        found = list(side_by_side(look, lying, name="space"))
        chosen = [
            (one, each.segments[:count])
            for one, each, count in zip(lying, found, first_to_go(found, excess), strict=True)
            if count
        ]

        def leave(each: tuple[SurveyedPartition, Sequence[Segment]]) -> int:
            one, segments = each
            try:
                gone = evict(self.retaining.store, one.partition, segments)
            except ReconcilerError as error:
                tended.fail(one.partition, error)
                return 0
            return 0 if gone is None else gone.bytes

        freed = 0
        for (one, _), size in zip(chosen, side_by_side(leave, chosen, name="space"), strict=True):
            self.heads.changed(one.partition)
            if size:
                tended.count(records=0, stored=size)
                freed += size
        return freed


class _Policies:
    """What the topics of a catalog ask, each looked up once."""

    def __init__(self, catalog: Catalog, cluster_id: str) -> None:
        self._catalog = catalog
        self._cluster_id = cluster_id
        self._names = {entry.id: name for name, entry in catalog.topics.items()}
        self._known: dict[str, CleanupPolicy] = {}

    def evicts_any(self) -> bool:
        """Tell whether anything may be evicted at all."""
        tiered = (name for name, entry in self._catalog.topics.items() if entry.tiering is not None)
        return any(self._of(name).evicts for name in tiered)

    def lying(self, listed: Iterator[tuple[str, str, bool]]) -> Iterator[SurveyedPartition]:
        """Yield the partitions of topics that are there."""
        for key, hint, is_changed in listed:
            topic_id, number = partition_of_head(key)
            name = self._names.get(topic_id)
            if name is not None:
                yield SurveyedPartition(Partition(name, topic_id, number), self._of(name), key, hint, is_changed)

    def _of(self, full_name: str) -> CleanupPolicy:
        if full_name not in self._known:
            self._known[full_name] = cleanup_policy(self._catalog, full_name, self._cluster_id)
        return self._known[full_name]


# The retention job on one partition: what expires of it, on whichever tier that lies, what may leave the local one.


@dataclass(frozen=True, slots=True)
class Retaining:
    """Decides and acts for one pass. Safe from any thread."""

    store: ObjectStore
    storage: ObjectStore | None
    cluster_id: str
    catalog: CatalogRegister
    """As it was last read."""
    now_ms: Callable[[], int]

    def look(self, lying: SurveyedPartition, head: Head) -> tuple[Expired | None, int | None]:
        """Let go of what has expired of a partition; return what went, or when to look again.

        Raises:
            UserError: Something of it is remote, and the object storage is not at hand.
            OwnershipLostError: Its remote part belongs to another cluster now.
        """
        now_ms = self.now_ms()
        if lying.policy.tiering is not None:
            return self._tiered(lying, lying.policy.tiering).retain(head, now_ms=now_ms)
        segments = segments_of(live_entries(self.store, head), lying.policy.limits)
        stored, stable = live_bytes(self.store, head), head.bounds.stable
        gone = expired(segments, lying.policy, stored_bytes=stored, stable=stable, now_ms=now_ms)
        if next(gone, None) is None:
            return None, next_expiry_ms(self.store, head, lying.policy)
        return retain(self.store, lying.partition, lying.policy, now_ms=now_ms), now_ms

    def evictable(self, lying: SurveyedPartition, head: Head) -> Evictable:
        """Return what may leave the local tier of a partition."""
        if lying.policy.tiering is None:
            return Evictable()
        tier = self._tiered(lying, lying.policy.tiering)
        head, manifest = tier.sound(head)
        return evictable(self.store, head, lying.policy, lambda: tier.same_below(head, manifest), now_ms=self.now_ms())

    def _tiered(self, lying: SurveyedPartition, tiering: Tiering) -> TieredPartition:
        cluster = self.catalog.known().cluster
        check_given(self.storage, cluster.storage_id)
        remote = remote_tier(self.storage, self.cluster_id, cluster)
        return TieredPartition(self.store, lying.partition, lying.policy, tiering, remote)
