"""Measures, storage and metrics of an embedded cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.embedded.acl import Kind, Operation, find_visible_topic
from reconciler.embedded.catalog.tiering_state import hides_remote_records
from reconciler.embedded.keys import parse_head_topic_id
from reconciler.embedded.segments.groups import Group, list_groups, read_group
from reconciler.embedded.segments.head import UNWRITTEN_BOUNDS, Head, list_heads
from reconciler.embedded.tiered.usage import Heads, Manifests, StorageReport, get_manifest_reader, measure_topic
from reconciler.errors import UserError
from reconciler.providers.protocol import TopicSizes
from reconciler.resources.address import Address, address_of, full_name_of
from reconciler.resources.measures import (
    GROUPS_MEASURED,
    LAGS_MEASURED,
    NO_CUTS,
    Cuts,
    GroupLag,
    Measure,
    Measures,
    PartitionVitals,
    RemoteVitals,
    TopicStorage,
    TopicVitals,
    Vitals,
    choose_measured_names,
)
from reconciler.runtime.threads import CallPool

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


MEASURED_PARTITIONS: Final = 1_000
"""Maximum partitions that one `measure_topics` reads. Partitions without records do not count."""

_NOTHING: Final = Measure(0, 0)


def measure_topics(cluster: EmbeddedCluster, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
    """Measure topics in order, at most `MEASURED_PARTITIONS` partitions."""
    catalog, left = cluster.catalog.read(), MEASURED_PARTITIONS
    names = {address: full_name_of(address) for address in addresses}
    topics = {address: catalog.topics[name] for address, name in names.items() if name in catalog.topics}
    written = _count_written_partitions(cluster.store, {topic.id for topic in topics.values()})
    measures: dict[Address, Measure] = {}
    for address, topic in topics.items():
        heads = written.get(topic.id, 0)
        if heads == 0:
            measures[address] = _NOTHING
        elif heads <= left:
            left -= heads
            manifest_of = get_manifest_reader(cluster.storage, catalog, names[address], cluster.cluster_id)
            size = measure_topic(cluster.store, topic.id, manifest_of, cuts.get(address, ()))
            tiered = () if topic.tiering is None else size.tiered
            newest_ms = max((newest for newest, _ in size.ages), default=None)
            measures[address] = Measure(
                size.bytes,
                size.records,
                ages=size.ages,
                local_only_bytes=size.local_only_bytes,
                tiered=tiered,
                positions=size.positions,
                newest_ms=newest_ms,
                older=size.older_bytes,
            )
    return measures


def _count_written_partitions(store: ObjectStore, ids: Collection[str]) -> Mapping[str, int]:
    if not ids:
        return {}
    heads = list_heads(store, *(ids if len(ids) == 1 else ()))
    return Counter(parse_head_topic_id(listed.key) for listed in heads)


def list_topic_storages(cluster: EmbeddedCluster, topics: Sequence[Address]) -> Iterator[TopicStorage]:
    """Yield sizes of topics by storage tier, in order."""
    catalog = cluster.catalog.read()
    names = {full_name_of(topic): topic for topic in topics}
    for name in names:
        cluster.permissions.check_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
        find_visible_topic(cluster.permissions, catalog, name)
    return build_storage_report(cluster, catalog).report_topics(names)


def read_topic_sizes(cluster: EmbeddedCluster, topic: Address) -> TopicSizes:
    """Return a topic's bounds for readers, and its sizes."""
    name, catalog = full_name_of(topic), cluster.catalog.read()
    cluster.permissions.check_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, name)
    entry, report = find_visible_topic(cluster.permissions, catalog, name), build_storage_report(cluster, catalog)
    heads, manifests = report.read_partitions([name])
    storage, hides = report.measure_topic(name, topic, heads, manifests), hides_remote_records(catalog, name)
    bounds = {
        number: heads[entry.id, number].bounds if (entry.id, number) in heads else UNWRITTEN_BOUNDS
        for number in range(entry.partitions)
    }
    shown = {number: bound.limit_to_local() if hides else bound for number, bound in bounds.items()}
    return TopicSizes(shown, storage.log_records, storage.log_bytes, storage)


def build_storage_report(cluster: EmbeddedCluster, catalog: Catalog | None = None) -> StorageReport:
    """Return a cluster's storage report, by default of the current catalog."""
    return StorageReport(cluster.store, cluster.storage, catalog or cluster.catalog.read(), cluster.cluster_id)


_AT_ONCE: Final = 16


def measure_cluster(report: StorageReport, cluster: str) -> Vitals:
    """Return a cluster's metrics. Tiered topics take one more GET per partition."""
    store, catalog = report.store, report.catalog
    chosen = _select_measured_topics(catalog)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vitals") as pool:
        threads = CallPool(pool, 4 * _AT_ONCE)
        heads = report.read_heads(chosen, threads)
        manifests = report.read_manifests(chosen, heads, threads)
        names = list_groups(store)
        groups = list(threads.map_calls(lambda name: _read_group(store, name), names[:GROUPS_MEASURED]))
    lags = list(_measure_lags(chosen, heads, dict(zip(names, groups, strict=False))))
    links = {entry.id: entry.source_cluster for entry in catalog.links.values()}
    opened = {name for head in heads.values() for name in head.transactions}
    return Vitals(
        topics=len(catalog.topics),
        partitions=sum(entry.partitions for entry in catalog.topics.values()),
        measured=[
            _measure_topic(cluster, name, entry, links, heads)._replace(
                remote=_measure_remote(report, name, heads, manifests)
            )
            for name, entry in chosen.items()
        ],
        unmeasured=len(catalog.topics) - len(chosen),
        groups=len(names),
        lags=lags[:LAGS_MEASURED],
        unmeasured_groups=len(names[GROUPS_MEASURED:]),
        open_transactions=len(opened),
        pending_deletions=len(catalog.deletions),
        pending_rewrites=len(catalog.rewrites),
    )


def _select_measured_topics(catalog: Catalog) -> dict[str, TopicEntry]:
    sizes = {name: entry.partitions for name, entry in catalog.topics.items()}
    names = choose_measured_names(sizes)
    return {name: catalog.topics[name] for name in names}


def _measure_remote(report: StorageReport, name: str, heads: Heads, manifests: Manifests) -> RemoteVitals | None:
    topic_report = report.measure_topic(name, Address(name), heads, manifests)
    if topic_report.tiering is None or topic_report.tiering.hidden is not None:
        return None
    return RemoteVitals(
        *topic_report.remote,
        topic_report.garbage.segments,
        topic_report.log_bytes,
        topic_report.pending_bytes,
        topic_report.lag,
    )


def _read_group(store: ObjectStore, name: str) -> Group | None:
    try:
        return read_group(store, name)
    except UserError:
        return None


def _measure_lags(
    chosen: Mapping[str, TopicEntry], heads: Mapping[tuple[str, int], Head], groups: Mapping[str, Group | None]
) -> Iterator[GroupLag]:
    names = {entry.id: name for name, entry in chosen.items()}
    for group, group_state in groups.items():
        lags: defaultdict[str, int] = defaultdict(int)
        for (topic_id, partition), committed in ({} if group_state is None else group_state.offsets).items():
            if topic_id in names:
                head = heads.get((topic_id, partition))
                bounds = UNWRITTEN_BOUNDS if head is None else head.bounds
                lags[names[topic_id]] += max(0, bounds.stable - committed.clamp(bounds).offset)
        yield from (GroupLag(group, topic, lag) for topic, lag in sorted(lags.items()))


def _measure_topic(
    cluster: str, name: str, entry: TopicEntry, links: Mapping[str, str], heads: Mapping[tuple[str, int], Head]
) -> TopicVitals:
    written = {number: heads[place] for number in range(entry.partitions) if (place := (entry.id, number)) in heads}
    written_heads = written.values()
    mirror = entry.active_mirror
    from_cluster = None if mirror is None else links.get(mirror.link_id)
    source = address_of("topic", from_cluster, mirror.source) if mirror is not None and from_cluster else None
    return TopicVitals(
        address_of("topic" if mirror is None else "mirror", cluster, name),
        entry.partitions,
        sum(head.start for head in written_heads),
        sum(head.end for head in written_heads),
        sum(head.records for head in written_heads),
        sum(head.stored_bytes for head in written_heads),
        source,
        partition_vitals={number: PartitionVitals(head.end, head.newest_ms) for number, head in written.items()},
    )
