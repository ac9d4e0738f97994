"""Maintenance of an embedded cluster, and its topic producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Self

from reconciler.embedded.acl import check_may_append, find_visible_topic
from reconciler.embedded.clients.producer import Producer
from reconciler.embedded.maintenance.survey import MaintenanceResult, load_results, store_results
from reconciler.embedded.segments.gate import check_writer
from reconciler.embedded.segments.head import PRODUCERS
from reconciler.embedded.tiered.cache import pop_cache_counts
from reconciler.embedded.tiered.idle_work import HousekeepingTurn, TierHousekeeping
from reconciler.embedded.tiered.usage import CountingStore
from reconciler.errors import IncompleteError, ReconcilerError, UserError
from reconciler.objectstore.wrappers import MeteredStore, RequestMeter, strip_meter
from reconciler.providers.embedded.recovery import build_recovery_result
from reconciler.providers.protocol import MaintenanceJobResult, MaintenancePorts
from reconciler.resources.address import address_of
from reconciler.resources.cluster_properties import REPLICA_INTERVAL, read_property
from reconciler.resources.topic import REPLICAS
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa

    from reconciler.archives.entries import Entry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.maintenance.passes import Upkeep
    from reconciler.records.log import OffsetRange
    from reconciler.resources.mirrors import MirrorEntry


def list_maintenance_jobs(
    name: str, cluster: EmbeddedCluster, means: MaintenancePorts, keeping: TierHousekeeping | None = None
) -> Mapping[str, Callable[[], MaintenanceJobResult]]:
    """Return the maintenance jobs of one pass.

    Compaction, merges and scrubs wait while the other requests counted by `keeping` use the store's capacity.
    """
    keeping = keeping or TierHousekeeping(RequestMeter(cluster.now_ms), cluster.now_ms)

    def is_wanted(full_name: str) -> bool:
        topic = cluster.catalog.get_cached().topics.get(full_name)
        is_mirror = topic is not None and topic.active_mirror is not None
        return means.is_wanted(address_of("mirror" if is_mirror else "topic", name, full_name))

    counting = None if cluster.storage is None else CountingStore(strip_meter(cluster.storage))
    cluster = copy(cluster)
    cluster.storage = None if counting is None else MeteredStore(counting, keeping.meter)
    upkeep = cluster.upkeep(is_wanted=is_wanted, is_stopped=means.is_stopped)
    tidy = replace(upkeep, storage=counting, tidying=HousekeepingTurn(keeping, drains=means.is_requested))
    jobs = {
        "migrations": lambda: _continue_migrations(cluster, means, is_wanted),
        "deletions": lambda: MaintenanceJobResult("topic", cluster.finish_deletions()),
        "disablings": lambda: MaintenanceJobResult("topic", cluster.finish_disablings()),
        "recoveries": lambda: _continue_recoveries(cluster, means, is_wanted),
        "replicas": lambda: _follow_replicas(cluster, means, is_wanted),
        "rewrites": lambda: MaintenanceJobResult("topic", cluster.finish_rewrites(means.is_stopped)),
        "transactions": lambda: MaintenanceJobResult("transaction", cluster.finish_transactions()),
        "retention": lambda: _to_result(upkeep.retain()),
        "roll": lambda: _to_result(upkeep.roll(means.spread)),
        "upload": lambda: _to_result(upkeep.upload(means.spread)),
        "compact": lambda: _to_result(tidy.compact(means.spread)),
        "merge": lambda: _to_result(tidy.merge(means.spread)),
        "scrub": lambda: _scrub_partitions(tidy, means),
        "metadata": lambda: _store_metadata(upkeep, means),
        "sweep": lambda: _sweep_objects(cluster, means),
    }
    if counting is None:
        return jobs
    return {
        job: _count_requests(do, (counting.pop_counts, keeping.pop_counts, pop_cache_counts))
        for job, do in jobs.items()
    }


def _count_requests(
    do: Callable[[], MaintenanceJobResult], taken: Iterable[Callable[[], Mapping[str, int]]]
) -> Callable[[], MaintenanceJobResult]:
    def run_counted() -> MaintenanceJobResult:
        upkept = do()
        counts = Counter(upkept.counts)
        for take in taken:
            counts.update(take())
        return replace(upkept, counts={name: count for name, count in sorted(counts.items()) if count})

    return run_counted


def _to_result(done: MaintenanceResult) -> MaintenanceJobResult:
    errors = tuple(done.errors)
    return MaintenanceJobResult(
        "partition", done.partitions, done.records, done.bytes, done.failed, errors, done.counts, done.levels
    )


def _scrub_partitions(upkeep: Upkeep, means: MaintenancePorts) -> MaintenanceJobResult:
    from reconciler.embedded.maintenance.passes import scrub_cluster  # noqa: PLC0415 - brings Arrow

    return _to_result(scrub_cluster(upkeep, ignores_interval=means.are_jobs_named))


def _store_metadata(upkeep: Upkeep, means: MaintenancePorts) -> MaintenanceJobResult:
    written_metadata = replace(upkeep, may_go_on=_build_stop_check("the metadata was kept", means)).store_metadata(
        ignores_interval=means.are_jobs_named
    )
    errors = tuple(written_metadata.errors)
    stored = sum(written_metadata.written.values())
    return MaintenanceJobResult(
        "metadata part", len(written_metadata.written), bytes=stored, failed=len(errors), errors=errors
    )


def _continue_recoveries(
    cluster: EmbeddedCluster, means: MaintenancePorts, is_wanted: Callable[[str], bool]
) -> MaintenanceJobResult:
    copied = list[tuple[int, int]]()

    def count(segment: Entry) -> None:
        copied.append((segment.digest.records, segment.bytes))

    result = build_recovery_result(
        cluster.finish_recoveries(is_wanted, may_go_on=_build_stop_check("all was copied", means), copied=count)
    )
    return replace(result, records=sum(records for records, _ in copied), bytes=sum(stored for _, stored in copied))


def _follow_replicas(
    cluster: EmbeddedCluster, means: MaintenancePorts, is_wanted: Callable[[str], bool]
) -> MaintenanceJobResult:
    topics = {name: topic.id for name, topic in cluster.catalog.read().topics.items() if topic.replica is not None}
    if not topics:
        return MaintenanceJobResult("partition")
    rows, _ = load_results(cluster.store, REPLICAS)
    now_ms, known = (
        cluster.now_ms(),
        {topic_id: row[0] for topic_id, row in rows.items() if row and topic_id in topics.values()},
    )
    every_ms = int(read_property(cluster.catalog.get_cached().cluster.properties, REPLICA_INTERVAL) or 0)

    def is_due(full_name: str) -> bool:
        last_ms = known.get(topics.get(full_name, ""), 0)
        return is_wanted(full_name) and (means.is_requested or not last_ms <= now_ms < last_ms + every_ms)

    followed = cluster.follow_replicas(is_due, is_stopped=means.is_stopped)
    errors = tuple(result for result in followed.values() if isinstance(result, ReconcilerError))
    done = {topic_id: now_ms for topic_id, result in followed.items() if not isinstance(result, ReconcilerError)}
    if done or known.keys() != rows.keys():
        store_results(cluster.store, REPLICAS, {topic_id: [at_ms] for topic_id, at_ms in {**known, **done}.items()}, {})
    moved = sum(result for result in followed.values() if not isinstance(result, ReconcilerError))
    return MaintenanceJobResult("partition", moved, failed=len(errors), errors=errors)


def _continue_migrations(
    cluster: EmbeddedCluster, means: MaintenancePorts, is_wanted: Callable[[str], bool]
) -> MaintenanceJobResult:
    before, stored = cluster.mounts.list_unfinished(), list[int]()
    if not before:
        return MaintenanceJobResult("topic")
    may_go_on = _build_stop_check("all was mounted and unmounted", means)
    mounts = replace(cluster.mounts, may_go_on=may_go_on, spread=means.spread, flushed=stored.append)
    ended = mounts.finish(is_wanted)
    left, errors = mounts.list_unfinished(), []
    for number, error in ended.items():
        if error is not None:
            errors.append(error.add_subject(f"migration {number}"))
    done = sum(
        len(before[number].topics)
        for number, error in ended.items()
        if error is None and number in before and (number not in left or left[number].state != before[number].state)
    )
    return MaintenanceJobResult("topic", done, bytes=sum(stored), failed=len(errors), errors=tuple(errors))


def _build_stop_check(what: str, means: MaintenancePorts) -> Callable[[], None]:
    def check_not_stopped() -> None:
        if means.is_stopped():
            raise IncompleteError(f"stopped before {what}", hint="Continue with: reconciler run --once")

    return check_not_stopped


def _sweep_objects(cluster: EmbeddedCluster, means: MaintenancePorts) -> MaintenanceJobResult:
    swept = cluster.sweep(unless_recent=not means.is_requested)
    return MaintenanceJobResult("object", swept.objects, bytes=swept.bytes, notes=tuple(map(str, swept.partitions)))


@dataclass(frozen=True, slots=True)
class EmbeddedTopicProducer:
    """Producer of one topic."""

    producer: Producer
    full_name: str

    @classmethod
    def open(cls, cluster: EmbeddedCluster, full_name: str, *, name: str) -> Self:
        """Return a topic's producer on the cluster `name`. Mirrors are rejected."""
        catalog = cluster.catalog.read()
        check_may_append(cluster.permissions, catalog, full_name)
        topic = find_visible_topic(cluster.permissions, catalog, full_name)
        if topic.active_mirror is not None:
            raise _mirror_error(catalog, name, full_name, topic.active_mirror)
        check_writer(full_name, topic, PRODUCERS)
        return cls(cluster.producer(), full_name)

    def append(self, records: pa.RecordBatch) -> None:
        """Buffer records, and write them when there are enough."""
        self.producer.append(self.full_name, records)

    def flush(self) -> Mapping[int, OffsetRange]:
        """Write the buffered records."""
        return self.producer.flush().get(self.full_name, {})


def _mirror_error(catalog: Catalog, name: str, full_name: str, mirror: MirrorEntry) -> UserError:
    source = next((link.source_cluster for link in catalog.links.values() if link.id == mirror.link_id), None)
    of = f"topic/{source}/{mirror.source}" if source is not None else mirror.source
    message = f"mirror/{name}/{full_name} is a mirror of {of}: only its link writes to it"
    return UserError(message, hint="Produce to the source, or promote the mirror first.")
