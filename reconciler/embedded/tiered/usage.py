"""Sizes of topics per tier, from heads and manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.manifest import Manifest, RemotePartition, read_manifest, remote_partition
from reconciler.archives.objects import RESTORE_HINT
from reconciler.archives.pages import PagedEntries, read_pages
from reconciler.archives.storage import check_storage
from reconciler.embedded.catalog.tiering_state import find_read_location, find_tiering, hides_remote_records
from reconciler.embedded.catalog.topic_configs import find_explicit_configs
from reconciler.embedded.keys import parse_head_key
from reconciler.embedded.segments.head import REPLICA, Head, get_link_position, list_heads, read_head, read_heads
from reconciler.embedded.segments.retention import SegmentLimits, iter_segments, read_cleanup_policy
from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError, UserError
from reconciler.lifecycles import TieringState
from reconciler.objectstore.wrappers import LoggingStore
from reconciler.resources.cluster_properties import ENABLED, UPLOADS, read_property
from reconciler.resources.measures import (
    Mode,
    PartitionStorage,
    RemoteUsage,
    TieredPartition,
    TieringShown,
    TierUsage,
    TopicStorage,
)
from reconciler.resources.tiering_policy import read_switches
from reconciler.resources.topic import FOLLOWING
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import CallPool

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import ReplicaEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address
    from reconciler.resources.mirrors import Positions


T = TypeVar("T")

_ANSWERS: Final = (LostRaceError, MissingObjectError)
"""Errors that are answers of the store, not failed requests."""
_SEGMENT: Final = ".parquet"


class CountingStore(LoggingStore):
    """A store that counts its requests."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner.inner if isinstance(inner, LoggingStore) else inner)
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def pop_counts(self) -> Mapping[str, int]:
        """Return and reset counters of `vitals.COUNTER_HELP`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        super().delete(self._count_segments(keys))

    def _count_segments(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            if key.endswith(_SEGMENT):
                self._count("deleted_segments")
            yield key

    def _log_call(self, method: str, key: str, ask: Callable[[], T], size: Callable[[T], int] = lambda _answer: 0) -> T:
        try:
            answer = super()._log_call(method, key, ask, size)
        except ReconcilerError as error:
            if not isinstance(error, _ANSWERS):
                self._count("errors_total")
            raise
        counted = _find_counter(method, key)
        if counted is not None:
            self._count(counted)
        return answer

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _find_counter(method: str, key: str) -> str | None:
    match method, key.rpartition("/")[2]:
        case "swap", "manifest.json":
            return "partition_manifest_uploads_total"
        case "swap", "topic.json":
            return "topic_manifest_uploads_total"
        case "put", _ if "/pages/" in key:
            return "spillover_manifest_uploads_total"
        case "get", _ if "/pages/" in key:
            return "spillover_manifest_reads_total"
        case _:
            return None


def find_manifest_problem(
    storage: ObjectStore, partition: RemotePartition, head: Head, manifest: Manifest | None
) -> UserError | None:
    """Return why a manifest cannot have all uploaded records, or `None`.

    If the head is older than the manifest, check again with a newer head.
    """
    if head.start >= head.uploaded_to:
        return None
    if head.writer == REPLICA and manifest is not None:
        return None
    uploaded = f"offsets {head.start} to {head.uploaded_to - 1} of partition {partition.number}"
    if manifest is None:
        return _manifest_error(
            f"{storage.url} has no object {partition.key}, which names what was uploaded: {uploaded}"
        )
    if manifest.end < head.uploaded_to:
        names = f"names nothing from offset {manifest.end} on"
    elif head.start < min(manifest.start, head.local_start):
        names = f"names nothing below offset {manifest.start}"
    else:
        return None
    return _manifest_error(f"{storage.url}: {partition.key} {names}, and uploaded were {uploaded}")


def _manifest_error(message: str) -> UserError:
    return UserError(message, hint=RESTORE_HINT)


ReadManifest: TypeAlias = Callable[[int], Manifest | None]
"""Reads a partition's manifest; returns `None` if never tiered."""


class LogShare(NamedTuple):
    """Estimated size of an offset range."""

    bytes: int = 0
    records: int = 0


def estimate_within(item: PageRef | Entry, start: int, stop: int) -> LogShare:
    """Estimate the size of the offsets from `start` to before `stop`."""
    whole = item.last + 1 - item.base
    wanted = max(0, min(stop, item.last + 1) - max(start, item.base))
    records = item.digest.records if isinstance(item, Entry) else item.records
    return LogShare(item.bytes * wanted // whole, records * wanted // whole)


def estimate_below(paged: PagedEntries, offset: int) -> LogShare:
    """Estimate the size of the log below an offset."""
    return _estimate_range(paged, 0, offset)


def estimate_remote_only(head: Head, manifest: Manifest | None) -> LogShare:
    """Estimate the size of records that only object storage has."""
    return LogShare() if manifest is None else _estimate_range(manifest, head.start, head.local_start)


def _estimate_range(paged: PagedEntries, start: int, stop: int) -> LogShare:
    shares = [estimate_within(item, start, stop) for named in (paged.pages, paged.entries) for item in named]
    return LogShare(sum(share.bytes for share in shares), sum(share.records for share in shares))


def get_manifest_reader(storage: ObjectStore | None, catalog: Catalog, full_name: str, cluster_id: str) -> ReadManifest:
    """Return a function that reads a topic's manifests."""
    location = _find_location(catalog, full_name, cluster_id)
    if storage is None or location is None:
        return lambda _number: None
    return lambda number: read_manifest(storage, remote_partition(location, number))


def _find_location(catalog: Catalog, full_name: str, cluster_id: str) -> TopicLocation | None:
    topic = catalog.topics[full_name]
    is_remote = topic.tiering is not None or topic.replica is not None
    return find_read_location(full_name, topic, cluster_id) if is_remote else None


Place: TypeAlias = tuple[str, int]
"""Topic id and partition."""
Heads: TypeAlias = Mapping[Place, Head]
Manifests: TypeAlias = Mapping[Place, Manifest]

SHOWN: Final = "kafka_enable_describe_log_dirs_remote_storage"
_TRUE: Final = "true"
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class StorageReport:
    """Reports a cluster's topic sizes, and problems in object storage."""

    store: ObjectStore
    storage: ObjectStore | None
    catalog: Catalog
    cluster_id: str

    def report_topics(self, topics: Mapping[str, Address]) -> Iterator[TopicStorage]:
        """Yield topics' sizes (full name → address), with problems in object storage.

        This takes one listing, and one or two GETs per partition.
        """
        problem = self._find_problem(topics)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage") as pool:
            threads, wanted = CallPool(pool, 4 * _AT_ONCE), tuple(topics)
            heads = self.read_heads(wanted, threads)
            looks = {} if problem is not None else self._check_manifests(wanted, heads, threads)
        manifests = {place: look for place, look in looks.items() if not isinstance(look, UserError)}
        for name, address in topics.items():
            report = self.measure_topic(name, address, heads, manifests)
            doubted = (
                looks.get((self.catalog.topics[name].id, partition.partition)) for partition in report.partitions
            )
            partitions = tuple(
                replace(partition, problem=look) if isinstance(look, UserError) else partition
                for partition, look in zip(report.partitions, doubted, strict=True)
            )
            tiering = report.tiering
            if problem is not None and tiering is not None and tiering.hidden is None:
                tiering = replace(tiering, hidden=problem.message, problem=problem)
            yield replace(report, tiering=tiering, partitions=partitions)

    def read_partitions(self, names: Iterable[str]) -> tuple[Heads, Manifests]:
        """Return topics' heads and manifests."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage") as pool:
            threads, wanted = CallPool(pool, 4 * _AT_ONCE), tuple(names)
            heads = self.read_heads(wanted, threads)
            return heads, self.read_manifests(wanted, heads, threads)

    def read_heads(self, names: Iterable[str], threads: CallPool) -> Heads:
        """Return topics' heads by topic id and partition."""
        ids = {self.catalog.topics[name].id for name in names}
        heads = list_heads(self.store, *(ids if len(ids) == 1 else ()))
        places = [place for listed in heads if (place := parse_head_key(listed.key))[0] in ids]
        heads_read = threads.map_calls(lambda place: read_head(self.store, *place), places)
        return {place: head for place, head in zip(places, heads_read, strict=True) if head is not None}

    def read_manifests(self, names: Iterable[str], heads: Heads, threads: CallPool) -> Manifests:
        """Return topics' manifests; empty if the cluster hides remote sizes."""
        storage = self.storage
        if storage is None or self._find_hidden_reason is not None:
            return {}
        wanted = self._list_remote_partitions(names, heads)
        manifests_read = threads.map_calls(lambda pair: read_manifest(storage, pair[1]), wanted)
        return {
            place: manifest for (place, _), manifest in zip(wanted, manifests_read, strict=True) if manifest is not None
        }

    def _find_problem(self, names: Iterable[str]) -> UserError | None:
        if self.storage is None or self._find_hidden_reason is not None or not any(map(self._find_location, names)):
            return None
        try:
            check_storage(self.storage, self.catalog.cluster.storage_id)
        except UserError as error:
            return error
        return None

    def _check_manifests(
        self, names: Iterable[str], heads: Heads, threads: CallPool
    ) -> Mapping[Place, Manifest | UserError]:
        storage = self.storage
        if storage is None or self._find_hidden_reason is not None:
            return {}

        def check(wanted: tuple[Place, RemotePartition]) -> Manifest | UserError | None:
            place, partition = wanted
            try:
                manifest = read_manifest(storage, partition)
            except UserError as error:
                return error
            if find_manifest_problem(storage, partition, heads[place], manifest) is None:
                return manifest
            newer = read_head(self.store, *place)
            return manifest if newer is None else find_manifest_problem(storage, partition, newer, manifest) or manifest

        wanted = self._list_remote_partitions(names, heads)
        results = threads.map_calls(check, wanted)
        return {place: look for (place, _), look in zip(wanted, results, strict=True) if look is not None}

    def _list_remote_partitions(self, names: Iterable[str], heads: Heads) -> list[tuple[Place, RemotePartition]]:
        locations = {self.catalog.topics[name].id: self._find_location(name) for name in names}
        return [
            (place, remote_partition(location, place[1]))
            for place in heads
            if (location := locations.get(place[0])) is not None
        ]

    def measure_topic(self, name: str, address: Address, heads: Heads, manifests: Manifests) -> TopicStorage:
        """Return a topic's sizes."""
        tiering, limits = self._describe_tiering(name), read_cleanup_policy(self.catalog, name, self.cluster_id).limits
        entry, writes = self.catalog.topics[name], tiering is not None and tiering.mode in {"write_only", "full"}
        return TopicStorage(
            address,
            tiering,
            tuple(
                _measure_partition(number, heads.get(place), manifests.get(place), limits, writes=writes)
                for number in range(entry.partitions)
                for place in [(entry.id, number)]
            ),
        )

    @property
    def _find_hidden_reason(self) -> str | None:
        properties = self.catalog.cluster.properties
        if read_property(properties, SHOWN) != _TRUE:
            return f"{SHOWN} is false"
        return "the cluster names no objectStorage" if self.storage is None else None

    def _find_tiering(self, name: str) -> TopicTiering | None:
        return find_tiering(self.catalog, name, self.cluster_id)

    def _find_location(self, name: str) -> TopicLocation | None:
        return _find_location(self.catalog, name, self.cluster_id)

    def _describe_replica(self, name: str, replica: ReplicaEntry) -> TieringShown:
        trouble = replica.trouble
        problem = None if trouble is None else UserError(trouble.message, hint="Delete the read replica.")
        return TieringShown(
            "disabled" if hides_remote_records(self.catalog, name) else "read_replica",
            FOLLOWING if trouble is None else trouble.code,
            0,
            replica.location,
            self._get_url,
            is_paused=False,
            hidden=self._find_hidden_reason if trouble is None else trouble.message,
            problem=problem,
        )

    @property
    def _get_url(self) -> str:
        return f"remote://{'' if self.storage is None else self.storage.url.partition('://')[2]}"

    def _describe_tiering(self, name: str) -> TieringShown | None:
        replica = self.catalog.topics[name].replica
        if replica is not None:
            return self._describe_replica(name, replica)
        tiering = self._find_tiering(name)
        if tiering is None:
            return None
        properties = self.catalog.cluster.properties
        is_writing = (
            read_property(properties, ENABLED) == _TRUE
            and self.catalog.cluster.storage_id is not None
            and tiering.state is TieringState.ENABLED
            and read_switches(find_explicit_configs(self.catalog, name)).write
        )
        return TieringShown(
            get_tiering_mode(writes=is_writing, serves=tiering.serves),
            str(tiering.state),
            tiering.epoch,
            str(tiering.location),
            self._get_url,
            is_paused=is_writing and read_property(properties, UPLOADS) != _TRUE,
            hidden=self._find_hidden_reason,
        )


def get_tiering_mode(*, writes: bool, serves: bool) -> Mode:
    """Return a topic's tiering mode, by its switches."""
    if writes:
        return "full" if serves else "write_only"
    return "read_only" if serves else "disabled"


def measure_remote_usage(manifest: Manifest, uploaded_to: int) -> RemoteUsage:
    """Return a partition's size in object storage."""
    garbage = manifest.garbage
    return RemoteUsage(
        manifest.start,
        manifest.end,
        TierUsage(manifest.stored_bytes, manifest.segments),
        TierUsage(_count_bytes(garbage), sum(page.entries for page in garbage.pages) + len(garbage.entries)),
        manifest.uploaded_ms or None,
        is_ahead=uploaded_to < manifest.end,
    )


def count_pending_bytes(head: Head, manifest: Manifest | None) -> int:
    """Return a partition's bytes that no manifest references yet."""
    uploaded_to = head.uploaded_to if manifest is None else max(head.uploaded_to, manifest.end)
    return head.stored_bytes - estimate_below(head, uploaded_to).bytes


def _measure_partition(
    number: int, head: Head | None, manifest: Manifest | None, limits: SegmentLimits, *, writes: bool
) -> PartitionStorage:
    if head is None:
        return PartitionStorage(number, 0, 0, 0, TierUsage(), None, 0, 0, 0 if writes else None)
    far = estimate_remote_only(head, manifest)
    # Pages reference the oldest segments, each already one file.
    segments = sum(page.entries for page in head.pages) + sum(1 for _ in iter_segments(head.entries, limits))
    noted = head.uploaded_to if manifest is None or head.writer != REPLICA else manifest.end
    return PartitionStorage(
        number,
        head.start,
        head.local_start,
        head.end,
        TierUsage(head.stored_bytes, segments),
        None if manifest is None else measure_remote_usage(manifest, noted),
        head.stored_bytes + far.bytes,
        head.records + far.records,
        count_pending_bytes(head, manifest) if writes else None,
    )


def _count_bytes(paged: PagedEntries) -> int:
    return sum(page.bytes for page in paged.pages) + sum(entry.bytes for entry in paged.entries)


STRETCHES: Final = 100


@dataclass(frozen=True, slots=True)
class TopicSize:
    """Size of a topic; `ages` are (newest time in ms, bytes), oldest first."""

    bytes: int
    records: int
    ages: tuple[tuple[int, int], ...]
    local_only_bytes: int = 0
    tiered: tuple[TieredPartition, ...] = ()
    positions: Positions = field(default_factory=dict)
    older_bytes: Mapping[int, int] = field(default_factory=dict)
    """Bytes of records older than a time in ms; a partly older page counts completely."""


def measure_topic(
    store: ObjectStore, topic_id: str, manifest_of: ReadManifest = lambda _number: None, cuts: Iterable[int] = ()
) -> TopicSize:
    """Measure a topic; records on both tiers count once.

    `cuts` are the times of `older_bytes`. This takes a listing, and one or two GETs per partition.
    """
    heads = read_heads(store, topic_id)
    longest = sum(head.stored_bytes for head in heads.values()) // STRETCHES
    stretches = [stretch for head in heads.values() for stretch in _iter_stretches(store, head, longest)]
    total, records = sum(item.bytes for item in stretches), sum(head.records for head in heads.values())
    remote = dict.fromkeys(heads, 0)
    for number, manifest in _read_manifests(heads, manifest_of):
        head, named = heads[number], list[PageRef | Entry]([*manifest.pages, *manifest.entries])
        for item in named:
            share = estimate_within(item, head.start, head.local_start)
            total, records = total + share.bytes, records + share.records
            remote[number] += share.bytes
            stretches.append(_LogStretch.of(item, share.bytes))
    return TopicSize(
        total,
        records,
        _merge_ages([(item.newest_ms, item.bytes) for item in stretches if item.bytes]),
        sum(head.stored_bytes - estimate_below(head, head.uploaded_to).bytes for head in heads.values()),
        tuple(
            TieredPartition(number, head.start, head.local_start, head.uploaded_to, remote[number])
            for number, head in sorted(heads.items())
        ),
        {number: get_link_position(head) for number, head in sorted(heads.items())},
        {cut: sum(item.bytes for item in stretches if item.expires_ms < cut) for cut in cuts},
    )


def _read_manifests(heads: Mapping[int, Head], manifest_of: ReadManifest) -> Iterator[tuple[int, Manifest]]:
    wanted = [number for number, head in heads.items() if head.start < head.local_start]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="manifests") as threads:
        for number, manifest in zip(wanted, threads.map(manifest_of, wanted), strict=True):
            if manifest is not None:
                yield number, manifest


class _LogStretch(NamedTuple):
    newest_ms: int
    expires_ms: int
    """Time of a part's newest record, or a page's oldest."""
    bytes: int

    @classmethod
    def of(cls, named: PageRef | Entry, size: int) -> _LogStretch:
        return cls(named.max_ts, named.min_ts if isinstance(named, PageRef) else named.max_ts, size)


def _iter_stretches(store: ObjectStore, head: Head, longest: int) -> Iterator[_LogStretch]:
    pages = list(reversed(head.pages))
    while pages:
        page = pages.pop()
        if page.level and page.bytes > longest:
            pages += reversed(read_pages(store, page))
        else:
            yield _LogStretch.of(page, page.bytes)
    yield from (_LogStretch.of(entry, entry.bytes) for entry in head.entries)


def _merge_ages(stretches: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    ordered = sorted(stretches)
    step = max(1, -(-len(ordered) // STRETCHES))
    groups = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    return tuple((group[-1][0], sum(size for _, size in group)) for group in groups)
