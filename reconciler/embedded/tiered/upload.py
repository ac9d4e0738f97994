"""Upload segments to object storage, and again after compaction.

A segment that is one file is copied as it is, by the store where both can; of several parts one file is made. What was
uploaded before its segment was closed is left out: remote segments never overlap. Each goes with its index, the footer
of its Parquet file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.archives.entries import Entry
from reconciler.archives.keys import index_key, segment_key
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import Paged, entries_within
from reconciler.embedded.segments.head import Head, Partition, read_head
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.segments.retention import CleanupPolicy, Segment, SegmentLimits, segments_of
from reconciler.embedded.segments.rewrites import Replacement
from reconciler.embedded.tiered.object_rewrites import (
    RemoteRewrite,
    Rewritten,
    SegmentWriter,
    footer_of,
    merged_digest,
    whole_or_deleted,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_not_behind
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.hashes import digest_of
from reconciler.records.log import Digest, OffsetRange
from reconciler.resources.cluster_properties import property_of
from reconciler.runtime.effects import this_process

if TYPE_CHECKING:
    from reconciler.archives.location import Tiering
    from reconciler.embedded.segments.admission import Rules
    from reconciler.objectstore.base import ObjectStore


_AT_ONCE: Final = 4
"""Segments of one partition copied side by side: the store does the copying, we wait for it."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Segments of one partition that were put: durable, and named by nobody yet. Picklable."""

    partition: Partition
    remote: RemotePartition
    offsets: OffsetRange
    """What they hold everything of; the manifest that takes them over ends where it begins."""
    entries: tuple[Entry, ...]
    epochs: tuple[tuple[int, int], ...]
    tiering: Tiering
    """What held for the topic when they were put."""
    by: str = field(default_factory=this_process, compare=False)
    """Which process put them."""

    @property
    def keys(self) -> list[str]:
        """Every object that was put."""
        return [key for entry in self.entries for key in (entry.key, index_key(entry.key))]


def to_upload(
    entries: Iterable[Entry], limits: SegmentLimits, *, stable: int, takes_open: bool = False
) -> Iterator[Segment]:
    """Yield the segments to upload of entries the manifest does not have: closed ones below the last stable offset.

    `takes_open`: what is stable of the open segment, too. Pure.
    """
    for segment in segments_of(entries, limits):
        if segment.is_closed and segment.last < stable:
            yield segment
            continue
        rest = tuple(entry for entry in segment.entries if entry.last < stable)
        if takes_open and rest:
            yield Segment(rest, is_closed=False)
        return


@dataclass(frozen=True)
class Upload:
    """Copies what lies in a range of one partition's offsets to object storage."""

    store: ObjectStore
    storage: ObjectStore
    partition: Partition
    tiering: Tiering
    rules: Rules

    @property
    def remote(self) -> RemotePartition:
        """Where it goes."""
        return remote_partition(self.tiering.location, self.partition.number)

    def put(self, head: Head, limits: SegmentLimits, offsets: OffsetRange) -> Uploaded:
        """Put every segment, or what of it lies in the range, with its index; nothing of it is named yet.

        Raises:
            MissingObjectError: A part or page is not there.
            UserError: A part is damaged, or the storage cannot encrypt as the namespace asks.
        """
        # The log may have been cut since the range was chosen: what is mirrored above is uploaded later.
        offsets = OffsetRange(offsets.start, max(offsets.start, min(offsets.stop, head.end)))
        # What expired since the manifest ends may still be named by a page that was cut.
        start = min(max(offsets.start, head.local_start), offsets.stop)
        segments = list(segments_of(entries_within(self.store, head, OffsetRange(start, offsets.stop)), limits))
        done: list[Entry] = []

        def put(segment: Segment) -> None:
            entry = self._segment(segment, offsets)
            if entry is not None:
                done.append(entry)

        try:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload") as threads:
                list(threads.map(put, segments))
        except BaseException:
            self.storage.delete([key for entry in done for key in (entry.key, index_key(entry.key))])
            raise
        entries = tuple(sorted(done, key=lambda entry: entry.base))
        return Uploaded(self.partition, self.remote, offsets, entries, head.epochs, self.tiering)

    def _segment(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        first = segment.entries[0]
        if len(segment.entries) == 1 and first.is_within(offsets):
            return self.copy(first)
        return self._one_file(segment, offsets)

    def copy(self, entry: Entry) -> Entry:
        """Put a file as it is, with its index.

        Raises:
            MissingObjectError: It is not there.
            UserError: It is damaged, or the storage cannot encrypt as the namespace asks.
        """
        kms_key_id = self.rules.kms_key_id
        key = segment_key(self.remote.place, (entry.base, entry.last), entry.bytes, entry.epoch)
        footer = footer_of(self.store, entry.key, entry.bytes)
        self.storage.copy_in(key, self.store, entry.key, kms_key_id=kms_key_id)
        self.storage.put(index_key(key), footer, kms_key_id=kms_key_id)
        return replace(entry, key=key, producer=None, txn=None, is_segment=True, kms_key_id=kms_key_id)

    def _one_file(self, segment: Segment, offsets: OffsetRange) -> Entry | None:
        """Make one file of what lies in the range; `None`: nothing is left of it there."""
        writer = SegmentWriter.under(self.storage, self.rules, self.remote, segment.epoch)
        written = writer.write_one(
            batch for entry in segment.entries for batch in read_part(self.store, entry, self.partition.number, offsets)
        )
        is_whole = all(entry.is_within(offsets) for entry in segment.entries)
        if written is None and not is_whole:
            return None
        if written is None or (is_whole and written.digest != merged_digest(segment.entries)):
            self.storage.delete([] if written is None else [written.key, index_key(written.key)])
            where = f"{self.partition}, offsets {segment.base} to {segment.last}"
            message = f"{self.store.url}: {where}: its records are not those whose digest the head keeps"
            raise UserError(message, hint="Restore its parts from a copy of the store; nothing was uploaded.")
        return written.as_segment(segment.entries, segment.epoch)


# What a manifest names and the head does not know as uploaded: an upload that died in between, or others' records.
#
# A cluster that was put back from an older copy writes offsets anew that object storage has with other records. So the
# head follows its manifest only where both have the same: by digests, and by reading where a border cuts a segment.
# Where keys were compacted since, the copies differ rightly, and only the ends are compared.


_LOOKS: Final = 3


def agreeing(
    store: ObjectStore, storage: ObjectStore, partition: Partition, tiering: Tiering
) -> tuple[Head, Manifest] | None:
    """Return head and manifest as they are now, once both say the same; `None`: others know more than we do.

    Raises:
        MissingObjectError: A part or page is not there.
        UserError: The manifest lacks what was uploaded, or has other records than the head.
    """
    remote = remote_partition(tiering.location, partition.number)
    look = 1
    while True:
        # The head never falls behind what a manifest named before, nor a manifest behind what a head said before.
        manifest = read_manifest(storage, remote)
        head = read_head(store, partition.topic_id, partition.number)
        if manifest is not None and head is not None and manifest.end < head.uploaded_to:
            manifest = read_manifest(storage, remote)
        if head is None or max(head.tiered_epoch, manifest.tiered_epoch if manifest else 0) > tiering.epoch:
            return None
        check_not_behind(manifest, head, remote, partition)
        if manifest is None:
            return None
        try:
            other = _other(store, storage, head, manifest, partition.number)
        except MissingObjectError:
            # Others may have put another object in its place: head and manifest tell.
            if look == _LOOKS:
                raise
        else:
            if other is None:
                return head, manifest
            if look == _LOOKS:
                raise _older(partition, remote.key, other)
        look += 1


def _other(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest, number: int) -> OffsetRange | None:
    """Return the offsets that object storage has other records at; `None`: there are none."""
    if manifest.end > head.end:
        return OffsetRange(head.uploaded_to, manifest.end)
    start = max(head.uploaded_to, head.local_start)
    if start >= manifest.end or max(head.compacted_to, manifest.compacted_to) > start:
        return None
    both = OffsetRange(start, manifest.end)
    is_same = _digest(store, head, both, number) == _digest(storage, manifest, both, number)
    return None if is_same else both


def _digest(store: ObjectStore, held: Paged, offsets: OffsetRange, number: int) -> Digest:
    found = Digest()
    for entry in entries_within(store, held, offsets):
        if entry.is_within(offsets):
            found += entry.digest.shifted(entry.base)
        else:
            for batch in read_part(store, entry, number, offsets):
                found += digest_of(batch, base=0)
    return found


def _older(partition: Partition, key: str, other: OffsetRange) -> UserError:
    message = (
        f"{partition}: object storage has other records at offsets {other.start} to {other.stop - 1} than the cluster "
        f"({key}): the cluster is an older copy"
    )
    hint = (
        "Restore the newest copy of the cluster, or recover the topic from object storage under another name "
        "(recoverFrom); nothing was uploaded."
    )
    return UserError(message, hint=hint)


# The backlog of uploads, and the share of the connections that it earns them: a PD controller, Redpanda's.
#
# More backlog, more share. There is no integral part: a backlog never goes below nothing, so one would never unwind.


_FILE: Final = "file://"
_NO_DISK: Final = 1 << 40
_WHOLE: Final = 1000
"""Shares that are all of the connections."""
_PREFIX: Final = "cloud_storage_upload_ctrl_"


@dataclass(frozen=True, slots=True)
class Controller:
    """Its coefficients and limits, as the cluster's properties have them."""

    p_coeff: float = -2.0
    d_coeff: float = 0.0
    min_shares: int = 100
    max_shares: int = 1000
    interval_ms: int = 60_000
    """How often the share is set anew."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Controller:
        """Read them."""

        def value(name: str) -> str:
            return property_of(properties, f"{_PREFIX}{name}") or "0"

        return cls(
            float(value("p_coeff")),
            float(value("d_coeff")),
            int(value("min_shares")),
            int(value("max_shares")),
            int(value("update_interval_ms")),
        )

    def shares(self, error: float, before: float) -> int:
        """Return the shares for an error, and what it was the last time."""
        wanted = int(self.p_coeff * (error + self.d_coeff * (error - before)))
        return max(self.min_shares, min(self.max_shares, wanted))


def error_of(backlog_bytes: int, free_bytes: int) -> float:
    """Return how far a backlog is from none, in thousandths of the disk space that is free: never above 0."""
    return -backlog_bytes * _WHOLE / max(free_bytes, 1)


def free_bytes(store: ObjectStore) -> int:
    """Return the disk space that is free where a store lies; of a bucket, which never fills up, a large disk's."""
    if not store.url.startswith(_FILE):
        return _NO_DISK
    return shutil.disk_usage(store.url.removeprefix(_FILE)).free


def connections_of(shares: int, connections: int) -> int:
    """Return how many connections uploads may use at once, of all there are; at least one."""
    return max(1, min(connections, connections * shares // _WHOLE))


# Uploading once more what was compacted since: the remote copies of a stretch give place to what lies here now.
#
# A record that compaction removed here goes there too; what is read stays right with any mix of both, for the newest
# record of every key is in either. Segments are compared by their offsets and digests, never by their bytes.


Stretch = tuple[tuple[Entry, ...], tuple[Entry, ...]]
"""What lies there, and what lies here in its place; of either maybe nothing."""


def reuploads(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Tell whether what was compacted of a topic is uploaded once more, be it compacted still or not."""
    is_on = property_of(remote.properties, "cloud_storage_enable_compacted_topic_reupload") == "true"
    return is_on and policy.tiering is not None and policy.tiering.uploads


def outdated(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest) -> Iterator[Stretch]:
    """Yield the stretches of which the remote tier has another version than the local one, oldest first.

    They are compacted here, in whole segments, lie in both tiers and nowhere else. What the start of the log cuts lies
    nowhere else either.
    """
    start, stop = head.local_start, min(head.compacted_to, manifest.end)
    if start >= stop:
        return
    both = OffsetRange(start, stop)
    whole = OffsetRange(0 if head.start == start else start, stop)
    for there, here in stretches(entries_within(storage, manifest, both), entries_within(store, head, both)):
        is_settled = all(entry.is_within(whole) for entry in (*there, *here)) and all(each.is_segment for each in here)
        if is_settled and there and list(map(_version, there)) != list(map(_version, here)):
            yield there, here


def compacted_there(store: ObjectStore, storage: ObjectStore, head: Head, manifest: Manifest) -> int:
    """Return the offset below which no key comes twice in object storage either: where both tiers begin to differ."""
    both = OffsetRange(head.local_start, max(head.local_start, min(head.compacted_to, manifest.end)))
    for there, here in stretches(entries_within(storage, manifest, both), entries_within(store, head, both)):
        if list(map(_version, there)) != list(map(_version, here)):
            return max(manifest.compacted_to, min(entry.base for entry in (*there, *here)))
    return head.compacted_to


def stretches(there: Iterable[Entry], here: Iterable[Entry]) -> Iterator[Stretch]:
    """Yield entries of both tiers, those that overlap together; each oldest first. Pure."""
    tagged = chain(((entry, True) for entry in there), ((entry, False) for entry in here))
    run: list[tuple[Entry, bool]] = []
    last = -1
    for entry, is_remote in sorted(tagged, key=lambda each: (each[0].base, each[0].last)):
        if run and entry.base > last:
            yield _split(run)
            run = []
        run.append((entry, is_remote))
        last = max(last, entry.last)
    if run:
        yield _split(run)


def reuploaded(upload: Upload, head: Head, manifest: Manifest, remote: RemoteTier, offsets: OffsetRange) -> Rewritten:
    """Put what takes the place of the outdated stretches that begin in a range; nothing of it is named yet.

    Raises:
        MissingObjectError: A part or page is not there.
        UserError: A part is damaged.
    """
    with whole_or_deleted(remote.storage) as done:
        for there, here in outdated(upload.store, remote.storage, head, manifest):
            if offsets.start <= max(there[0].base, head.local_start) < offsets.stop:
                done.append(Replacement.of(there, list(_successors(upload, there, here))))
    rewrite = RemoteRewrite(upload.remote, remote.cluster_id, upload.tiering, tuple(done))
    return Rewritten(upload.partition, (), remote=rewrite)


def _successors(upload: Upload, there: Sequence[Entry], here: Sequence[Entry]) -> Iterator[Entry]:
    """Yield what takes the place of a stretch: where only the time for tombstones was set, nothing is copied."""
    if list(map(_content, there)) == list(map(_content, here)):
        yield from (replace(far, horizon_ms=near.horizon_ms) for far, near in zip(there, here, strict=True))
    else:
        yield from map(upload.copy, here)


def _split(run: Sequence[tuple[Entry, bool]]) -> Stretch:
    there = tuple(entry for entry, is_remote in run if is_remote)
    return there, tuple(entry for entry, is_remote in run if not is_remote)


def _version(entry: Entry) -> tuple[object, ...]:
    return *_content(entry), entry.horizon_ms


def _content(entry: Entry) -> tuple[object, ...]:
    return entry.base, entry.last, entry.digest
