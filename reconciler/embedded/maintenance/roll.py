"""Merge segments, move objects to another encryption key, and publish what was rewritten.

A commit that changes a topic's key marks it. Every part says under which key it lies, so the work is found again by
whoever comes next; a reader that misses an object looks at the head again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import index_key
from reconciler.archives.manifest import RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import entries_within
from reconciler.embedded.catalog.tables import Draft, is_closed, names_by_id
from reconciler.embedded.catalog.topic_configs import key_of
from reconciler.embedded.keys import part_key
from reconciler.embedded.objects import check_arrived
from reconciler.embedded.segments.head import NOBODY, Head, Partition, read_head, swap_head
from reconciler.embedded.segments.retention import live_entries
from reconciler.embedded.segments.rewrites import Gain, Replacement
from reconciler.embedded.tiered.object_rewrites import (
    RemoteRewrite,
    Rewritten,
    SegmentWriter,
    keys_of,
    merged_digest,
    publish_remote,
    publish_rewritten,
    records_of,
    whole_or_deleted,
    whole_or_gone,
)
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.topic_deletion import each_head, heads_of, raise_first
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange
from reconciler.resources.cluster_properties import property_of

if TYPE_CHECKING:
    from reconciler.archives.entries import Entry
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.segments.admission import Rules
    from reconciler.embedded.segments.retention import CleanupPolicy
    from reconciler.objectstore.base import ObjectStore


AT_ONCE: Final = 8
"""Objects of one partition copied side by side: the store does the copying, we wait for it."""
CHUNK: Final = 256
"""Objects named by one swap: what is lost when we die."""
_LOOKS: Final = 10
"""How often a partition is gone through whose writers are in the way, before it is left to the next run."""


def finish_rewrites(
    store: ObjectStore, catalog: CatalogRegister, is_stopped: Callable[[], bool] = lambda: False
) -> int:
    """Bring the objects of every marked topic under its key, then take the marks away; return how many are done.

    Raises:
        MissingObjectError: An object that a head names is not there; the topics without such a one are done.
    """
    now = catalog.read()
    closed = {topic.id for topic in now.topics.values() if is_closed(topic)}  # Their migration alone touches them.
    marked = [topic_id for topic_id in now.rewrites if topic_id not in closed]
    names = names_by_id(now, marked)
    keys = {topic_id: key_of(now, name) for topic_id, name in names.items()}

    def rewritten(head: tuple[str, int]) -> bool:
        topic_id, number = head
        return _rewrite(store, Partition(names[topic_id], topic_id, number), keys[topic_id], is_stopped)

    left = each_head(rewritten, heads_of(store, names)) if names else {}
    done = [topic_id for topic_id in marked if topic_id not in left]

    def unmark(draft: Draft) -> None:
        moved = names_by_id(draft, done)
        for topic_id in done:
            # Where the key has changed once more it stays marked.
            is_right = topic_id not in moved or key_of(draft, moved[topic_id]) == keys.get(topic_id)
            if is_right and topic_id in draft.rewrites:
                draft.put_rewrite(topic_id, None)

    after = catalog.commit(unmark) if done else now
    raise_first(left)
    return sum(topic_id not in after.rewrites for topic_id in done)


def _rewrite(store: ObjectStore, partition: Partition, kms_key_id: str | None, is_stopped: Callable[[], bool]) -> bool:
    """Bring all of a partition under a key; say whether it is, and whoever appends knows."""
    for look in range(_LOOKS):
        head = read_head(store, partition.topic_id, partition.number)
        if head is None:
            return True
        if head.writer == NOBODY:
            return False
        try:
            # A page that retention has cut names parts that are gone.
            others = [entry for entry in live_entries(store, head) if entry.kms_key_id != kms_key_id]
            for at in range(0, len(others), CHUNK):
                if is_stopped():
                    return False
                _replace(store, partition, others[at : at + CHUNK], kms_key_id)
        except MissingObjectError:
            # Other upkeep may have put another object in its place: the head tells.
            if look == _LOOKS - 1:
                raise
            continue
        if not others and _settled(store, partition, head, kms_key_id):
            return True
    return False


def _replace(store: ObjectStore, partition: Partition, entries: Sequence[Entry], kms_key_id: str | None) -> None:
    put_ms = store.clock_ms()

    def copied(entry: Entry) -> None:
        key = part_key(partition.full_name, partition.number)
        store.copy_in(key, store, entry.key, kms_key_id=kms_key_id)
        done.append(Replacement.of([entry], [replace(entry, key=key, kms_key_id=kms_key_id)]))

    with whole_or_gone(store) as done, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewrite") as threads:
        list(threads.map(copied, entries))
    written = Rewritten(partition, tuple(done), changes_key=True)
    publish_rewritten(store, written, put_ms=put_ms, now_ms=store.clock_ms)


def _settled(store: ObjectStore, partition: Partition, seen: Head, kms_key_id: str | None) -> bool:
    """Let the head say that all of it lies under a key; `False`: something has come since it was gone through."""
    if seen.kms_key_id == kms_key_id:
        return True
    pages = {page.key for page in seen.pages}

    def settle(head: Head) -> Head | None:
        is_whole = all(entry.kms_key_id == kms_key_id for entry in head.entries)
        return replace(head, kms_key_id=kms_key_id) if is_whole and pages.issuperset(_keys(head)) else None

    return swap_head(store, partition, settle)


def _keys(head: Head) -> set[str]:
    return {page.key for page in head.pages}


# What was written of a partition is named: in object storage first, then here.
#
# In this order nothing of the local tier ever counts on what the remote tier does not have yet: where the remote part
# is not as it was read, nothing is named, and what was written is deleted.


def publish(
    store: ObjectStore, remote: RemoteTier | None, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> Gain | None:
    """Name what was written, then delete what that makes superfluous, in each tier.

    `put_ms`: since when it may have lain there, by the clock `now_ms`. Return what came of it; `None`: nothing.

    Raises:
        MissingObjectError: A page is not there.
        UserError: An executor wrote it, and a store here is not shared with that.
        OwnershipLostError: The partition's remote part belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    if rewritten.remote is None or remote is None:
        return publish_rewritten(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    there: Gain | None = None
    written = keys_of(key for one in rewritten.remote.replacements for key in one.written)
    check_arrived(remote.storage, written, by=rewritten.by)
    try:
        there = publish_remote(remote.storage, rewritten.remote, put_ms=put_ms, now_ms=now_ms)
    finally:
        if there is None:
            _drop_local(store, rewritten)
    if there is None or rewritten.compacted_to is None:
        return there
    here = publish_rewritten(store, rewritten, put_ms=put_ms, now_ms=now_ms)
    return there if here is None else Gain(there.records + here.records, there.bytes + here.bytes, there.uploaded)


def drop(
    store: ObjectStore, remote: RemoteTier | None, rewritten: Rewritten, *, put_ms: int, now_ms: Callable[[], int]
) -> None:
    """Delete what was written and is not to be named. It is called as `publish` is."""
    del put_ms, now_ms
    _drop_local(store, rewritten)
    if rewritten.remote is not None and remote is not None:
        remote.storage.delete(keys_of(key for one in rewritten.remote.replacements for key in one.written))


def _drop_local(store: ObjectStore, rewritten: Rewritten) -> None:
    store.delete([key for one in rewritten.replacements for key in one.written])


# Which neighbours in the remote tier are worth being one object. Pure.
#
# A run is of segments that are each smaller than `high`, of one epoch, one after the other without a gap, and together
# not larger than `high`. It is merged where it is larger than `low`, and where what follows ends it: nothing better
# will come. At the end of the log a run up to `low` waits for more. So does one of which the first segment is more than
# half: it was merged before, and would be written again with every segment that comes. Once the next does not fit, it
# is.
#
# A gap is any offset between two segments that neither has. Whether it is of an aborted transaction, or of records that
# were never uploaded, the manifest does not tell, and an object across it would hide the difference: none is ever made.


_LOW_PERCENT: Final = 50
_LOWERED_PERCENT: Final = 80
"""Of `high`, where what is set as `low` is not below it."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Stored bytes: `high` is the largest a merged segment may be, runs up to `low` wait for more."""

    high: int
    low: int


def merge_limits(properties: Mapping[str, str], segment_bytes: int) -> MergeLimits:
    """Return what holds for a topic: the cluster's word, else its own `segment.bytes` and half of that (F-R-064)."""
    target = property_of(properties, "cloud_storage_segment_size_target")
    least = property_of(properties, "cloud_storage_segment_size_min")
    high = segment_bytes if target is None else int(target)
    low = high * _LOW_PERCENT // 100 if least is None else int(least)
    return MergeLimits(high, low if low < high else high * _LOWERED_PERCENT // 100)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours that may become one object: as many as fit, maybe one alone."""

    entries: tuple[Entry, ...]
    is_last: bool
    """Whether the log ends with it."""

    @property
    def bytes(self) -> int:
        """What they take in the store."""
        return sum(entry.bytes for entry in self.entries)

    @property
    def is_open(self) -> bool:
        """Tell whether anything may ever become of it."""
        return self.is_last or len(self.entries) > 1

    def is_worth(self, limits: MergeLimits) -> bool:
        """Tell whether it is to become one object now."""
        if len(self.entries) == 1 or not self.is_last:
            return len(self.entries) > 1
        return self.bytes > limits.low and 2 * self.entries[0].bytes <= self.bytes


def runs_to_merge(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[tuple[Entry, ...]]:
    """Yield the runs that are to become one object each, oldest first."""
    return (run.entries for run in runs_of(entries, limits) if run.is_worth(limits))


def runs_of(entries: Iterable[Entry], limits: MergeLimits) -> Iterator[Run]:
    """Yield all runs of segments that are smaller than `high`, oldest first. Where one begins, looking may begin."""
    run: list[Entry] = []
    size = 0
    for entry in entries:
        if run and not (_follows(run[-1], entry) and size + entry.bytes <= limits.high):
            yield Run(tuple(run), is_last=False)
            run, size = [], 0
        if entry.bytes < limits.high:
            run.append(entry)
            size += entry.bytes
    if run:
        yield Run(tuple(run), is_last=True)


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.base == before.last + 1 and entry.epoch == before.epoch


# Merging: small neighbours in object storage become one segment, with the same records, offsets, times and digest.
#
# What is written has its index beside it and is named by one swap of the manifest, in the place of the run; the run's
# objects are deleted after it. Rows flow from one file into the next, a row group at a time.


_MERGES: Final = "cloud_storage_enable_segment_merging"


def merges(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Tell whether a topic's remote segments are merged at all (F-R-064, F-R-065).

    Those of a compacted topic are written anew as they are compacted; where nothing is uploaded, nothing is merged.
    """
    is_on = property_of(remote.properties, _MERGES) == "true"
    return is_on and not policy.compacts and policy.tiering is not None and policy.tiering.uploads


@dataclass(frozen=True)
class Merge:
    """Merges of one partition. Nothing of what it writes is named yet."""

    remote: RemoteTier
    partition: Partition
    policy: CleanupPolicy
    rules: Rules

    def written(self, offsets: OffsetRange) -> Rewritten | None:
        """Write one object for each run that begins in a range, where a run begins too; `None`: there is none now.

        Raises:
            MissingObjectError: A segment or page is not there.
            UserError: A segment is damaged.
        """
        tiering = self.policy.tiering
        if tiering is None or not merges(self.policy, self.remote):
            return None
        place = remote_partition(tiering.location, self.partition.number)
        with whole_or_deleted(self.remote.storage) as done:
            for run in self._runs(place, offsets):
                done.append(Replacement.of(run, [self._one_object(run, place)]))
        if not done:
            return None
        return Rewritten(self.partition, (), remote=RemoteRewrite(place, self.remote.cluster_id, tiering, tuple(done)))

    def _runs(self, place: RemotePartition, offsets: OffsetRange) -> Iterator[tuple[Entry, ...]]:
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return
        limits = merge_limits(self.remote.properties, self.policy.limits.bytes)
        there = OffsetRange(max(offsets.start, manifest.start), max(offsets.start, manifest.start, manifest.end))
        for run in runs_to_merge(entries_within(self.remote.storage, manifest, there), limits):
            if run[0].base >= offsets.stop:
                return
            yield run

    def _one_object(self, run: tuple[Entry, ...], place: RemotePartition) -> Entry:
        storage = self.remote.storage
        writer = SegmentWriter.under(storage, self.rules, place, run[0].epoch)
        written = writer.write_one(records_of(storage, run, self.partition.number))
        is_same = written is not None and (written.base, written.last) == (run[0].base, run[-1].last)
        if written is None or not is_same or written.digest != merged_digest(run):
            storage.delete([] if written is None else [written.key, index_key(written.key)])
            offsets = f"{self.partition}, offsets {run[0].base} to {run[-1].last}"
            message = f"{storage.url}: {offsets}: its records are not those whose digest the manifest keeps"
            raise UserError(
                message, hint="`reconciler run --once --only scrub` says what is wrong; nothing was changed."
            )
        return written.as_segment(run, run[0].epoch)
