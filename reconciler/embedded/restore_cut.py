"""Truncate a log on both tiers for `restore`.

One swap truncates a head under the next epoch. The head stores the operation, its offset and the number of removed
records, so a repetition removes nothing. Then the manifest is truncated (`tiered/remote_retention.py`).

Compaction may have replaced records below the new end by records above it, so a log compacted beyond the new end is
removed completely and mirrored again. A compaction may publish such a result until the manifest is truncated, so the
log is checked again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.manifest import ManifestSwap, RemotePartition, read_manifest, remote_partition
from reconciler.archives.objects import missing_offsets_error, retry_if_missing
from reconciler.archives.pages import PagedEntries, read_page, read_pages
from reconciler.archives.storage import check_storage, check_storage_given
from reconciler.embedded.catalog.tables import find_current_name, get_topic
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.segments.gate import delete_referenced_objects, find_writer
from reconciler.embedded.segments.head import Head, Partition, head_register, parse_head, read_head
from reconciler.embedded.segments.parts import PART_BYTES, PartWriter, damaged_part_error, read_part
from reconciler.embedded.tiered.remote_retention import truncate_manifest
from reconciler.embedded.tiered.remote_tier import build_remote_tier
from reconciler.errors import RetryableError, UserError
from reconciler.objectstore.register import create_mark
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import TruncatedPartition
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import RegisterSnapshot


@dataclass(frozen=True, slots=True)
class NamedObjects:
    """Parts and pages that a head or manifest referenced."""

    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _SplitLog:
    pages: list[PageRef] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    removed_pages: list[PageRef] = field(default_factory=list)
    removed_entries: list[Entry] = field(default_factory=list)
    split_pages: list[str] = field(default_factory=list)
    """Keys of pages that contain the new end, lower levels first."""


class HeadTruncation:
    """Truncates one partition's local tier; a retry reuses parts already written.

    Objects are deleted after the swap; after a crash, by the sweep.
    """

    def __init__(self, store: ObjectStore, partition: Partition) -> None:
        self._store = store
        self._partition = partition
        self._written: dict[tuple[str, int], Entry] = {}
        self._split = _SplitLog()

    def truncate_head(self, head: Head, at: int) -> Head:
        """Return the head truncated to the end offset `at`, with the same epochs."""
        split = self._split = self._split_log(head, at)
        return replace(
            head,
            start=min(head.start, at),
            local_start=min(head.local_start, at),
            end=at,
            uploaded_to=min(head.uploaded_to, at),
            compacted_to=min(head.compacted_to, at),
            pages=tuple(split.pages),
            entries=tuple(split.entries),
            producers=_remaining_producers(head.producers, split),
            transactions={name: one for name, one in head.transactions.items() if one["base"] < at},
            source=_limit_fetched_offset(head.source, at),
        )

    def delete_unreferenced(self, *, is_done: bool) -> None:
        """Delete removed parts and pages if the head's swap succeeded (`is_done`), otherwise the new parts."""
        split = self._split if is_done else _SplitLog()
        named = {entry.key for entry in split.entries}
        self._store.delete([entry.key for entry in self._written.values() if entry.key not in named])
        delete_referenced_objects(self._store, NamedObjects(tuple(split.removed_pages), tuple(split.removed_entries)))
        self._store.delete(split.split_pages)

    def _split_log(self, head: Head, at: int) -> _SplitLog:
        split = _SplitLog()
        if at <= head.local_start:
            split.removed_pages += head.pages
            split.removed_entries += head.entries
            return split
        self._split_pages(head.pages, at, split)
        self._split_entries(head.entries, at, split)
        return split

    def _split_pages(self, pages: Iterable[PageRef], at: int, split: _SplitLog) -> None:
        for page in pages:
            if page.last < at:
                split.pages.append(page)
            elif page.base >= at:
                split.removed_pages.append(page)
            else:
                if page.level:
                    self._split_pages(read_pages(self._store, page), at, split)
                else:
                    self._split_entries(read_page(self._store, page), at, split)
                split.split_pages.append(page.key)

    def _split_entries(self, entries: Iterable[Entry], at: int, split: _SplitLog) -> None:
        for entry in entries:
            if entry.base < at:
                split.entries.append(entry if entry.last < at else self._rewrite_below(entry, at))
            if entry.last >= at:
                split.removed_entries.append(entry)

    def _rewrite_below(self, entry: Entry, at: int) -> Entry:
        written = self._written.get((entry.key, at))
        if written is None:
            full_name, number = self._partition.full_name, self._partition.number
            writer = PartWriter(
                self._store, full_name, number, compression="producer", limit=PART_BYTES, kms_key_id=entry.kms_key_id
            )
            entry_below = writer.write_one(read_part(self._store, entry, number, OffsetRange(entry.base, at)))
            if entry_below is None:
                raise damaged_part_error(self._store, entry, f"it has no record below offset {at}")
            written = self._written[entry.key, at] = replace(
                entry_below, epoch=entry.epoch, txn=entry.txn, is_segment=entry.is_segment, horizon_ms=entry.horizon_ms
            )
        return written


def _limit_fetched_offset(source: dict[str, Any] | None, at: int) -> dict[str, Any] | None:
    if source is None or source.get("fetched", at) <= at:
        return source
    return {**source, "fetched": at}


def _remaining_producers(producers: dict[str, Any], split: _SplitLog) -> dict[str, Any]:
    """Return the producers without removed parts; empty if a removed part names no producer."""
    if split.removed_pages or any(entry.producer is None for entry in split.removed_entries):
        return {}
    cut = {entry.producer["id"] for entry in split.removed_entries if entry.producer is not None}
    return {name: known for name, known in producers.items() if name not in cut}


def count_records(store: ObjectStore, held: PagedEntries, offsets: OffsetRange, partition: int) -> int:
    """Count the records of an offset range; only parts at its limits are read."""
    return _count_item_records(store, (*held.pages, *held.entries), offsets, partition)


def _count_item_records(
    store: ObjectStore, items: Iterable[PageRef | Entry], offsets: OffsetRange, partition: int
) -> int:
    total = 0
    for item in items:
        cut = OffsetRange(max(item.base, offsets.start), min(item.last + 1, offsets.stop))
        is_within = cut.length == item.last + 1 - item.base
        match item:
            case _ if not cut.length:
                continue
            case PageRef() if is_within:
                total += item.records
            case PageRef():
                below = read_pages(store, item) if item.level else read_page(store, item)
                total += _count_item_records(store, below, cut, partition)
            case Entry() if is_within:
                total += item.digest.records
            case Entry() if item.is_dense:
                total += cut.length
            case Entry():
                total += sum(batch.num_rows for batch in read_part(store, item, partition, cut))
            case _:
                assert_never(item)
    return total


_MAX_READS: Final = 3


def truncate_topic(
    cluster: Admin,
    full_name: str,
    cuts: Mapping[int, int],
    operation: str,
    *,
    may_go_on: Callable[[], None] = lambda: None,
) -> Mapping[int, TruncatedPartition]:
    """Truncate a mirror's partitions in parallel; repeating an operation returns the same result."""
    catalog = cluster.catalog.read()
    topic, bound = get_topic(catalog, full_name), catalog.cluster.storage_id
    if topic.active_mirror is None:
        message = f"topic {full_name} cannot be truncated: producers may write to it"
        raise UserError(
            message, hint="A failover ended the restore: look at the mirror again with reconciler mirror describe."
        )
    check_storage_given(cluster.storage, bound)
    if cluster.storage is not None and bound is not None and topic.tiering is not None:
        check_storage(cluster.storage, bound)
    cutting = TopicTruncation(
        cluster.store, cluster.storage, cluster.cluster_id, cluster.catalog, find_writer(topic), operation
    )

    def cut(number: int) -> TruncatedPartition:
        may_go_on()
        return cutting.truncate_partition(Partition(full_name, topic.id, number), cuts[number])

    numbers = sorted(cuts)
    return dict(zip(numbers, map_in_parallel(cut, numbers, name="truncate"), strict=True))


@dataclass(frozen=True, slots=True)
class TopicTruncation:
    """Truncates partitions of one topic for one operation. Thread-safe."""

    store: ObjectStore
    storage: ObjectStore | None
    cluster_id: str
    catalog: CatalogRegister
    writer: str
    operation: str

    def truncate_partition(self, partition: Partition, at: int) -> TruncatedPartition:
        """Truncate a partition; return its end and the number of removed records."""

        def cut_both_tiers() -> Head:
            # The head stores only its last truncation, so the manifest must catch up first.
            self._truncate_manifest(partition)
            head = self._swap_head(partition, at)
            self._truncate_manifest(partition)
            return self._swap_head(partition, at) if self._must_remove_log(partition, head) else head

        head = retry_if_missing(cut_both_tiers)
        self._truncate_manifest(partition)
        done = head.truncated or {}
        return TruncatedPartition(int(done["offset"]), int(done["records"]))

    def _swap_head(self, partition: Partition, at: int) -> Head:
        register = head_register(self.store, partition.topic_id, partition.number)
        truncation = HeadTruncation(self.store, partition)
        is_done = False

        def cut_head(held: RegisterSnapshot | None) -> dict[str, Any] | None:
            nonlocal is_done
            # An unwritten partition gets a head, so a retry removes no later records.
            head = Head(self.writer) if held is None else parse_head(self.store, register.key, held.value)
            is_again = self._is_truncated(head)
            is_done = not is_again or self._must_remove_log(partition, head)
            if not is_done:
                return None
            if head.writer != self.writer:
                message = f"{partition} cannot be truncated: {head.writer} may write to it now, not {self.writer}"
                raise UserError(
                    message,
                    hint="A failover ended the restore: look at the mirror again with reconciler mirror describe.",
                )
            epoch = 1 + (0 if held is None else held.epoch)
            return self._truncate_head(partition, truncation, head, (head.start if is_again else at, epoch)).to_json()

        held = register.update(cut_head, mark=create_mark(), raises_epoch=True)
        truncation.delete_unreferenced(is_done=is_done)
        if held is None:
            raise RetryableError(f"{partition} was deleted in the meantime", hint="Read the mirror again.")
        return parse_head(self.store, register.key, held.value)

    def _is_truncated(self, head: Head) -> bool:
        return head.truncated is not None and head.truncated["operation"] == self.operation

    def _must_remove_log(self, partition: Partition, head: Head) -> bool:
        if head.truncated is None or head.start >= int(head.truncated["offset"]):
            return False
        learned_in, learned_to = self._read_compacted_range(partition)
        return learned_in < head.last_truncation_epoch and learned_to > int(head.truncated["offset"])

    def _read_compacted_range(self, partition: Partition) -> tuple[int, int]:
        remote = self._find_remote(partition)
        manifest = None if remote is None else read_manifest(remote[0].storage, remote[1])
        return (0, 0) if manifest is None else manifest.learned

    def _truncate_head(
        self, partition: Partition, truncation: HeadTruncation, head: Head, cut: tuple[int, int]
    ) -> Head:
        at, epoch = min(cut[0], head.end), cut[1]
        if max(head.compacted_to, self._read_compacted_range(partition)[1]) > at:
            at = min(at, head.start)
        records = self._count_removed(partition, head, at)
        if self._is_truncated(head) and head.truncated is not None:
            records += int(head.truncated["records"])
        after = truncation.truncate_head(head, at)
        epochs = tuple(item for item in head.epochs if item[1] < at)
        truncated = {"operation": self.operation, "offset": at, "epoch": epoch, "records": records}
        return replace(after, epochs=(*epochs, (epoch, at)), truncated=truncated)

    def _count_removed(self, partition: Partition, head: Head, at: int) -> int:
        start = max(at, head.start)
        local_range = OffsetRange(max(start, head.local_start), head.end)
        count = count_records(self.store, head, local_range, partition.number)
        remote_range = OffsetRange(start, head.local_start)
        remote = self._find_remote(partition)
        if not remote_range.length or remote is None:
            return count
        swap, place = remote
        manifest = read_manifest(swap.storage, place)
        if manifest is None:
            raise missing_offsets_error(swap.storage, place.key, remote_range.start, remote_range.stop - 1)
        return count + count_records(swap.storage, manifest, remote_range, partition.number)

    def _truncate_manifest(self, partition: Partition) -> None:
        for _ in range(_MAX_READS):
            head = read_head(self.store, partition.topic_id, partition.number)
            remote = self._find_remote(partition)
            if head is None or remote is None:
                return
            swap, place = remote
            is_there = (
                truncate_manifest(swap, place, head, makes=head.truncated is not None and swap.tiering.uploads)
                is not None
            )
            if is_there or read_manifest(swap.storage, place) is None:
                return
        message = f"{partition}: its records in object storage could not be truncated: its tiering is being switched"
        raise RetryableError(message, hint="`run` finishes that; then the restore continues.")

    def _find_remote(self, partition: Partition) -> tuple[ManifestSwap, RemotePartition] | None:
        catalog = self.catalog.read()
        name = find_current_name(catalog, partition.topic_id, partition.full_name)
        tiering = find_tiering(catalog, name, self.cluster_id) if name in catalog.topics else None
        remote = build_remote_tier(self.storage, self.cluster_id, catalog.cluster)
        if tiering is None or remote is None:
            return None
        swap = ManifestSwap(remote.storage, self.cluster_id, tiering)
        return swap, remote_partition(tiering.location, partition.number)
