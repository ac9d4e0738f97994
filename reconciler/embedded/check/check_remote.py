"""Compare heads, manifests and remote segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import NOBODY, Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.pages import read_page
from reconciler.embedded.catalog.tables import Catalog, is_closed
from reconciler.embedded.catalog.tiering_state import find_tiering
from reconciler.embedded.check.damage import CheckFinding, FindingPlace, Kind
from reconciler.embedded.check.stored import ObjectIndex, index_objects_below
from reconciler.embedded.tiered.remote_retention import must_truncate
from reconciler.errors import MissingObjectError, UserError
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.embedded.segments.head import Head
    from reconciler.objectstore.base import ObjectStore


def find_head_problems(head: Head, place: FindingPlace, *, epoch: int) -> Iterator[CheckFinding]:
    """Yield contradictions in a head; `epoch` is its register's epoch."""
    for what in [
        *_check_numbers(head),
        *_check_epochs(head, epoch),
        *_check_order([*head.pages, *head.entries], head.end),
        *_check_entries(head.entries, epoch),
        *_check_transactions(head),
    ]:
        yield CheckFinding(Kind.HEAD_CONTRADICTION, what, place)


def find_page_differences(
    page: PageRef, below: Sequence[Entry] | Sequence[PageRef], place: FindingPlace, *, epoch: int
) -> Iterator[CheckFinding]:
    """Yield differences between a page's content and its reference."""
    if not below:
        yield CheckFinding(Kind.PAGE_DAMAGED, "it lists no objects", place)
        return
    entries = [item for item in below if isinstance(item, Entry)]
    pages = [item for item in below if isinstance(item, PageRef)]
    computed = PageRef.from_pages(page.key, pages) if pages else PageRef.from_entries(page.key, entries)
    for item in fields(PageRef):
        stored_value, is_so = getattr(page, item.name), getattr(computed, item.name)
        if stored_value != is_so:
            yield CheckFinding(
                Kind.PAGE_DAMAGED,
                f"its {item.name} is {is_so}, not {stored_value} as in the object that refers to it",
                place,
            )
    for what in [*_check_order([*below], page.last + 1), *_check_entries(entries, epoch)]:
        yield CheckFinding(Kind.PAGE_DAMAGED, what, place)


def has_integers(head: Head) -> bool:
    """Whether a head's numbers are integers; an edited register may have other types."""
    tables: list[Any] = [head.transactions, head.producers]
    if not all(isinstance(table, dict) for table in tables):
        return False
    numbers: list[Any] = [head.start, head.local_start, head.end, head.compacted_to, head.uploaded_to]
    numbers += [number for pair in head.epochs for number in pair]
    return all(type(number) is int for number in numbers) and have_valid_types([*head.pages, *head.entries])


def have_valid_types(named: Sequence[Entry] | Sequence[PageRef] | Sequence[Entry | PageRef]) -> bool:
    """Whether the fields of entries or page references have valid types."""
    texts: list[Any] = [item.key for item in named]
    numbers: list[Any] = [
        number for item in named for number in (item.base, item.last, item.min_ts, item.max_ts, item.bytes)
    ]
    for item in named:
        own = (item.epoch, item.digest.records) if isinstance(item, Entry) else (item.records, item.entries, item.level)
        numbers += own
    return all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)


def _check_numbers(head: Head) -> Iterator[str]:
    if not 0 <= head.start <= head.end:
        yield f"it begins at offset {head.start} and ends at {head.end}"
    if not head.start <= head.local_start <= head.end:
        yield f"its local records begin at offset {head.local_start}, it holds {head.start} to {head.end}"
    if head.truncated is not None and head.truncated["offset"] > head.end:
        yield f"it was cut at offset {head.truncated['offset']} and ends at {head.end}"
    if head.uploaded_to > head.end:
        yield f"it is uploaded to offset {head.uploaded_to} and ends at {head.end}"
    if head.start < head.local_start and head.uploaded_to < head.local_start:
        yield (
            f"its local records begin at offset {head.local_start}, it is uploaded to {head.uploaded_to}: "
            "the records between are missing"
        )


def _check_epochs(head: Head, epoch: int) -> Iterator[str]:
    for (before, first), (after, second) in zip(head.epochs, head.epochs[1:], strict=False):
        if after <= before or second < first:
            yield f"epoch {after} from offset {second} follows epoch {before} from offset {first}"
    for number, start in head.epochs:
        if number > epoch or start > head.end:
            yield f"it knows epoch {number} from offset {start}, and is in epoch {epoch} with end {head.end}"


def _check_order(stretches: Sequence[PageRef | Entry], end: int) -> Iterator[str]:
    before: PageRef | Entry | None = None
    for stretch in stretches:
        if stretch.last < stretch.base:
            yield f"{stretch.key} ends at offset {stretch.last}, before it begins at {stretch.base}"
        if before is not None and stretch.base <= before.last:
            yield f"{stretch.key} begins at offset {stretch.base}, within {before.key}, which ends at {before.last}"
        before = stretch
    if before is not None and before.last >= end:
        yield f"{before.key} ends at offset {before.last}, beyond the end {end}"


def _check_entries(entries: Sequence[Entry], epoch: int) -> Iterator[str]:
    last = 0
    for entry in entries:
        if entry.digest.records > entry.last - entry.base + 1 or entry.digest.records < 0:
            yield f"{entry.key} has {entry.digest.records} records at offsets {entry.base} to {entry.last}"
        if entry.epoch > epoch or entry.epoch < last:
            yield f"{entry.key} is of epoch {entry.epoch}, after epoch {last}, in a partition of epoch {epoch}"
        if entry.min_ts > entry.max_ts or entry.bytes <= 0:
            yield f"{entry.key} has times {entry.min_ts} to {entry.max_ts} and {entry.bytes} bytes"
        last = max(last, entry.epoch)


def _check_transactions(head: Head) -> Iterator[str]:
    for name, opened in head.transactions.items():
        if not isinstance(opened, dict) or type(opened.get("base")) is not int or type(opened.get("epoch")) is not int:
            yield f"what it keeps of transaction {name} cannot be read"
    for entry in head.entries:
        if entry.txn is None:
            continue
        name, _, number = entry.txn.rpartition("/")
        opened = head.transactions.get(name)
        if not isinstance(opened, dict) or str(opened.get("epoch")) != number or opened.get("base", 0) > entry.base:
            yield f"{entry.key} belongs to transaction {entry.txn}, which is not open in this partition"


ContentCheck = Callable[[Entry, FindingPlace], Iterator[CheckFinding]]

_IN_RUNS: Final = {
    Kind.SEGMENT_MISSING: ("the segment is not there", "{:,} segments are not there, this one the first"),
    Kind.INDEX_MISSING: ("the index is not there", "{:,} indexes are not there, this one the first"),
}
_LEAST_INDEX_BYTES: Final = 12
_LOCAL_TOO: Final = "; the local tier has these offsets too"
_PUT_AGAIN: Final = ", and `reconciler run --once --only scrub` puts it again"
_ONCE_DELETED: Final = ": delete this object, and `reconciler run --once --only scrub` puts it again"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspected problem of a segment or its index."""

    entry: Entry
    finding: CheckFinding


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """Checks one partition's segments."""

    listed: ObjectIndex
    local_start: int
    """Offset from which the local tier also has every record."""
    uploads: bool
    deep: ContentCheck | None = None

    def find_suspects(self, entries: Sequence[Entry], place: FindingPlace) -> Iterator[Suspect]:
        """Yield suspected problems of segments, oldest first; `place` is the manifest's."""
        sizes = self.listed.find_sizes([entry.key for entry in entries])
        indexes = self.listed.find_sizes([build_index_key(entry.key) for entry in entries])
        for entry, size, index in zip(entries, sizes, indexes, strict=True):
            segment_place, index_place = replace(place, key=entry.key), replace(place, key=build_index_key(entry.key))
            if size is None:
                yield Suspect(entry, self._report_lost(entry, Kind.SEGMENT_MISSING, "", segment_place))
                continue
            if size != entry.bytes:
                what = f"it has {size:,} bytes, not {entry.bytes:,} as its manifest says"
                yield Suspect(
                    entry, self._report_lost(entry, Kind.SEGMENT_DIFFERS, what, segment_place, then=_PUT_AGAIN)
                )
            elif self.deep is not None:
                yield from (self._read_content(entry, finding) for finding in self.deep(entry, segment_place))
            if index is None:
                yield Suspect(entry, CheckFinding(Kind.INDEX_MISSING, "", index_place))
            elif index < _LEAST_INDEX_BYTES:
                yield Suspect(
                    entry,
                    CheckFinding(Kind.INDEX_DIFFERS, f"it has {index:,} bytes: too few for an index", index_place),
                )

    def group_by_run(self, suspects: Iterable[Suspect]) -> Iterator[CheckFinding]:
        """Yield one finding per run of adjacent missing segments."""
        run: list[Suspect] = []
        for suspect in suspects:
            if run and not _is_adjacent(run[-1], suspect):
                yield self._report_run(run)
                run = []
            run.append(suspect)
        if run:
            yield self._report_run(run)

    def _report_run(self, run: Sequence[Suspect]) -> CheckFinding:
        first = run[0].finding
        if first.kind not in _IN_RUNS:
            return first
        one, many = _IN_RUNS[first.kind]
        what = one if len(run) == 1 else many.format(len(run))
        is_lost = first.kind is Kind.SEGMENT_MISSING
        if is_lost and not first.gone:
            what += self._local_hint(_PUT_AGAIN)
        gone = (OffsetRange(first.gone[0].start, run[-1].finding.gone[0].stop),) if first.gone else ()
        stored = sum(suspect.entry.bytes for suspect in run) if is_lost else 0
        return replace(first, what=what, gone=gone, objects=len(run), bytes=stored)

    def _read_content(self, entry: Entry, finding: CheckFinding) -> Suspect:
        if finding.kind is Kind.INDEX_DIFFERS:
            return Suspect(entry, finding)
        return Suspect(entry, self._report_lost(entry, finding.kind, finding.what, finding.place, then=_ONCE_DELETED))

    def _report_lost(self, entry: Entry, kind: Kind, what: str, place: FindingPlace, *, then: str = "") -> CheckFinding:
        stop = min(entry.last + 1, self.local_start)
        if entry.base < stop:
            return CheckFinding(kind, what, place, (OffsetRange(entry.base, stop),), bytes=entry.bytes)
        return CheckFinding(kind, what + self._local_hint(then) if what else what, place, (), bytes=entry.bytes)

    def _local_hint(self, then: str) -> str:
        return _LOCAL_TOO + (then if self.uploads else "")


def _is_adjacent(one: Suspect, other: Suspect) -> bool:
    a, b = one.finding, other.finding
    is_like = a.kind is b.kind and a.kind in _IN_RUNS and bool(a.gone) == bool(b.gone)
    return is_like and other.entry.base == one.entry.last + 1


# Uploads and retention may have changed the manifest, so suspects are checked against a newer one.


@dataclass(frozen=True, slots=True)
class RemoteCheck:
    """Checks manifests and segments of one cluster, from any thread. `deep` checks a segment's content."""

    storage: ObjectStore
    cluster_id: str
    deep: ContentCheck | None = None
    lost: frozenset[str] = frozenset()

    def check_partition(
        self, catalog: Catalog, head: Head, place: FindingPlace, *, epoch: int, count: Callable[[Manifest], None]
    ) -> Iterator[CheckFinding]:
        """Yield problems of a partition's remote tier; `place` and `epoch` are the head's.

        `count` gets the manifest if this cluster owns it.
        """
        if place.topic is None or place.partition is None or place.topic in self.lost:
            return
        tiering = find_tiering(catalog, place.topic, self.cluster_id)
        if tiering is None:
            return
        partition = remote_partition(tiering.location, place.partition)
        manifest_place = replace(place, key=partition.key)
        try:
            manifest = read_manifest(self.storage, partition)
        except UserError as error:
            yield CheckFinding(
                Kind.MANIFEST_DAMAGED, error.message, manifest_place, _find_remote_only(head, head.start)
            )
            return
        if manifest is None:
            if head.uploaded_to > head.start:
                what = f"it is missing, and according to the head, offsets below {head.uploaded_to} are in it"
                yield CheckFinding(Kind.MANIFEST_MISSING, what, manifest_place, _find_remote_only(head, head.start))
            return
        is_nobodys = manifest.owner == NOBODY
        if manifest.owner != self.cluster_id and not (is_nobodys and is_closed(catalog.topics[place.topic])):
            whose = "no cluster" if is_nobodys else f"cluster {manifest.owner}"
            what = f"it belongs to {whose}, and the topic is in the catalog of this cluster"
            yield CheckFinding(Kind.MANIFEST_FOREIGN, what, manifest_place, _find_remote_only(head, head.start))
            return
        count(manifest)
        yield from find_manifest_problems(manifest, head, manifest_place)
        if manifest.segments:
            listed = index_objects_below(self.storage, f"{partition.key_prefix}/")
            segments = SegmentCheck(listed, head.local_start, tiering.uploads, self.deep)
            yield from self._check_segments(partition, manifest, segments, manifest_place, epoch)

    def _check_segments(
        self,
        partition: RemotePartition,
        manifest: Manifest,
        segments: SegmentCheck,
        manifest_place: FindingPlace,
        epoch: int,
    ) -> Iterator[CheckFinding]:
        findings: list[CheckFinding] = []
        suspects: list[Suspect] = []
        for page in manifest.pages:
            entries: list[Entry] = []
            findings += self._check_page(page, replace(manifest_place, key=page.key), epoch, entries)
            suspects += segments.find_suspects(_live_entries(entries, manifest), manifest_place)
        suspects += segments.find_suspects(_live_entries(manifest.entries, manifest), manifest_place)
        if findings or suspects:
            named = self._read_named_keys(partition, manifest)
            yield from (finding for finding in findings if named is None or finding.place.key in named)
            yield from segments.group_by_run(
                suspect for suspect in suspects if named is None or suspect.entry.key in named
            )

    def _read_named_keys(self, partition: RemotePartition, before: Manifest) -> set[str] | None:
        try:
            manifest = read_manifest(self.storage, partition)
        except UserError:
            return None
        if manifest is None or manifest == before:
            return None
        named = {page.key for page in manifest.pages} | {
            entry.key for entry in _live_entries(manifest.entries, manifest)
        }
        for page in manifest.pages:
            with suppress(UserError):
                named |= {entry.key for entry in _live_entries(read_page(self.storage, page), manifest)}
        return named

    def _check_page(
        self, page: PageRef, place: FindingPlace, epoch: int, entries: list[Entry]
    ) -> Iterator[CheckFinding]:
        offsets = (OffsetRange(page.base, page.last + 1),)
        try:
            below = read_page(self.storage, page)
        except MissingObjectError as error:
            yield CheckFinding(Kind.PAGE_MISSING, error.message, place, offsets)
        except UserError as error:
            yield CheckFinding(Kind.PAGE_DAMAGED, error.message, place, offsets)
        else:
            if have_valid_types(below):
                entries += below
                yield from find_page_differences(page, below, place, epoch=epoch)
            else:
                yield CheckFinding(Kind.PAGE_DAMAGED, "one of its numbers is invalid", place, offsets)


def find_manifest_problems(manifest: Manifest, head: Head, place: FindingPlace) -> Iterator[CheckFinding]:
    """Yield contradictions between a manifest and its head."""
    if must_truncate(manifest, head) and manifest.end > head.uploaded_to:
        what = f"it ends at offset {manifest.end}, and the log was cut at {_get_truncation_offset(head)}"
        yield CheckFinding(Kind.CUT_UNFINISHED, what, place)
        manifest = replace(manifest, end=min(manifest.end, _get_truncation_offset(head)))
    alone = head.start < head.local_start
    if manifest.start > head.start and alone:
        what = f"it begins at offset {manifest.start}, and the log at {head.start}"
        gone = OffsetRange(head.start, min(manifest.start, head.local_start))
        yield CheckFinding(Kind.MANIFEST_SHORT, what, place, (gone,))
    if max(manifest.end, head.start) < head.uploaded_to:
        what = (
            f"it ends at offset {manifest.end}, and according to the head, offsets below {head.uploaded_to} are in it"
        )
        yield CheckFinding(Kind.MANIFEST_SHORT, what, place, _find_remote_only(head, max(head.start, manifest.end)))
    if manifest.end > head.end:
        what = f"it ends at offset {manifest.end}, and the log at {head.end}"
        yield CheckFinding(Kind.MANIFEST_AHEAD, what, place)
    if manifest.garbage:
        objects = len(manifest.garbage.entries) + sum(page.entries for page in manifest.garbage.pages)
        what = f"{objects:,} segments are to be deleted, and are not yet"
        yield CheckFinding(Kind.GARBAGE_LEFT, what, place, (), objects)


def _get_truncation_offset(head: Head) -> int:
    return 0 if head.truncated is None else int(head.truncated["offset"])


def _live_entries(entries: Iterable[Entry], manifest: Manifest) -> list[Entry]:
    return [entry for entry in entries if entry.last >= manifest.start]


def _find_remote_only(head: Head, start: int) -> tuple[OffsetRange, ...]:
    return (OffsetRange(start, head.local_start),) if start < head.local_start else ()
