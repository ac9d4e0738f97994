"""Cut the end of a log for `restore`, on both tiers.

The heads belong to the link by then, so no process appends. A head is cut by one swap, under the next epoch, and keeps
which operation cut it, where, and how many records went: whoever does it again, also when new records were mirrored
above the cut since, finds that and cuts nothing. Its manifest follows (`tiered/remote_retention.py`).

**Compacted topics.** Compaction may have removed a record below the cut because of a later one above it, which goes
now: the key would be lost. A log that was compacted beyond the cut is therefore cut at its beginning, and all of it is
mirrored again. The head says how far it was compacted, and so does the manifest, which is told first. Until it knows of
the cut it takes what a compaction has read before: it is looked at again afterwards, and the log is cut once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.manifest import ManifestSwap, RemotePartition, read_manifest, remote_partition
from reconciler.archives.objects import look_again, missing_offsets
from reconciler.archives.pages import Paged, read_page, read_pages
from reconciler.archives.storage import check_given, check_storage
from reconciler.embedded.catalog.tables import name_with_id, topic_named
from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.segments.gate import delete_named, writer_of
from reconciler.embedded.segments.head import Head, Partition, head_register, parse_head, read_head
from reconciler.embedded.segments.parts import PART_BYTES, PartWriter, damaged_part, read_part
from reconciler.embedded.tiered.remote_retention import settle
from reconciler.embedded.tiered.remote_tier import remote_tier
from reconciler.errors import RetryableError, UserError
from reconciler.objectstore.register import fresh_mark
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import Truncated
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import ReadRegister


# The end of a log cut off: what a head becomes, and what is superfluous then. Nobody writes meanwhile.
#
# Whole pages and parts above the cut are named no more; the part that lies across it is written anew with what lies
# below, under a fresh name. One swap of the head does it, under the next epoch; only then is anything deleted, so a
# crash leaves orphans to the sweep, and a reader that misses a part looks at the head again and finds the log ended.


@dataclass(frozen=True, slots=True)
class Named:
    """Parts that a head or manifest named, and pages with all that is in them."""

    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _Split:
    """What lies below a cut, and what does not."""

    pages: list[PageRef] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    gone_pages: list[PageRef] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    """Pages that lie across: what is left of them is named elsewhere. Each after those below it."""


class Truncation:
    """Cuts one partition's local tier, decided anew for every head found; a lost race reuses what was written."""

    def __init__(self, store: ObjectStore, partition: Partition) -> None:
        """Say of which partition; nothing is read yet."""
        self._store = store
        self._partition = partition
        self._written: dict[tuple[str, int], Entry] = {}
        self._split = _Split()

    def cut(self, head: Head, at: int) -> Head:
        """Return the head as it is once the log ends at `at`, which is at most its end; its epochs stay as they were.

        Raises:
            MissingObjectError: A page, or the part across the cut, is not there.
            DamagedObjectError: That part is damaged.
        """
        split = self._split = self._below(head, at)
        return replace(
            head,
            start=min(head.start, at),
            local_start=min(head.local_start, at),
            end=at,
            uploaded_to=min(head.uploaded_to, at),
            compacted_to=min(head.compacted_to, at),
            pages=tuple(split.pages),
            entries=tuple(split.entries),
            producers=_left_of(head.producers, split),
            transactions={name: one for name, one in head.transactions.items() if one["base"] < at},
            source=_fetched_to(head.source, at),
        )

    def clear(self, *, is_done: bool) -> None:
        """Delete what no process names once the swap of the last `cut` holds (or, not `is_done`, another one does)."""
        split = self._split if is_done else _Split()
        named = {entry.key for entry in split.entries}
        self._store.delete([entry.key for entry in self._written.values() if entry.key not in named])
        delete_named(self._store, Named(tuple(split.gone_pages), tuple(split.gone)))
        self._store.delete(split.opened)

    def _below(self, head: Head, at: int) -> _Split:
        split = _Split()
        if at <= head.local_start:
            # All that is left lies in object storage, or nothing is.
            split.gone_pages += head.pages
            split.gone += head.entries
            return split
        self._split_pages(head.pages, at, split)
        self._split_entries(head.entries, at, split)
        return split

    def _split_pages(self, pages: Iterable[PageRef], at: int, split: _Split) -> None:
        for page in pages:
            if page.last < at:
                split.pages.append(page)
            elif page.base >= at:
                split.gone_pages.append(page)
            else:
                if page.level:
                    self._split_pages(read_pages(self._store, page), at, split)
                else:
                    self._split_entries(read_page(self._store, page), at, split)
                split.opened.append(page.key)

    def _split_entries(self, entries: Iterable[Entry], at: int, split: _Split) -> None:
        for entry in entries:
            if entry.base < at:
                split.entries.append(entry if entry.last < at else self._rewritten(entry, at))
            if entry.last >= at:
                split.gone.append(entry)

    def _rewritten(self, entry: Entry, at: int) -> Entry:
        """Write what a part has below the cut, its first record at least, under the key it lies under."""
        written = self._written.get((entry.key, at))
        if written is None:
            full_name, number = self._partition.full_name, self._partition.number
            writer = PartWriter(
                self._store, full_name, number, compression="producer", limit=PART_BYTES, kms_key_id=entry.kms_key_id
            )
            found = writer.write_one(read_part(self._store, entry, number, OffsetRange(entry.base, at)))
            if found is None:
                raise damaged_part(self._store, entry, f"it has no record below offset {at}")
            written = self._written[entry.key, at] = replace(
                found, epoch=entry.epoch, txn=entry.txn, is_segment=entry.is_segment, horizon_ms=entry.horizon_ms
            )
        return written


def _fetched_to(source: dict[str, Any] | None, at: int) -> dict[str, Any] | None:
    """Return what a partition keeps of its source: what comes from the cut on is not a copy of that."""
    if source is None or source.get("fetched", at) <= at:
        return source
    return {**source, "fetched": at}


def _left_of(producers: dict[str, Any], split: _Split) -> dict[str, Any]:
    """Return the producers nothing of whose records went: of the others no sequence number is known any more.

    Where a part or page that went does not say whose records it had, that may be anybody.
    """
    if split.gone_pages or any(entry.producer is None for entry in split.gone):
        return {}
    cut = {entry.producer["id"] for entry in split.gone if entry.producer is not None}
    return {name: known for name, known in producers.items() if name not in cut}


def records_within(store: ObjectStore, held: Paged, offsets: OffsetRange, partition: int) -> int:
    """Count the records of a range exactly: by what is kept of parts and pages, and by reading where an end cuts one.

    Raises:
        MissingObjectError: A page, or a part that has to be read, is not there.
    """
    return _counted(store, (*held.pages, *held.entries), offsets, partition)


def _counted(store: ObjectStore, lying: Iterable[PageRef | Entry], offsets: OffsetRange, partition: int) -> int:
    total = 0
    for each in lying:
        cut = OffsetRange(max(each.base, offsets.start), min(each.last + 1, offsets.stop))
        is_within = cut.length == each.last + 1 - each.base
        match each:
            case _ if not cut.length:
                continue
            case PageRef() if is_within:
                total += each.records
            case PageRef():
                below = read_pages(store, each) if each.level else read_page(store, each)
                total += _counted(store, below, cut, partition)
            case Entry() if is_within:
                total += each.digest.records
            case Entry() if each.is_dense:
                total += cut.length
            case Entry():
                total += sum(batch.num_rows for batch in read_part(store, each, partition, cut))
            case _:
                assert_never(each)
    return total


_LOOKS: Final = 3
"""How often a head is read again that names an object which is not there, before that is believed."""


def truncate_topic(
    cluster: Admin,
    full_name: str,
    cuts: Mapping[int, int],
    operation: str,
    *,
    may_go_on: Callable[[], None] = lambda: None,
) -> Mapping[int, Truncated]:
    """Cut partitions of a mirror at offsets, side by side, and return what was cut; done again, it says the same.

    Raises:
        UserError: There is no such topic, somebody else than its link may write to it, or its object storage is not
            at hand.
        MissingObjectError: A page, or a part across a cut, is not there.
        LostRaceError: Others were faster every time.
    """
    catalog = cluster.catalog.read()
    topic, bound = topic_named(catalog, full_name), catalog.cluster.storage_id
    if topic.follows is None:
        message = f"topic {full_name} is not cut: producers may write to it"
        raise UserError(message, hint="The restore was failed over meanwhile: look at the mirror again.")
    check_given(cluster.storage, bound)
    if cluster.storage is not None and bound is not None and topic.tiering is not None:
        check_storage(cluster.storage, bound)
    cutting = Cutting(cluster.store, cluster.storage, cluster.cluster_id, cluster.catalog, writer_of(topic), operation)

    def cut(number: int) -> Truncated:
        may_go_on()
        return cutting.truncate(Partition(full_name, topic.id, number), cuts[number])

    numbers = sorted(cuts)
    return dict(zip(numbers, side_by_side(cut, numbers, name="truncate"), strict=True))


@dataclass(frozen=True, slots=True)
class Cutting:
    """One operation's cuts of one topic. Safe from any thread."""

    store: ObjectStore
    storage: ObjectStore | None
    cluster_id: str
    catalog: CatalogRegister
    writer: str
    """Of the heads while it goes on: the link."""
    operation: str

    def truncate(self, partition: Partition, at: int) -> Truncated:
        """Cut one partition, and return where it ends now and how many records went.

        Raises:
            UserError: Somebody else may write to it: the operation is over.
            MissingObjectError: A page, or the part across the cut, is not there.
            LostRaceError: Others were faster every time.
        """

        def cut() -> Head:
            # What an earlier operation left is cut first: the head tells of the last one only.
            self._settle(partition)
            head = self._cut(partition, at)
            self._settle(partition)
            return self._cut(partition, at) if self._is_too_short(partition, head) else head

        head = look_again(cut)
        self._settle(partition)
        done = head.truncated or {}
        return Truncated(int(done["offset"]), int(done["records"]))

    def _cut(self, partition: Partition, at: int) -> Head:
        register = head_register(self.store, partition.topic_id, partition.number)
        truncation = Truncation(self.store, partition)
        is_done = False

        def changed(held: ReadRegister | None) -> dict[str, Any] | None:
            nonlocal is_done
            # Of a partition that was never written to a head is made: what comes later is not to be cut.
            head = Head(self.writer) if held is None else parse_head(self.store, register.key, held.value)
            is_again = self._is_cut(head)
            is_done = not is_again or self._is_too_short(partition, head)
            if not is_done:
                return None
            if head.writer != self.writer:
                message = f"{partition} is not cut: {head.writer} may write to it now, not {self.writer}"
                raise UserError(message, hint="The restore was failed over meanwhile: look at the mirror again.")
            epoch = 1 + (0 if held is None else held.epoch)
            return self._after(partition, truncation, head, (head.start if is_again else at, epoch)).to_json()

        held = register.update(changed, mark=fresh_mark(), raises_epoch=True)
        truncation.clear(is_done=is_done)
        if held is None:
            raise RetryableError(f"{partition} was deleted meanwhile", hint="Look at the mirror again.")
        return parse_head(self.store, register.key, held.value)

    def _is_cut(self, head: Head) -> bool:
        return head.truncated is not None and head.truncated["operation"] == self.operation

    def _is_too_short(self, partition: Partition, head: Head) -> bool:
        """Tell whether what was cut superseded records below the cut, as object storage knows by now."""
        if head.truncated is None or head.start >= int(head.truncated["offset"]):
            return False
        learned_in, learned_to = self._learned(partition)
        return learned_in < head.truncated_in and learned_to > int(head.truncated["offset"])

    def _learned(self, partition: Partition) -> tuple[int, int]:
        found = self._remote(partition)
        manifest = None if found is None else read_manifest(found[0].storage, found[1])
        return (0, 0) if manifest is None else manifest.learned

    def _after(self, partition: Partition, truncation: Truncation, head: Head, cut: tuple[int, int]) -> Head:
        """Return the head as it is once it is cut at an offset, in an epoch."""
        at, epoch = min(cut[0], head.end), cut[1]
        if max(head.compacted_to, self._learned(partition)[1]) > at:
            at = min(at, head.start)
        records = self._records(partition, head, at)
        if self._is_cut(head) and head.truncated is not None:
            records += int(head.truncated["records"])
        after = truncation.cut(head, at)
        epochs = tuple(each for each in head.epochs if each[1] < at)
        said = {"operation": self.operation, "offset": at, "epoch": epoch, "records": records}
        return replace(after, epochs=(*epochs, (epoch, at)), truncated=said)

    def _records(self, partition: Partition, head: Head, at: int) -> int:
        """Count what is readable from the cut on: local records, and of what is remote alone those below them."""
        start = max(at, head.start)
        here = OffsetRange(max(start, head.local_start), head.end)
        count = records_within(self.store, head, here, partition.number)
        there = OffsetRange(start, head.local_start)
        found = self._remote(partition)
        if not there.length or found is None:
            return count
        swap, place = found
        manifest = read_manifest(swap.storage, place)
        if manifest is None:
            raise missing_offsets(swap.storage, place.key, there.start, there.stop - 1)
        return count + records_within(swap.storage, manifest, there, partition.number)

    def _settle(self, partition: Partition) -> None:
        """Let the manifest end where the head was cut.

        Raises:
            RetryableError: The tiering of the topic changed every time.
        """
        for _ in range(_LOOKS):
            head = read_head(self.store, partition.topic_id, partition.number)
            found = self._remote(partition)
            if head is None or found is None:
                return
            swap, place = found
            is_there = settle(swap, place, head, makes=head.truncated is not None and swap.tiering.uploads) is not None
            if is_there or read_manifest(swap.storage, place) is None:
                return
        message = f"{partition}: its remote part could not be cut: its tiering is being switched"
        raise RetryableError(message, hint="`run` finishes that; the restore goes on after it.")

    def _remote(self, partition: Partition) -> tuple[ManifestSwap, RemotePartition] | None:
        """Return what swaps its manifest, by the tiering it has now; `None`: it never had any."""
        catalog = self.catalog.read()
        name = name_with_id(catalog, partition.topic_id, partition.full_name)
        tiering = tiering_of(catalog, name, self.cluster_id) if name in catalog.topics else None
        remote = remote_tier(self.storage, self.cluster_id, catalog.cluster)
        if tiering is None or remote is None:
            return None
        swap = ManifestSwap(remote.storage, self.cluster_id, tiering)
        return swap, remote_partition(tiering.location, partition.number)
