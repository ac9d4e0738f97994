"""Sizes and lags of live topics, and differences between two copies of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from reconciler.errors import StalePlanError, UserError
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirrors import (
    NEVER_FETCHED,
    DivergedPartition,
    OffsetStretch,
    Position,
    Positions,
    find_agreed_end,
)
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """Offsets of a tiered partition. Offsets below `local_start` are only in object storage."""

    number: int
    start: int
    local_start: int
    uploaded_to: int
    """Offset below which local records are also in object storage."""
    remote_bytes: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Size and use of one topic. Records in both storage tiers count once."""

    bytes: int
    records: int
    groups: tuple[str, ...] | None = None
    """Groups that read the topic; `None` if unknown."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, size in bytes) of up to 100 offset ranges, oldest first."""
    local_only_bytes: int = 0
    tiered: tuple[TieredPartition, ...] = ()
    """Partitions with records; empty if the topic was never tiered."""
    positions: Positions = field(default_factory=dict)
    committed: Mapping[str, Mapping[int, int]] | None = None
    """Committed offsets by group and partition; `None` if unknown."""
    diverged: tuple[DivergedPartition, ...] | None = None
    """Records that the mirror never received; `None` if they follow from `positions`."""
    newest_ms: int | None = None
    """Latest timestamp in ms; `None` without records or if unknown."""
    older: Mapping[int, int] = field(default_factory=dict)
    """Approximate size in bytes of older records, by time in ms."""
    truncated: tuple[OffsetStretch, ...] | None = None
    """Offsets that a restore truncates, if the platform itself reports them."""
    refusal: UserError | None = None
    """Why the platform refuses a planned restore or reversal."""

    def estimate_older_bytes(self, ms: int) -> int | None:
        """Return the approximate size in bytes of records older than `ms`; `None` if unknown."""
        if ms in self.older:
            return self.older[ms]
        return sum(size for newest, size in self.ages if newest < ms) if self.ages else None

    def limit_to_newest(self, size: int) -> Measure:
        """Return the measure of the newest `size` bytes."""
        ages, left = list[tuple[int, int]](), size
        for newest_ms, held in reversed(self.ages):
            ages.append((newest_ms, min(held, left)))
            left -= ages[-1][1]
        older = {ms: max(0, held - (self.bytes - size)) for ms, held in self.older.items()}
        records = self.records if size else 0
        return replace(self, bytes=size, records=records, ages=tuple(reversed(ages)), older=older)


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """Positions in a topic that a command trims, by partition."""

    starts: Mapping[int, tuple[int, int]]
    """First and last stable offsets."""
    groups: Mapping[str, Mapping[int, int]] | None
    """Committed offsets by group; `None` if unknown."""
    mirrors: Mapping[Address, Mapping[int, int] | None]
    """Offsets up to which mirrors have copied; `None` if unknown."""


Measures: TypeAlias = Mapping[Address, Measure]
"""Measures by address, without unmeasured topics."""

Cuts: TypeAlias = Mapping[Address, Sequence[int]]
"""Times in ms by address, for which measures report the size of older records."""
NO_CUTS: Final[Cuts] = MappingProxyType({})


_BEGINNING: Final = Position(0, 0)


def check_approved(
    restored: tuple[str, str], peer: tuple[str, str], lost: Iterable[OffsetStretch], approved: Iterable[OffsetStretch]
) -> None:
    """Raise `StalePlanError` if a restore would truncate more than was approved.

    `restored` is the topic's cluster and full name. `peer` is the mirror's cluster and link.
    """
    cluster, topic = restored
    agreed = {stretch.partition: stretch for stretch in approved}
    more = [
        f"{pluralize(stretch.length, 'offset')} of partition {stretch.partition} from {stretch.start:,} on"
        for stretch in lost
        if stretch.partition not in agreed
        or stretch.start < agreed[stretch.partition].start
        or stretch.stop > agreed[stretch.partition].stop
    ]
    if more:
        raise StalePlanError(
            f"topic {topic} of cluster {cluster} has more to cut off than was approved: "
            f"{list_first(more, 5, grouping='')}; nothing was cut off",
            hint="Stop what writes to it. Then look again: "
            f"reconciler mirror restore {address_of('mirror', cluster, topic)} "
            f"--link {address_of('link', *peer)} --dry-run",
        )


def find_missing_offsets(
    copy: Positions, source: Positions, source_topic_id: str | None
) -> tuple[OffsetStretch, ...] | None:
    """Return the offsets that a mirror lacks; `None` if the source was recreated.

    Records that the source deleted are excluded; all offsets after its truncation are included.
    """
    # A topic never written has no positions, and so no topic id to compare.
    if source_topic_id is not None and any(at.source_topic_id not in {None, source_topic_id} for at in copy.values()):
        return None
    lacked: list[OffsetStretch] = []
    for partition, source_position in sorted(source.items()):
        copy_position = copy.get(partition, _BEGINNING)
        begins = max(_find_agreed_end(copy_position, source_position), source_position.start)
        if begins < source_position.end:
            lacked.append(OffsetStretch(partition, begins, source_position.end))
    return tuple(lacked)


def list_last_fetched(copy: Positions) -> tuple[tuple[int, int], ...]:
    """Return (partition, last copied offset) pairs, with -1 if nothing was copied."""
    return tuple((partition, max(at.fetched - 1, NEVER_FETCHED)) for partition, at in sorted(copy.items()))


def find_agreed_ends(
    topic: Positions, topic_id: str | None, mirror: Positions, mirror_id: str | None
) -> dict[int, int]:
    """Return the end by partition after a restore of an original source: its last agreement with the mirror.

    Each side stores what it copied from the other, and the higher offset counts. For a renumbered topic only the
    mirror's value counts.
    """
    ends: dict[int, int] = {}
    for partition, topic_position in topic.items():
        mirror_position = mirror.get(partition)
        agreed = 0 if mirror_position is None else _find_copied_end(mirror_position, topic_position, topic_id)
        if mirror_position is not None and not topic_position.is_renumbered:
            agreed = max(agreed, _find_copied_end(topic_position, mirror_position, mirror_id))
        ends[partition] = min(topic_position.end, agreed)
    return ends


def list_truncated_ranges(topic: Positions, at: Mapping[int, int]) -> tuple[OffsetStretch, ...]:
    """Return the offsets that a truncation removes. `at` is the new end by partition."""
    begins = {partition: max(cut, topic[partition].start) for partition, cut in sorted(at.items())}
    return tuple(
        OffsetStretch(partition, start, topic[partition].end)
        for partition, start in begins.items()
        if start < topic[partition].end
    )


_MAX_LISTED: Final = 8


class UndeletableError(UserError):
    """The platform cannot delete records that a mirror never received."""


def diverged_error(cluster: str, full_name: str, diverged: Iterable[DivergedPartition]) -> UserError:
    """Return the error for records that a restore would lose."""
    partitions = list(diverged)
    parts = [f"{one.records:,} of partition {one.partition} from offset {one.start:,} on" for one in partitions]
    total = pluralize(sum(one.records for one in partitions), "record")
    message = f"topic {full_name} of cluster {cluster} has {total} that its mirror never got"
    address = address_of("mirror", cluster, full_name)
    hint = (
        f"To keep them: reconciler mirror restore {address} --keep-diverged. "
        f"To give them up in a plan: --allow truncate-and-restore:{address}"
    )
    return UserError(f"{message}: {list_first(parts, _MAX_LISTED, grouping='')}", hint=hint)


def _find_agreed_end(copy: Position, source: Position) -> int:
    compared = min(copy.fetched, source.end)
    if compared <= 0 or not copy.source_epochs:
        return copy.end
    agreed = find_agreed_end(copy.source_epochs, source.epochs, compared)
    return agreed if agreed < compared else copy.end


def _find_copied_end(copy: Position, source: Position, source_topic_id: str | None) -> int:
    """Return the end of what a log copied in the current leader epochs of another."""
    if copy.fetched <= 0 or copy.source_topic_id != source_topic_id:
        return 0
    reached = copy.fetched if copy.is_renumbered else min(copy.fetched, copy.end)
    return find_agreed_end(copy.source_epochs, source.epochs, min(reached, source.end))


Mode: TypeAlias = Literal["disabled", "write_only", "read_only", "full", "read_replica"]
"""Effective tiered storage: none, only uploads, only reads, both, or reads of another topic's records."""


class TierUsage(NamedTuple):
    """Size of a storage tier."""

    bytes: int = 0
    segments: int = 0

    @classmethod
    def sum(cls, usages: Iterable[TierUsage]) -> TierUsage:
        """Return the total of several usages."""
        usage_list = list(usages)
        return cls(sum(one.bytes for one in usage_list), sum(one.segments for one in usage_list))


@dataclass(frozen=True, slots=True)
class RemoteUsage:
    """Data of a partition in object storage."""

    start: int
    end: int
    """Next offset to upload."""
    held: TierUsage
    """Segments of the log in object storage."""
    garbage: TierUsage | None
    """Segments marked for deletion, which are no longer part of the log. Null if unknown."""
    uploaded_ms: int | None
    """Time of the last segment upload in ms. Null without uploads."""
    is_ahead: bool
    """Whether an interrupted upload left unrecorded objects."""


@dataclass(frozen=True, slots=True)
class PartitionStorage:
    """Storage of one partition. Offsets from `start` to `local_start` are only in object storage."""

    partition: int
    start: int
    local_start: int | None
    """`None` if unknown."""
    end: int
    """Next offset to write."""
    local: TierUsage
    remote: RemoteUsage | None
    """`None` if nothing was uploaded or object storage is hidden."""
    log_bytes: int
    """Size of the log in bytes. Records in both tiers count once."""
    log_records: int
    """Number of records in the log."""
    pending_bytes: int | None
    """Size in bytes to upload, including the open segment. Null if uploads are off."""
    problem: ReconcilerError | None = None
    """Why object storage could not be read."""


@dataclass(frozen=True, slots=True)
class TieringShown:
    """Tiered storage of a topic that is or was tiered."""

    mode: Mode
    state: str
    """ENABLED, DISABLING or DISABLED; FOLLOWING or SOURCE_GONE for a read replica."""
    epoch: int
    """Number that increases when tiered storage is enabled or disabled."""
    location: str | None
    """Permanent `<topic>/<cluster uuid>/<initial revision>`, for a read replica that of its source. Null if unknown."""
    url: str
    """`remote://<object storage>`."""
    is_paused: bool
    """Whether all uploads of the cluster are paused."""
    hidden: str | None
    """Why object storage cannot be shown. Null if it can."""
    problem: ReconcilerError | None = None
    """Error that prevents the reads of object storage, if any."""


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """Storage of one topic or mirror."""

    address: Address
    tiering: TieringShown | None
    """`None` if the topic was never tiered."""
    partitions: tuple[PartitionStorage, ...]

    @property
    def problem(self) -> ReconcilerError | None:
        """First error of the reads of object storage, if any."""
        whole = None if self.tiering is None else self.tiering.problem
        return whole or next(
            (partition.problem for partition in self.partitions if partition.problem is not None), None
        )

    @property
    def lag(self) -> int | None:
        """Uploaded source offsets that a read replica lacks; `None` for other topics or if unknown."""
        if self.tiering is None or self.tiering.mode != "read_replica" or self.tiering.hidden is not None:
            return None
        if self.problem is not None or any(partition.remote is None and partition.end for partition in self.partitions):
            return None
        return sum(
            max(0, partition.remote.end - partition.end)
            for partition in self.partitions
            if partition.remote is not None
        )

    @property
    def local(self) -> TierUsage:
        """Usage of the cluster's disks."""
        return TierUsage.sum(partition.local for partition in self.partitions)

    @property
    def remote(self) -> TierUsage:
        """Usage of object storage."""
        return TierUsage.sum(partition.remote.held for partition in self.partitions if partition.remote is not None)

    @property
    def garbage(self) -> TierUsage:
        """Objects marked for deletion."""
        remotes = (partition.remote for partition in self.partitions if partition.remote is not None)
        return TierUsage.sum(remote.garbage for remote in remotes if remote.garbage is not None)

    @property
    def log_bytes(self) -> int:
        """Size of the log in bytes. Each record counts once."""
        return sum(partition.log_bytes for partition in self.partitions)

    @property
    def log_records(self) -> int:
        """Number of records in the log."""
        return sum(partition.log_records for partition in self.partitions)

    @property
    def pending_bytes(self) -> int | None:
        """Size in bytes to upload; `None` if the topic is not uploaded."""
        pending = [partition.pending_bytes for partition in self.partitions if partition.pending_bytes is not None]
        return sum(pending) if pending else None

    @property
    def uploaded_ms(self) -> int | None:
        """Time of the last segment upload in ms."""
        upload_times = [partition.remote.uploaded_ms for partition in self.partitions if partition.remote is not None]
        return max((when for when in upload_times if when is not None), default=None)


COUNTER_HELP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "segment_uploads_total": "Segments uploaded to object storage.",
        "uploaded_bytes": "Bytes of the segments uploaded to object storage.",
        "deleted_segments": "Segments deleted from object storage: expired, merged, compacted, or of deleted topics.",
        "partition_manifest_uploads_total": "Manifests of partitions written to object storage.",
        "topic_manifest_uploads_total": "Manifests of topics written to object storage.",
        "spillover_manifest_uploads_total": "Pages that manifests spilled to object storage.",
        "spillover_manifest_reads_total": "Pages of manifests read back from object storage: history.",
        "errors_total": "Requests to object storage that failed permanently.",
        "jobs_cloud_segment_reuploads": "Segments that merging and compaction rewrote in object storage.",
        "housekeeping_rounds": "Rounds of housekeeping that began.",
        "housekeeping_pauses": "Times housekeeping paused under traffic.",
        "housekeeping_resumes": "Times housekeeping went on, idle again.",
        "housekeeping_drains": "Rounds done at their interval though object storage was never idle.",
        "housekeeping_jobs_completed": "Jobs of housekeeping that were done.",
        "cache_op_hit": "Reads of remote records that the cache answered.",
        "cache_op_miss": "Reads of remote records that went to object storage.",
        "cache_trim_exhaustive_trims": "Trims of the cache that listed all of it.",
        "cache_trim_carryover_trims": "Trims of the cache for which the listing of an earlier one was enough.",
        "cache_trim_failed_trims": "Trims after which the cache was still too full: readers held the rest.",
        "cache_anomalies": "Files of the cache that were damaged, or that its disk refused; they were fetched again.",
        "anomalies": "Findings of scrubs in object storage: missing objects and damaged manifests, mended or not.",
    }
)
"""Help text by object storage counter, named as in Redpanda after `cloud_storage_`."""

LEVELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "upload_backlog_controller_backlog_size": "Bytes that waited to be uploaded when the share of uploads was set.",
        "upload_backlog_controller_error": "How far that was from nothing, in its unit.",
        "upload_backlog_controller_shares": "Share of uploads, of a thousand.",
        "active_segments": "Remote segments of which something is in the cache.",
        "cache_space_size_bytes": "Bytes of the cache.",
        "cache_space_files": "Files of the cache.",
        "readers": "Files of the cache that readers of this machine hold at that moment: no trim evicts them.",
    }
)


class RemoteVitals(NamedTuple):
    """Use of object storage by a tiered topic."""

    bytes: int
    segments: int
    pending_deletion: int
    """Number of segments marked for deletion."""
    log_bytes: int
    """Size of the whole log in bytes."""
    pending_bytes: int | None
    """Size in bytes to upload; `None` if the topic is not uploaded."""
    lag: int | None = None
    """Number of uploaded source offsets that a read replica lacks."""


class PartitionVitals(NamedTuple):
    """Offsets and latest timestamp of a partition."""

    end: int
    newest_ms: int | None = None
    """Latest timestamp in ms; `None` without records or if unknown."""
    copied: int | None = None
    """End in source offsets; `None` if the mirror has the source's offsets."""

    @property
    def source_end(self) -> int:
        """End in source offsets."""
        return self.end if self.copied is None else self.copied


NO_PARTITIONS: Final[Mapping[int, PartitionVitals]] = MappingProxyType({})


class TopicVitals(NamedTuple):
    """Totals of one topic or mirror."""

    address: Address
    partitions: int
    start: int
    end: int
    records: int
    """On Kafka an upper bound, because compaction and transactions leave offsets without a record."""
    bytes: int | None
    """Size in bytes; `None` without the permission."""
    source: Address | None = None
    """Topic that a mirror follows."""
    remote: RemoteVitals | None = None
    """`None` if the topic was never tiered or object storage is hidden."""
    partition_vitals: Mapping[int, PartitionVitals] = NO_PARTITIONS

    def count_lag(self, source: TopicVitals) -> int:
        """Return the number of source offsets that a mirror lacks."""
        return sum(
            max(0, source_partition.end - self.partition_vitals.get(number, PartitionVitals(0)).source_end)
            for number, source_partition in source.partition_vitals.items()
        )

    def compute_lag_ms(self, source: TopicVitals) -> int | None:
        """Return the lag in ms of a mirror's slowest partition; `None` if a lagging partition was never copied."""
        lags, is_known = [], True
        for number, source_partition in source.partition_vitals.items():
            own_partition = self.partition_vitals.get(number, PartitionVitals(0))
            if own_partition.source_end >= source_partition.end:
                continue
            if own_partition.newest_ms is None or source_partition.newest_ms is None:
                is_known = False
            else:
                lags.append(max(0, source_partition.newest_ms - own_partition.newest_ms))
        return max(lags, default=0 if is_known else None)


class GroupLag(NamedTuple):
    """Number of unread offsets of a group."""

    group: str
    topic: str
    lag: int


_MAX_TOPICS: Final = 1_000
_MAX_PARTITIONS: Final = 10_000
GROUPS_MEASURED: Final = 1_000
LAGS_MEASURED: Final = 10_000
"""Maximum lags measured on a cluster."""


def choose_measured_names(partitions: Mapping[str, int]) -> list[str]:
    """Return the first topics by name within the limits of measurement."""
    chosen: list[str] = []
    left = _MAX_PARTITIONS
    for name, count in sorted(partitions.items()):
        if len(chosen) == _MAX_TOPICS:
            break
        if count <= left:
            chosen.append(name)
            left -= count
    return chosen


@dataclass(frozen=True, slots=True)
class Vitals:
    """Measurements of one cluster. Topics beyond the limits are only counted."""

    topics: int
    partitions: int
    measured: Sequence[TopicVitals] = ()
    unmeasured: int = 0
    """Number of topics beyond the limits."""
    groups: int = 0
    lags: Sequence[GroupLag] = ()
    unmeasured_groups: int = 0
    open_transactions: int | None = 0
    """Open transactions in measured topics, on Kafka in all topics. `None` without the permission."""
    pending_deletions: int = 0
    """Number of deleted topics whose data still exists."""
    pending_rewrites: int = 0
    levels: Mapping[str, float] = field(default_factory=dict)
    """Gauges of this machine's cache by the names in `LEVELS`."""
