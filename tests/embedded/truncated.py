"""A topic whose mirror elsewhere was stopped: it is cut where the two parted, and mirrors that one then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.mirror_moves import Peer
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Kind
from reconciler.embedded.restore_cut import truncate_topic
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.segments.retention import cleanup_policy, live_entries, segments_of
from reconciler.embedded.tiered.manifest import read_manifest
from reconciler.embedded.tiered.remote_retention import evict
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import RESTORE, LinkEntry
from tests.embedded.samples import numbered
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import DAY, TOPIC, LateStore, append_parts, copied, head_of, held, parts_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.resources.mirrors import Truncated

OPERATION = "operation-1"


def joined(it: Tiered, operation: str = OPERATION) -> None:
    """Seal the topic to a link half: nobody appends to it any more."""
    if "dr" not in it.cluster.catalog.read().links:
        it.cluster.create_link("dr", LinkEntry("link-1", "east", {"mode": "bidirectional"}))
    it.cluster.linking.join(TOPIC, Peer("dr", TOPIC, "their-id"), RESTORE, operation=operation)


def truncate(cluster: EmbeddedCluster, cuts: Mapping[int, int], operation: str = OPERATION) -> Mapping[int, Truncated]:
    """Cut partitions of the topic."""
    return truncate_topic(cluster, TOPIC, cuts, operation)


def cut(it: Tiered, at: int, *, partition: int = 0, operation: str = OPERATION) -> Truncated:
    """Cut one, as a process of its own."""
    return truncate(it.opened(), {partition: at}, operation)[partition]


def mirror_more(it: Tiered, count: int, *, partition: int = 0) -> None:
    """Append records as the link does."""
    sink = it.opened().sink(TOPIC)
    at = OffsetRange(end := sink.ends()[partition], end + count)
    assert sink.publish([sink.stage(partition, [numbered(end, count, partition=partition)], at=at)]) == {partition: at}


def let_go(it: Tiered, segments: int) -> None:
    """Let the oldest segments leave the local tier, as retention does where its targets say so."""
    policy = cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
    found = list(segments_of(live_entries(it.store, head_of(it.cluster)), policy.limits))[:segments]
    assert evict(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), found) is not None


def archived(parts: int = 14, *, evicted: int = 3, pages: bool = False) -> Tiered:
    """Return a topic of segments of four records: all closed ones uploaded, the oldest remote alone."""
    it = tiered()
    if pages:
        it.switch_on(spillover_manifest_size="1024")
    append_parts(it.cluster, parts)
    it.upload()
    if evicted:
        let_go(it, evicted)
    return it


def rows(it: Tiered, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of what is read."""
    return [(row["offset"], row["key"], row["value"]) for row in held(it.opened(), partition)]


def both_copied(it: Tiered) -> Tiered:
    """Return the same cluster over copies of its stores."""
    return Tiered(copied(it.store), copied(it.storage), it.clock)


def faults(it: Tiered, *, deep: bool = True) -> list[CheckFinding]:
    """Return what a check finds, but that a restore is under way."""
    is_tiered = it.cluster.catalog.read().topics[TOPIC].tiering is not None
    report = check_cluster(it.store, deep=deep, storage=it.storage if is_tiered else None)
    return [finding for finding in report.findings if finding.kind is not Kind.TRANSITION_UNDER_WAY]


def is_sound(it: Tiered, partition: int = 0) -> None:
    """See that everything named is there, and that nothing else is left a day later."""
    head = head_of(it.opened(), partition)
    assert head.start <= head.local_start <= head.end
    assert head.uploaded_to <= head.end >= head.compacted_to
    parts = {entry.key for entry in all_entries(it.store, head)}
    assert {entry.key for entry in all_entries(it.store, head) if entry.last >= head.start} <= parts_in(it.store)
    late: tuple[Any, Any] = LateStore(it.store, DAY + 60_000), LateStore(it.storage, DAY + 60_000)
    it.opened(*late).sweep()
    assert parts_in(it.store) <= parts
    is_tiered = it.cluster.catalog.read().topics[TOPIC].tiering is not None
    manifest = read_manifest(it.storage, it.remote(partition)) if is_tiered else None
    if manifest is not None:
        assert manifest.end <= head.end
        assert manifest.end >= head.uploaded_to
        named = {entry.key for entry in it.segments(partition)}
        assert {key for key in it.objects() if key.endswith(".parquet")} == named
