"""Check partitions: heads, pages, parts with their content, and unreferenced objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.keys import build_index_key
from reconciler.archives.pages import read_page, read_pages
from reconciler.embedded.check.check_owners import find_source_difference, find_writer_difference
from reconciler.embedded.check.check_remote import (
    RemoteCheck,
    find_head_problems,
    find_page_differences,
    has_integers,
    have_valid_types,
)
from reconciler.embedded.check.damage import CheckFinding, FindingPlace, Kind
from reconciler.embedded.check.stored import IMMUTABLE, HeadlessObjects, ObjectIndex
from reconciler.embedded.keys import parse_head_key
from reconciler.embedded.segments.head import Head, head_register, parse_head_unchecked
from reconciler.embedded.segments.parts import read_part
from reconciler.errors import MissingObjectError, ReconcilerError, UserError
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.archives.manifest import Manifest
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ListedObject, ObjectStore


@dataclass(frozen=True, slots=True)
class PartContentCheck:
    """Reads and checks whole parts; large ones are read by row group."""

    store: ObjectStore
    missing: Kind = Kind.PART_MISSING
    differs: Kind = Kind.PART_DIFFERS

    def __call__(self, entry: Entry, place: FindingPlace) -> Iterator[CheckFinding]:
        """Yield differences between a part and its entry."""
        offsets = OffsetRange(entry.base, entry.last + 1)
        try:
            differences = list(self._find_differences(entry, offsets))
        except MissingObjectError as error:
            yield CheckFinding(self.missing, error.message, place, (offsets,))
            return
        except UserError as error:
            differences = [error.message]
        except ReconcilerError:
            raise  # If only the request failed, the part may be intact.
        except Exception as error:  # noqa: BLE001 - a damaged file may break its decoder in any way
            differences = [f"it cannot be read: {type(error).__name__}: {error}"]
        if differences:
            yield CheckFinding(self.differs, "; ".join(differences), place, (offsets,))

    def _find_differences(self, entry: Entry, offsets: OffsetRange) -> Iterator[str]:
        digest, last, times = Digest(), entry.base - 1, [entry.min_ts, entry.max_ts]
        for batch in read_part(self.store, entry, 0, offsets):
            digest += compute_digest(batch, base=entry.base)
            column = batch.column("offset").to_numpy()
            if column[0] <= last or (np.diff(column) <= 0).any():
                yield "its offsets do not rise"
                return
            last = int(column[-1])
            ends = pc.min_max(batch.column("timestamp_ms")).as_py()
            times = [min(times[0], ends["min"]), max(times[1], ends["max"])]
        if last > entry.last:
            yield f"it continues to offset {last}"
        if times != [entry.min_ts, entry.max_ts]:
            yield f"its times reach from {times[0]} to {times[1]}, not {entry.min_ts} to {entry.max_ts}"
        if digest != entry.digest:
            yield f"its digest is not the one kept when it was written ({digest.records:,} records)"


@dataclass(frozen=True, slots=True)
class SegmentContentCheck:
    """Reads and checks whole remote segments and their indexes, without the cache."""

    storage: ObjectStore

    def __call__(self, entry: Entry, place: FindingPlace) -> Iterator[CheckFinding]:
        """Yield differences; a missing index is none."""
        yield from PartContentCheck(self.storage, Kind.SEGMENT_MISSING, Kind.SEGMENT_DIFFERS)(entry, place)
        key = build_index_key(entry.key)
        stored = self.storage.get(key)
        if stored is None:
            return
        try:
            records = pq.read_metadata(pa.BufferReader(stored.body)).num_rows
        except (pa.ArrowException, OSError) as error:
            what = f"it is not an index: {error}"
        else:
            what = "" if records == entry.digest.records else f"it tells of {records:,} records, not of these"
        if what:
            yield CheckFinding(Kind.INDEX_DIFFERS, what, replace(place, key=key))


# Writers may be active: a problem counts only if the head is unchanged or every attempt finds one.


_LOOKS: Final = 3


@dataclass(slots=True)
class PartitionReport:
    """Findings and counts of one partition."""

    findings: tuple[CheckFinding, ...] = ()
    exists: bool = True
    pages: int = 0
    parts: int = 0
    bytes: int = 0
    records: int = 0
    segments: int = 0
    remote_records: int = 0
    end: int | None = None
    topic_id: str = ""
    topic: str | None = None
    partition: int = 0
    transactions: Mapping[str, int] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)

    def count_manifest(self, manifest: Manifest) -> None:
        """Add a manifest's segments and records to the counts."""
        self.segments += manifest.segments
        self.remote_records += manifest.records


@dataclass(frozen=True, slots=True)
class TopicIndex:
    """Topics of a catalog by id, and the ids of deleted topics."""

    by_id: Mapping[str, tuple[str, TopicEntry]]
    deleted: frozenset[str]
    catalog: Catalog

    @classmethod
    def of(cls, catalog: Catalog) -> TopicIndex:
        """Index a catalog."""
        by_id = {entry.id: (name, entry) for name, entry in catalog.topics.items()}
        return cls(by_id, frozenset(catalog.deletions), catalog)


@dataclass(frozen=True)
class PartitionCheck:
    """Checks partitions, from any thread. `deep` checks parts' content, `remote` object storage."""

    store: ObjectStore
    stored: ObjectIndex
    known: TopicIndex | None
    topics: Callable[[], TopicIndex | None]
    deep: Callable[[Entry, FindingPlace], Iterator[CheckFinding]] | None = None
    remote: RemoteCheck | None = None

    def check_partition(self, key: str) -> PartitionReport:
        """Check the partition of a head's key."""
        report, version = self._check_once(key, self.known)
        for _ in range(_LOOKS - 1):
            if not report.findings:
                break
            before = version
            report, version = self._check_once(key, self.topics())
            if version == before:
                break
        shared = self.stored.mark_referenced(report.named)
        twice = [key for key, times in Counter(report.named).items() if times > 1]
        report.findings += tuple(_find_shared_objects(sorted({*shared, *twice}), report))
        report.named = []
        return report

    def _check_once(self, key: str, topics: TopicIndex | None) -> tuple[PartitionReport, str | None]:
        topic_id, partition = parse_head_key(key)
        name, entry = topics.by_id.get(topic_id, (None, None)) if topics else (None, None)
        report, place = (
            PartitionReport(topic_id=topic_id, topic=name, partition=partition),
            FindingPlace(key, name, partition),
        )
        try:
            held = head_register(self.store, topic_id, partition).read()
            head = None if held is None else parse_head_unchecked(self.store, key, held.value)
        except UserError as error:
            return replace(report, findings=(CheckFinding(Kind.HEAD_DAMAGED, error.message, place),)), None
        if held is None or head is None:
            return replace(report, exists=False), None
        if not has_integers(head):
            finding = CheckFinding(Kind.HEAD_DAMAGED, "one of its numbers is invalid", place)
            return replace(report, findings=(finding,)), held.version
        within = list(_HeadCheck(self, head, place, held.epoch, report).find_problems())
        findings = list(_check_topic(topics, topic_id, entry, place, head, epoch=held.epoch))
        if topics is None or entry is not None:
            findings += within
        if entry is not None and topics is not None:
            findings += [
                *find_writer_difference(topics.catalog, entry, head, place),
                *find_head_problems(head, place, epoch=held.epoch),
            ]
            findings += find_source_difference(entry, head, place)
            if self.remote is not None:
                findings += self.remote.check_partition(
                    topics.catalog, head, place, epoch=held.epoch, count=report.count_manifest
                )
        report.findings, report.end = tuple(findings), head.end
        return report, held.version


def _find_shared_objects(keys: Sequence[str], report: PartitionReport) -> Iterator[CheckFinding]:
    for key in keys:
        place = FindingPlace(key, report.topic, report.partition)
        yield CheckFinding(Kind.PART_SHARED, "the same object is referenced twice", place)


def _check_topic(
    topics: TopicIndex | None, topic_id: str, entry: TopicEntry | None, place: FindingPlace, head: Head, *, epoch: int
) -> Iterator[CheckFinding]:
    if topics is None or topic_id in topics.deleted:
        return
    if entry is None:
        kind = Kind.HEAD_UNKNOWN if head.may_be_acknowledged(epoch) else Kind.HEAD_LEFT_OVER
        what = f"{head.records:,} records of a topic that does not exist: no topic has the id {topic_id}"
        yield CheckFinding(kind, what, place, bytes=head.stored_bytes)
    elif place.partition is not None and place.partition >= entry.partitions:
        what = f"partition {place.partition} has records, and the topic has {entry.partitions} partitions"
        yield CheckFinding(Kind.HEAD_BEYOND, what, place, (OffsetRange(head.start, head.end),))
    elif entry.tiering is None and entry.replica is None and head.start < head.local_start:
        what = f"local records begin at offset {head.local_start}, the log at {head.start}: the topic is not tiered"
        yield CheckFinding(Kind.HEAD_CONTRADICTION, what, place, (OffsetRange(head.start, head.local_start),))


@dataclass(slots=True)
class _HeadCheck:
    check: PartitionCheck
    head: Head
    place: FindingPlace
    epoch: int
    report: PartitionReport

    def find_problems(self) -> Iterator[CheckFinding]:
        self.report.transactions = {
            name: opened["epoch"]
            for name, opened in self.head.transactions.items()
            if isinstance(opened, dict) and type(opened.get("epoch")) is int
        }
        for page in self.head.pages:
            yield from self._check_page(page)
        yield from self._check_parts(self.head.entries, self.place)

    def _check_page(self, page: PageRef) -> Iterator[CheckFinding]:
        place, offsets = replace(self.place, key=page.key), OffsetRange(page.base, page.last + 1)
        self.report.pages += 1
        self.report.named.append(page.key)
        kind, what = Kind.PAGE_DAMAGED, "one of its numbers is invalid"
        try:
            below = read_pages(self.check.store, page) if page.level else read_page(self.check.store, page)
            is_read = have_valid_types(below)
        except MissingObjectError as error:
            kind, what, is_read = Kind.PAGE_MISSING, error.message, False
        except UserError as error:
            what, is_read = error.message, False
        if not is_read:
            yield CheckFinding(kind, what, place, (offsets,))
            return
        yield from find_page_differences(page, below, place, epoch=self.epoch)
        for item in below:
            if isinstance(item, PageRef):
                yield from self._check_page(item)
        # Retention may have deleted parts below the log's start.
        live = [item for item in below if isinstance(item, Entry) and item.last >= self.head.start]
        yield from self._check_parts(live, self.place)

    def _check_parts(self, entries: Sequence[Entry], place: FindingPlace) -> Iterator[CheckFinding]:
        self.report.parts += len(entries)
        self.report.bytes += sum(entry.bytes for entry in entries)
        self.report.records += sum(entry.digest.records for entry in entries)
        keys = [entry.key for entry in entries]
        self.report.named += keys
        listed_sizes = self.check.stored.find_sizes(keys)
        doubtful = {entry.key for entry, size in zip(entries, listed_sizes, strict=True) if size != entry.bytes}
        sizes = self._list_current_sizes(doubtful) if doubtful else {}
        gone: list[Entry] = []
        for entry, listed in zip(entries, listed_sizes, strict=True):
            size = sizes.get(entry.key) if entry.key in doubtful else listed
            if size is None:
                gone.append(entry)
                continue
            yield from self._check_part(entry, size, replace(place, key=entry.key))
        yield from _report_missing_runs(gone, place)

    def _check_part(self, entry: Entry, size: int, place: FindingPlace) -> Iterator[CheckFinding]:
        offsets = (OffsetRange(entry.base, entry.last + 1),)
        if size != entry.bytes:
            what = f"it has {size:,} bytes, not {entry.bytes:,} as its head has"
            yield CheckFinding(Kind.PART_DIFFERS, what, place, offsets)
        elif self.check.deep is not None:
            yield from self.check.deep(entry, place)

    def _list_current_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        folders = {key.rpartition("/")[0] + "/" for key in keys}
        return {listed.key: listed.size for folder in folders for listed in self.check.store.list(folder)}


def _report_missing_runs(entries: Sequence[Entry], place: FindingPlace) -> Iterator[CheckFinding]:
    run: list[Entry] = []
    for entry in entries:
        if run and entry.base > run[-1].last + 1:
            yield _report_missing_run(run, place)
            run = []
        run.append(entry)
    if run:
        yield _report_missing_run(run, place)


def _report_missing_run(run: Sequence[Entry], place: FindingPlace) -> CheckFinding:
    what = "the part is missing" if len(run) == 1 else f"{len(run):,} parts are missing, this one is the first"
    offsets = OffsetRange(run[0].base, run[-1].last + 1)
    lost = sum(entry.bytes for entry in run)
    return CheckFinding(
        Kind.PART_MISSING, what, replace(place, key=run[0].key), (offsets,), objects=len(run), bytes=lost
    )


_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class _UnnamedFolder:
    first: str
    objects: int
    bytes: int
    oldest_ms: int


def report_unreferenced_objects(
    store: ObjectStore, stored: ObjectIndex, heads: HeadlessObjects | None
) -> Iterator[CheckFinding]:
    """Yield one finding per folder with unreferenced objects.

    With `heads`, objects of partitions without a head get one finding per partition instead.
    """
    if stored.are_all_referenced:
        return
    now_ms = store.read_clock_ms()
    folders: dict[str, _UnnamedFolder] = {}
    for prefix in IMMUTABLE:
        for listed in stored.find_unreferenced(store.list(prefix)):
            if heads is None or not heads.count_if_headless(listed):
                _add_to_folder(folders, listed)
    yield from () if heads is None else heads.report_partitions(now_ms)
    for folder, contents in sorted(folders.items()):
        age_ms = max(0, now_ms - contents.oldest_ms)
        what = f"{contents.objects:,} in {folder} that no metadata refers to, the oldest {format_age(age_ms)} old"
        yield CheckFinding(
            Kind.UNNAMED, what, FindingPlace(contents.first), (), contents.objects, contents.bytes, age_ms
        )


def format_age(age_ms: int) -> str:
    """Format an age in hours, or in minutes below two hours."""
    return f"{age_ms // _HOUR_MS} h" if age_ms >= 2 * _HOUR_MS else f"{age_ms // _MINUTE_MS} min"


def _add_to_folder(folders: dict[str, _UnnamedFolder], listed: ListedObject) -> None:
    folder = listed.key.rpartition("/")[0] + "/"
    counts = folders.setdefault(folder, _UnnamedFolder(listed.key, 0, 0, listed.modified_ms))
    counts.objects += 1
    counts.bytes += listed.size
    counts.oldest_ms = min(counts.oldest_ms, listed.modified_ms)
