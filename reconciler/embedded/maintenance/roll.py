"""Merge segments, re-encrypt objects under another KMS key, and publish rewrites.

Each entry stores its part's KMS key, so an interrupted re-encryption can continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import iter_entries_within
from reconciler.embedded.catalog.tables import Draft, is_closed, map_names_by_id
from reconciler.embedded.catalog.topic_configs import find_topic_kms_key
from reconciler.embedded.keys import part_key
from reconciler.embedded.objects import check_writes_visible
from reconciler.embedded.segments.head import NOBODY, Head, Partition, read_head, swap_head
from reconciler.embedded.segments.retention import iter_live_entries
from reconciler.embedded.segments.rewrites import Replacement, WorkTotals
from reconciler.embedded.tiered.object_rewrites import (
    PartitionRewrite,
    RemoteRewrite,
    SegmentWriter,
    delete_parts_on_error,
    delete_segments_on_error,
    list_object_keys,
    merge_digests,
    publish_local,
    publish_remote,
    read_parts,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.topic_deletion import for_each_head, iter_topic_heads, raise_first_error
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.embedded.segments.retention import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore


REWRITE_THREADS: Final = 8
OBJECTS_PER_SWAP: Final = 256
_MAX_ATTEMPTS: Final = 10


def finish_rewrites(
    store: ObjectStore, catalog: CatalogRegister, is_stopped: Callable[[], bool] = lambda: False
) -> int:
    """Re-encrypt the objects of marked topics, then remove the marks; return their number."""
    now = catalog.read()
    closed = {
        topic.id for topic in now.topics.values() if is_closed(topic)
    }  # Only the migration that closed a topic may change it.
    marked = [topic_id for topic_id in now.rewrites if topic_id not in closed]
    names = map_names_by_id(now, marked)
    keys = {topic_id: find_topic_kms_key(now, name) for topic_id, name in names.items()}

    def rewrite_head(head: tuple[str, int]) -> bool:
        topic_id, number = head
        return _rewrite_partition(store, Partition(names[topic_id], topic_id, number), keys[topic_id], is_stopped)

    left = for_each_head(rewrite_head, iter_topic_heads(store, names)) if names else {}
    done = [topic_id for topic_id in marked if topic_id not in left]

    def unmark(draft: Draft) -> None:
        moved = map_names_by_id(draft, done)
        for topic_id in done:
            # A topic keeps its mark if its key changed again during the rewrite.
            is_right = topic_id not in moved or find_topic_kms_key(draft, moved[topic_id]) == keys.get(topic_id)
            if is_right and topic_id in draft.rewrites:
                draft.put_rewrite(topic_id, None)

    after = catalog.commit(unmark) if done else now
    raise_first_error(left)
    return sum(topic_id not in after.rewrites for topic_id in done)


def _rewrite_partition(
    store: ObjectStore, partition: Partition, kms_key_id: str | None, is_stopped: Callable[[], bool]
) -> bool:
    for look in range(_MAX_ATTEMPTS):
        head = read_head(store, partition.topic_id, partition.number)
        if head is None:
            return True
        if head.writer == NOBODY:
            return False
        try:
            # Only live entries are read, since a page that retention split still references deleted parts.
            others = [entry for entry in iter_live_entries(store, head) if entry.kms_key_id != kms_key_id]
            for at in range(0, len(others), OBJECTS_PER_SWAP):
                if is_stopped():
                    return False
                _replace_parts(store, partition, others[at : at + OBJECTS_PER_SWAP], kms_key_id)
        except MissingObjectError:
            if look == _MAX_ATTEMPTS - 1:
                raise
            continue
        if not others and _store_kms_key_if_uniform(store, partition, head, kms_key_id):
            return True
    return False


def _replace_parts(store: ObjectStore, partition: Partition, entries: Sequence[Entry], kms_key_id: str | None) -> None:
    put_ms = store.read_clock_ms()

    def copy_entry(entry: Entry) -> None:
        key = part_key(partition.full_name, partition.number)
        store.copy_from(key, store, entry.key, kms_key_id=kms_key_id)
        done.append(Replacement.of([entry], [replace(entry, key=key, kms_key_id=kms_key_id)]))

    with (
        delete_parts_on_error(store) as done,
        ThreadPoolExecutor(REWRITE_THREADS, thread_name_prefix="rewrite") as threads,
    ):
        list(threads.map(copy_entry, entries))
    written = PartitionRewrite(partition, tuple(done), changes_key=True)
    publish_local(store, written, put_ms=put_ms, now_ms=store.read_clock_ms)


def _store_kms_key_if_uniform(store: ObjectStore, partition: Partition, seen: Head, kms_key_id: str | None) -> bool:
    if seen.kms_key_id == kms_key_id:
        return True
    pages = {page.key for page in seen.pages}

    def set_key(head: Head) -> Head | None:
        is_whole = all(entry.kms_key_id == kms_key_id for entry in head.entries)
        return replace(head, kms_key_id=kms_key_id) if is_whole and pages.issuperset(_list_page_keys(head)) else None

    return swap_head(store, partition, set_key)


def _list_page_keys(head: Head) -> set[str]:
    return {page.key for page in head.pages}


def publish_rewrite(
    store: ObjectStore,
    remote: RemoteTier | None,
    rewritten: PartitionRewrite,
    *,
    put_ms: int,
    now_ms: Callable[[], int],
) -> WorkTotals | None:
    """Publish a rewrite in object storage, then locally; then delete the replaced objects.

    If the remote rewrite fails, nothing is published (`None`), and the written objects are deleted. The oldest was
    written at `put_ms`.

    Raises:
        OwnershipLostError: Another cluster owns the partition.
    """
    if rewritten.remote is None or remote is None:
        return publish_local(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    remote_totals: WorkTotals | None = None
    written = list_object_keys(key for one in rewritten.remote.replacements for key in one.written)
    check_writes_visible(remote.storage, written, by=rewritten.written_by)
    try:
        remote_totals = publish_remote(remote.storage, rewritten.remote, put_ms=put_ms, now_ms=now_ms)
    finally:
        if remote_totals is None:
            _delete_unpublished_local(store, rewritten)
    if remote_totals is None or rewritten.compacted_to is None:
        return remote_totals
    local_totals = publish_local(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    return (
        remote_totals
        if local_totals is None
        else WorkTotals(
            remote_totals.records + local_totals.records,
            remote_totals.bytes + local_totals.bytes,
            remote_totals.uploaded,
        )
    )


def delete_unpublished_objects(
    store: ObjectStore,
    remote: RemoteTier | None,
    rewritten: PartitionRewrite,
    *,
    put_ms: int,
    now_ms: Callable[[], int],
) -> None:
    """Delete the objects of an unpublished rewrite; parameters as for `publish_rewrite`."""
    del put_ms, now_ms
    _delete_unpublished_local(store, rewritten)
    if rewritten.remote is not None and remote is not None:
        remote.storage.delete(list_object_keys(key for one in rewritten.remote.replacements for key in one.written))


def _delete_unpublished_local(store: ObjectStore, rewritten: PartitionRewrite) -> None:
    store.delete([key for one in rewritten.replacements for key in one.written])


_LOW_PERCENT: Final = 50
_LOWERED_PERCENT: Final = 80
"""Percentage of `high` that replaces a configured `low` that is not smaller."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Limits of merges in stored bytes.

    No merged segment exceeds `high`. The newest segments are merged once they exceed `low` together.
    """

    high: int
    low: int


def read_merge_limits(properties: Mapping[str, str], segment_bytes: int) -> MergeLimits:
    """Return the configured limits; defaults are `segment.bytes` and half of it (F-R-064)."""
    target = read_property(properties, "cloud_storage_segment_size_target")
    least = read_property(properties, "cloud_storage_segment_size_min")
    high = segment_bytes if target is None else int(target)
    low = high * _LOW_PERCENT // 100 if least is None else int(least)
    return MergeLimits(high, low if low < high else high * _LOWERED_PERCENT // 100)


@dataclass(frozen=True, slots=True)
class MergeRun:
    """Neighbouring segments that may be merged."""

    entries: tuple[Entry, ...]
    is_last: bool
    """Whether the log ends with this run."""

    @property
    def bytes(self) -> int:
        """Stored bytes."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def is_mergeable(self) -> bool:
        """Whether the run may be merged now or after growing."""
        return self.is_last or len(self.entries) > 1

    def should_merge(self, limits: MergeLimits) -> bool:
        """Whether to merge the run now.

        The last run must exceed `low`, and its first segment must not be larger than the rest. Otherwise each new
        segment would cause another rewrite of the first.
        """
        if len(self.entries) == 1 or not self.is_last:
            return len(self.entries) > 1
        return self.bytes > limits.low and 2 * self.entries[0].bytes <= self.bytes


def iter_runs_to_merge(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[tuple[Entry, ...]]:
    """Yield the runs to merge, oldest first."""
    return (run.entries for run in iter_runs(entries, limits) if run.should_merge(limits))


def iter_runs(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[MergeRun]:
    """Yield all runs of segments smaller than `high`, oldest first.

    A run has one epoch, no gaps, and at most `high` bytes.
    """
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not (_is_adjacent(run[-1], entry) and size + entry.bytes <= limits.high):
            yield MergeRun(tuple(run), is_last=False)
            run, size = [], 0
        if entry.bytes < limits.high:
            run.append(entry)
            size += entry.bytes
    if run:
        yield MergeRun(tuple(run), is_last=True)


def _is_adjacent(before: Entry, entry: Entry) -> bool:
    return entry.base == before.last + 1 and entry.epoch == before.epoch


_MERGES: Final = "cloud_storage_enable_segment_merging"


def merges_segments(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Whether a topic's remote segments are merged (F-R-064, F-R-065).

    The topic must upload and not be compacted, since compaction merges segments itself.
    """
    is_on = read_property(remote.properties, _MERGES) == "true"
    return is_on and not policy.compacts and policy.tiering is not None and policy.tiering.uploads


@dataclass(frozen=True)
class SegmentMerge:
    """Writes a partition's merged remote segments, without publishing them."""

    remote: RemoteTier
    partition: Partition
    policy: CleanupPolicy
    rules: AppendRules

    def write_merged_runs(self, offsets: OffsetRange) -> PartitionRewrite | None:
        """Write one object per run that begins in a range; return `None` if no run does.

        The range must begin at a run.
        """
        tiering = self.policy.tiering
        if tiering is None or not merges_segments(self.policy, self.remote):
            return None
        place = remote_partition(tiering.location, self.partition.number)
        with delete_segments_on_error(self.remote.storage) as done:
            for run in self._read_runs(place, offsets):
                done.append(Replacement.of(run, [self._write_merged(run, place)]))
        if not done:
            return None
        return PartitionRewrite(
            self.partition, (), remote=RemoteRewrite(place, self.remote.cluster_id, tiering, tuple(done))
        )

    def _read_runs(self, place: RemotePartition, offsets: OffsetRange) -> Iterator[tuple[Entry, ...]]:
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return
        limits = read_merge_limits(self.remote.properties, self.policy.limits.bytes)
        remote_range = OffsetRange(max(offsets.start, manifest.start), max(offsets.start, manifest.start, manifest.end))
        for run in iter_runs_to_merge(iter_entries_within(self.remote.storage, manifest, remote_range), limits):
            if run[0].base >= offsets.stop:
                return
            yield run

    def _write_merged(self, run: tuple[Entry, ...], place: RemotePartition) -> Entry:
        storage = self.remote.storage
        writer = SegmentWriter.for_partition(storage, self.rules, place, run[0].epoch)
        written = writer.write_one(read_parts(storage, run, self.partition.number))
        is_same = written is not None and (written.base, written.last) == (run[0].base, run[-1].last)
        if written is None or not is_same or written.digest != merge_digests(run):
            storage.delete([] if written is None else [written.key, build_index_key(written.key)])
            offsets = f"{self.partition}, offsets {run[0].base} to {run[-1].last}"
            message = f"{storage.url}: {offsets}: its records do not match the digest in the manifest"
            raise UserError(
                message, hint="`reconciler run --once --only scrub` reports the damage; nothing was changed."
            )
        return written.as_segment(run, run[0].epoch)
