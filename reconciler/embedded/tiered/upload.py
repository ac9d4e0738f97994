"""Upload segments, and upload them again after compaction.

A segment becomes one file, whose footer is its index. Partly uploaded segments are split, so remote segments never
overlap.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.archives.entries import Entry
from reconciler.archives.keys import build_index_key, create_segment_key
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import PagedEntries, iter_entries_within
from reconciler.embedded.segments.head import Head, Partition, read_head
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, SegmentLimits, iter_segments
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered.object_rewrites import (
    PartitionRewrite,
    RemoteRewrite,
    SegmentWriter,
    delete_segments_on_error,
    merge_digests,
    read_footer,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_has_uploaded_records
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.effects import build_process_id

if TYPE_CHECKING:
    from reconciler.archives.location import TopicTiering
    from reconciler.embedded.segments.admission import AppendRules
    from reconciler.objectstore.base import ObjectStore


_UPLOAD_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class UploadBatch:
    """A partition's stored segments that no manifest references yet."""

    partition: Partition
    remote: RemotePartition
    offsets: OffsetRange
    """Offsets covered; the manifest must end where they start."""
    entries: tuple[Entry, ...]
    epochs: tuple[tuple[int, int], ...]
    tiering: TopicTiering
    uploaded_by: str = field(default_factory=build_process_id, compare=False)

    @property
    def keys(self) -> list[str]:
        """Keys of all stored objects."""
        return [key for entry in self.entries for key in (entry.key, build_index_key(entry.key))]


def iter_segments_to_upload(
    entries: Iterable[Entry], limits: SegmentLimits, *, stable: int, takes_open: bool = False
) -> Iterator[Segment]:
    """Yield closed segments that end before the offset `stable`.

    `takes_open` also yields the open segment's entries that end before `stable`.
    """
    for segment in iter_segments(entries, limits):
        if segment.is_closed and segment.last < stable:
            yield segment
            continue
        rest = tuple(entry for entry in segment.entries if entry.last < stable)
        if takes_open and rest:
            yield Segment(rest, is_closed=False)
        return


@dataclass(frozen=True)
class PartitionUpload:
    """Copies a partition to object storage."""

    store: ObjectStore
    storage: ObjectStore
    partition: Partition
    tiering: TopicTiering
    rules: AppendRules

    @property
    def remote(self) -> RemotePartition:
        """The partition's remote location."""
        return remote_partition(self.tiering.location, self.partition.number)

    def upload_segments(self, head: Head, limits: SegmentLimits, offsets: OffsetRange) -> UploadBatch:
        """Store a range's segments; no manifest references them yet."""
        # A truncation may have lowered the log's end.
        offsets = OffsetRange(offsets.start, max(offsets.start, min(offsets.stop, head.end)))
        # The head's first page may still reference evicted segments.
        start = min(max(offsets.start, head.local_start), offsets.stop)
        segments = list(iter_segments(iter_entries_within(self.store, head, OffsetRange(start, offsets.stop)), limits))
        done: list[Entry] = []

        def upload_segment(segment: Segment) -> None:
            entry = self._put_segment(segment, offsets)
            if entry is not None:
                done.append(entry)

        try:
            with ThreadPoolExecutor(_UPLOAD_THREADS, thread_name_prefix="upload") as threads:
                list(threads.map(upload_segment, segments))
        except BaseException:
            self.storage.delete([key for entry in done for key in (entry.key, build_index_key(entry.key))])
            raise
        entries = tuple(sorted(done, key=lambda entry: entry.base))
        return UploadBatch(self.partition, self.remote, offsets, entries, head.epochs, self.tiering)

    def _put_segment(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        first = segment.entries[0]
        if len(segment.entries) == 1 and first.is_within(offsets):
            return self.copy_file(first)
        return self._write_one_file(segment, offsets)

    def copy_file(self, entry: Entry) -> Entry:
        """Copy a file unchanged and store its index."""
        kms_key_id = self.rules.kms_key_id
        key = create_segment_key(self.remote.key_prefix, (entry.base, entry.last), entry.bytes, entry.epoch)
        footer = read_footer(self.store, entry.key, entry.bytes)
        self.storage.copy_from(key, self.store, entry.key, kms_key_id=kms_key_id)
        self.storage.put(build_index_key(key), footer, kms_key_id=kms_key_id)
        return replace(entry, key=key, producer=None, txn=None, is_segment=True, kms_key_id=kms_key_id)

    def _write_one_file(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        writer = SegmentWriter.for_partition(self.storage, self.rules, self.remote, segment.epoch)
        written = writer.write_one(
            batch for entry in segment.entries for batch in read_part(self.store, entry, self.partition.number, offsets)
        )
        is_whole = all(entry.is_within(offsets) for entry in segment.entries)
        if written is None and not is_whole:
            return None
        if written is None or (is_whole and written.digest != merge_digests(segment.entries)):
            self.storage.delete([] if written is None else [written.key, build_index_key(written.key)])
            where = f"{self.partition}, offsets {segment.base} to {segment.last}"
            message = f"{self.store.url}: {where}: its records do not match the digest in the head"
            raise UserError(message, hint="Restore its parts from a copy of the store; nothing was uploaded.")
        return written.as_segment(segment.entries, segment.epoch)


_MAX_READS: Final = 3


def read_agreeing_tiers(
    store: ObjectStore, storage: ObjectStore, partition: Partition, tiering: TopicTiering
) -> tuple[Head, Manifest] | None:
    """Return head and manifest once they agree; `None` under a newer tiered epoch.

    They may differ after an interrupted upload, or if a restored cluster wrote other records. Digests are compared;
    after a compaction, only end offsets.
    """
    remote = remote_partition(tiering.location, partition.number)
    look = 1
    while True:
        manifest = read_manifest(storage, remote)
        head = read_head(store, partition.topic_id, partition.number)
        if manifest is not None and head is not None and manifest.end < head.uploaded_to:
            manifest = read_manifest(storage, remote)
        if head is None or max(head.tiered_epoch, manifest.tiered_epoch if manifest else 0) > tiering.epoch:
            return None
        check_has_uploaded_records(manifest, head, remote, partition)
        if manifest is None:
            return None
        try:
            other = _find_differing_offsets(store, storage, head, manifest, partition.number)
        except MissingObjectError:
            # Another process may have replaced the object.
            if look == _MAX_READS:
                raise
        else:
            if other is None:
                return head, manifest
            if look == _MAX_READS:
                raise _older_copy_error(partition, remote.key, other)
        look += 1


def _find_differing_offsets(
    store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest, number: int
) -> OffsetRange | None:
    if manifest.end > head.end:
        return OffsetRange(head.uploaded_to, manifest.end)
    start = max(head.uploaded_to, head.local_start)
    if start >= manifest.end or max(head.compacted_to, manifest.compacted_to) > start:
        return None
    both = OffsetRange(start, manifest.end)
    is_same = _compute_digest(store, head, both, number) == _compute_digest(storage, manifest, both, number)
    return None if is_same else both


def _compute_digest(store: ObjectStore, held: PagedEntries, offsets: OffsetRange, number: int) -> Digest:
    digest = Digest()
    for entry in iter_entries_within(store, held, offsets):
        if entry.is_within(offsets):
            digest += entry.digest.shift(entry.base)
        else:
            for batch in read_part(store, entry, number, offsets):
                digest += compute_digest(batch, base=0)
    return digest


def _older_copy_error(partition: Partition, key: str, other: OffsetRange) -> UserError:
    message = (
        f"{partition}: object storage has other records at offsets {other.start} to {other.stop - 1} than the cluster "
        f"({key}): the cluster is an older copy"
    )
    hint = (
        "Restore the newest copy of the cluster, or recover the topic from object storage under another name "
        "(recoverFrom); nothing was uploaded."
    )
    return UserError(message, hint=hint)


_FILE: Final = "file://"
_NO_DISK: Final = 1 << 40
_ALL_SHARES: Final = 1000
"""Shares that stand for all connections."""
_PREFIX: Final = "cloud_storage_upload_ctrl_"


@dataclass(frozen=True, slots=True)
class BacklogController:
    """Redpanda's PD controller: a larger backlog gives uploads more connections.

    An integral term would never decrease, since backlogs are not negative.
    """

    p_coeff: float = -2.0
    d_coeff: float = 0.0
    min_shares: int = 100
    max_shares: int = 1000
    interval_ms: int = 60_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> BacklogController:
        """Parse the controller from cluster properties."""

        def value(name: str) -> str:
            return read_property(properties, f"{_PREFIX}{name}") or "0"

        return cls(
            float(value("p_coeff")),
            float(value("d_coeff")),
            int(value("min_shares")),
            int(value("max_shares")),
            int(value("update_interval_ms")),
        )

    def compute_shares(self, error: float, before: float) -> int:
        """Return the uploads' shares for the current and the previous error."""
        wanted = int(self.p_coeff * (error + self.d_coeff * (error - before)))
        return max(self.min_shares, min(self.max_shares, wanted))


def compute_backlog_error(backlog_bytes: int, free_bytes: int) -> float:
    """Return minus the backlog, in thousandths of the free disk space."""
    return -backlog_bytes * _ALL_SHARES / max(free_bytes, 1)


def read_free_bytes(store: ObjectStore) -> int:
    """Return the free bytes of a store's disk; a constant for buckets."""
    if not store.url.startswith(_FILE):
        return _NO_DISK
    return shutil.disk_usage(store.url.removeprefix(_FILE)).free


def compute_connections(shares: int, connections: int) -> int:
    """Return how many connections uploads may use, at least one."""
    return max(1, min(connections, connections * shares // _ALL_SHARES))


Stretch = tuple[tuple[Entry, ...], tuple[Entry, ...]]
"""Remote entries, and the local entries that replace them."""


def uploads_again(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Whether a topic's segments are uploaded again after compaction."""
    is_on = read_property(remote.properties, "cloud_storage_enable_compacted_topic_reupload") == "true"
    return is_on and policy.tiering is not None and policy.tiering.uploads


def iter_outdated_stretches(
    store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest
) -> Iterator[Stretch]:
    """Yield outdated remote entries with their compacted local replacements, oldest first."""
    start, stop = head.local_start, min(head.compacted_to, manifest.end)
    if start >= stop:
        return
    both = OffsetRange(start, stop)
    whole = OffsetRange(0 if head.start == start else start, stop)
    for remote, local in group_by_overlap(
        iter_entries_within(storage, manifest, both), iter_entries_within(store, head, both)
    ):
        is_settled = all(entry.is_within(whole) for entry in (*remote, *local)) and all(
            segment_entry.is_segment for segment_entry in local
        )
        if is_settled and remote and list(map(_get_version, remote)) != list(map(_get_version, local)):
            yield remote, local


def find_compacted_end(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest) -> int:
    """Return the offset below which object storage has each key once."""
    both = OffsetRange(head.local_start, max(head.local_start, min(head.compacted_to, manifest.end)))
    for remote, local in group_by_overlap(
        iter_entries_within(storage, manifest, both), iter_entries_within(store, head, both)
    ):
        if list(map(_get_version, remote)) != list(map(_get_version, local)):
            return max(manifest.compacted_to, min(entry.base for entry in (*remote, *local)))
    return head.compacted_to


def group_by_overlap(remote: Iterable[Entry], local: Iterable[Entry]) -> Iterator[Stretch]:
    """Group both tiers' overlapping entries, oldest first."""
    tagged = chain(((entry, True) for entry in remote), ((entry, False) for entry in local))
    run: list[tuple[Entry, bool]] = []
    last = -1
    for entry, is_remote in sorted(tagged, key=lambda pair: (pair[0].base, pair[0].last)):
        if run and entry.base > last:
            yield _split_tiers(run)
            run = []
        run.append((entry, is_remote))
        last = max(last, entry.last)
    if run:
        yield _split_tiers(run)


def upload_compacted_again(
    upload: PartitionUpload, head: Head, manifest: Manifest, remote: RemoteTier, offsets: OffsetRange
) -> PartitionRewrite:
    """Upload replacements of a range's outdated segments; no manifest references them yet."""
    with delete_segments_on_error(remote.storage) as done:
        for far, near in iter_outdated_stretches(upload.store, remote.storage, head, manifest):
            if offsets.start <= max(far[0].base, head.local_start) < offsets.stop:
                done.append(Replacement.of(far, list(_build_successors(upload, far, near))))
    rewrite = RemoteRewrite(upload.remote, remote.cluster_id, upload.tiering, tuple(done))
    return PartitionRewrite(upload.partition, (), remote=rewrite)


def _build_successors(upload: PartitionUpload, remote: Sequence[Entry], local: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the new remote entries; copy nothing if only the tombstone horizon differs."""
    if list(map(_get_content, remote)) == list(map(_get_content, local)):
        yield from (replace(far, horizon_ms=near.horizon_ms) for far, near in zip(remote, local, strict=True))
    else:
        yield from map(upload.copy_file, local)


def _split_tiers(run: Sequence[tuple[Entry, bool]]) -> Stretch:
    remote = tuple(entry for entry, is_remote in run if is_remote)
    return remote, tuple(entry for entry, is_remote in run if not is_remote)


def _get_version(entry: Entry) -> tuple[object, ...]:
    return *_get_content(entry), entry.horizon_ms


def _get_content(entry: Entry) -> tuple[object, ...]:
    return entry.base, entry.last, entry.digest
