"""Metrics of an embedded cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.embedded.segments.groups import Group, list_groups, read_group
from reconciler.embedded.segments.head import NEVER_WRITTEN, Head
from reconciler.embedded.tiered.usage import Heads, Manifests, StorageReport
from reconciler.errors import UserError
from reconciler.resources.address import Address, address_of
from reconciler.resources.measures import (
    GROUPS_MEASURED,
    LAGS_MEASURED,
    GroupLag,
    PartitionVitals,
    RemoteVitals,
    TopicVitals,
    Vitals,
    measured_names,
)
from reconciler.runtime.threads import SideBySide

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore


_AT_ONCE: Final = 16


def vitals_of(report: StorageReport, cluster: str) -> Vitals:
    """Measure the cluster called `cluster`; topics that are, or were, tiered take one GET more for each partition."""
    store, catalog = report.store, report.catalog
    chosen = _chosen(catalog)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vitals") as pool:
        threads = SideBySide(pool, 4 * _AT_ONCE)
        heads = report.heads(chosen, threads)
        manifests = report.manifests(chosen, heads, threads)
        names = list_groups(store)
        groups = list(threads.over(lambda name: _group(store, name), names[:GROUPS_MEASURED]))
    lags = list(_lags(chosen, heads, dict(zip(names, groups, strict=False))))
    links = {entry.id: entry.source_cluster for entry in catalog.links.values()}
    opened = {name for head in heads.values() for name in head.transactions}
    return Vitals(
        topics=len(catalog.topics),
        partitions=sum(entry.partitions for entry in catalog.topics.values()),
        measured=[
            _topic(cluster, name, entry, links, heads)._replace(remote=_remote(report, name, heads, manifests))
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


def _chosen(catalog: Catalog) -> dict[str, TopicEntry]:
    sizes = {name: entry.partitions for name, entry in catalog.topics.items()}
    names = measured_names(sizes)
    return {name: catalog.topics[name] for name in names}


def _remote(
    report: StorageReport,
    name: str,
    heads: Heads,
    manifests: Manifests,
) -> RemoteVitals | None:
    found = report.topic(name, Address(name), heads, manifests)
    if found.tiering is None or found.tiering.hidden is not None:
        return None
    return RemoteVitals(*found.remote, found.garbage.segments, found.log_bytes, found.pending_bytes, found.lag)


def _group(store: ObjectStore, name: str) -> Group | None:
    try:
        return read_group(store, name)
    except UserError:
        return None  # `cluster check` says what is wrong with it; the others are measured


def _lags(
    chosen: Mapping[str, TopicEntry], heads: Mapping[tuple[str, int], Head], groups: Mapping[str, Group | None]
) -> Iterator[GroupLag]:
    names = {entry.id: name for name, entry in chosen.items()}
    for group, found in groups.items():
        lags: defaultdict[str, int] = defaultdict(int)
        for (topic_id, partition), committed in ({} if found is None else found.offsets).items():
            if topic_id in names:
                head = heads.get((topic_id, partition))
                bounds = NEVER_WRITTEN if head is None else head.bounds
                lags[names[topic_id]] += max(0, bounds.stable - committed.clamped(bounds).offset)
        yield from (GroupLag(group, topic, lag) for topic, lag in sorted(lags.items()))


def _topic(
    cluster: str, name: str, entry: TopicEntry, links: Mapping[str, str], heads: Mapping[tuple[str, int], Head]
) -> TopicVitals:
    written = {number: heads[place] for number in range(entry.partitions) if (place := (entry.id, number)) in heads}
    found = written.values()
    mirror = entry.follows
    from_cluster = None if mirror is None else links.get(mirror.link_id)
    source = address_of("topic", from_cluster, mirror.source) if mirror is not None and from_cluster else None
    return TopicVitals(
        address_of("topic" if mirror is None else "mirror", cluster, name),
        entry.partitions,
        sum(head.start for head in found),
        sum(head.end for head in found),
        sum(head.records for head in found),
        sum(head.stored_bytes for head in found),
        source,
        stands={number: PartitionVitals(head.end, head.newest_ms) for number, head in written.items()},
    )
