"""Measured sizes and lags of live resources, and what one copy of a topic lacks of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from reconciler.errors import StalePlanError, UserError
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirrors import NEVER_FETCHED, Diverged, Position, Positions, Stretch, agreed_to
from reconciler.runtime.text import counted, first_few

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """Where the offsets of a partition that is, or was, tiered lie: below `local_start` in the remote tier alone."""

    number: int
    start: int
    local_start: int
    uploaded_to: int
    """What is local below this offset is remote, too; what is gone from there on was never remote."""
    remote_bytes: int
    """Of what lies in the remote tier alone."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Size and use of one topic; counts are of all its partitions, and of what lies in two tiers once."""

    bytes: int
    records: int
    groups: tuple[str, ...] | None = None
    """Consumer groups that are reading it; `None`: not asked for, or we cannot tell."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, bytes) of its oldest-first stretches, at most 100."""
    local_only_bytes: int = 0
    """What an upload would have to copy."""
    tiered: tuple[TieredPartition, ...] = ()
    """The partitions ever written to of a topic that is, or was, tiered."""
    positions: Positions = field(default_factory=dict)
    """Where its partitions stand that were ever written to."""
    committed: Mapping[str, Mapping[int, int]] | None = None
    """Where each consumer group goes on reading, by partition; `None`: not asked for, or we cannot tell."""
    diverged: tuple[Diverged, ...] | None = None
    """What it has from where its own mirror agrees with it last, by records; `None`: its offsets say it."""
    newest_ms: int | None = None
    """The latest timestamp of a record; `None`: it holds none, or we cannot tell."""
    older: Mapping[int, int] = field(default_factory=dict)
    """Time in ms → about how many bytes are older, where a platform tells it of the times that are asked for alone."""
    undeletable: UndeletableError | None = None
    """Why it cannot be restored: its platform deletes nothing of what `diverged` would be."""

    def older_than(self, ms: int) -> int | None:
        """Return about how many bytes are older than a time; `None`: we cannot tell."""
        if ms in self.older:
            return self.older[ms]
        return sum(size for newest, size in self.ages if newest < ms) if self.ages else None

    def newest(self, size: int) -> Measure:
        """Return the measure of its newest `size` bytes."""
        ages, left = list[tuple[int, int]](), size
        for newest_ms, held in reversed(self.ages):
            ages.append((newest_ms, min(held, left)))
            left -= ages[-1][1]
        older = {ms: max(0, held - (self.bytes - size)) for ms, held in self.older.items()}
        records = self.records if size else 0
        return replace(self, bytes=size, records=records, ages=tuple(reversed(ages)), older=older)


Measures: TypeAlias = Mapping[Address, Measure]
"""An address that is absent was not measured: we cannot tell."""

Cuts: TypeAlias = Mapping[Address, Sequence[int]]
"""Times in ms of which a measure is to tell how much of a topic is older."""
NO_CUTS: Final[Cuts] = MappingProxyType({})


# How two copies of a topic stand to each other: what one lacks of the other, and where they agree last.


_BEGINNING: Final = Position(0, 0)


def check_approved(
    restored: tuple[str, str], peer: tuple[str, str], lost: Iterable[Stretch], approved: Iterable[Stretch]
) -> None:
    """Refuse to cut off what nobody agreed to.

    `restored`: the cluster and the full name of the topic; `peer`: the cluster of its mirror, and the link there.

    Raises:
        StalePlanError: More would be cut off than was approved.
    """
    cluster, topic = restored
    agreed = {stretch.partition: stretch for stretch in approved}
    more = [
        f"{counted(stretch.length, 'offset')} of partition {stretch.partition} from {stretch.start:,} on"
        for stretch in lost
        if stretch.partition not in agreed
        or stretch.start < agreed[stretch.partition].start
        or stretch.stop > agreed[stretch.partition].stop
    ]
    if more:
        raise StalePlanError(
            f"topic {topic} of cluster {cluster} has more to cut off than was approved: "
            f"{first_few(more, 5, grouping='')}; nothing was cut off",
            hint="Stop what writes to it. Then look again: "
            f"reconciler mirror restore {address_of('mirror', cluster, topic)} "
            f"--link {address_of('link', *peer)} --dry-run",
        )


def lacking(copy: Positions, source: Positions, source_topic_id: str | None) -> tuple[Stretch, ...] | None:
    """Return what a mirror has not of what its source has; `None`: what it has is of another topic.

    What the source let go of is nobody's loss. Where the source was cut, all above the cut is what it has now.
    """
    # One that was made anew and never written to has no positions that would tell.
    if source_topic_id is not None and any(at.source_topic_id not in {None, source_topic_id} for at in copy.values()):
        return None
    lacked: list[Stretch] = []
    for partition, source_position in sorted(source.items()):
        copy_position = copy.get(partition, _BEGINNING)
        begins = max(_agreed_end(copy_position, source_position), source_position.start)
        if begins < source_position.end:
            lacked.append(Stretch(partition, begins, source_position.end))
    return tuple(lacked)


def last_fetched(copy: Positions) -> tuple[tuple[int, int], ...]:
    """Return (partition, the last offset that was copied of it); -1: none ever was."""
    return tuple((partition, max(at.fetched - 1, NEVER_FETCHED)) for partition, at in sorted(copy.items()))


def agreed_ends(topic: Positions, topic_id: str | None, mirror: Positions, mirror_id: str | None) -> dict[int, int]:
    """Return where each partition of an original source is to be cut: where it and its mirror agree last.

    Each side knows what it copied from the other; where both ever did, what is known of more counts.
    """
    ends: dict[int, int] = {}
    for partition, topic_position in topic.items():
        mirror_position = mirror.get(partition)
        agreed = 0 if mirror_position is None else _copied_to(mirror_position, topic_position, topic_id)
        if (
            mirror_position is not None and not topic_position.is_renumbered
        ):  # Else what it knows is in offsets of the other.
            agreed = max(agreed, _copied_to(topic_position, mirror_position, mirror_id))
        ends[partition] = min(topic_position.end, agreed)
    return ends


def cut_off(topic: Positions, at: Mapping[int, int]) -> tuple[Stretch, ...]:
    """Return what lies from the cuts on."""
    begins = {partition: max(cut, topic[partition].start) for partition, cut in sorted(at.items())}
    return tuple(
        Stretch(partition, start, topic[partition].end)
        for partition, start in begins.items()
        if start < topic[partition].end
    )


_FEW: Final = 8


class UndeletableError(UserError):
    """A topic has records that its mirror never got, and its platform cannot delete them."""


def diverged_error(cluster: str, full_name: str, diverged: Iterable[Diverged]) -> UserError:
    """Return what is said of records that a restore would lose, and nobody gave up."""
    partitions = list(diverged)
    parts = [f"{one.records:,} of partition {one.partition} from offset {one.start:,} on" for one in partitions]
    total = counted(sum(one.records for one in partitions), "record")
    message = f"topic {full_name} of cluster {cluster} has {total} that its mirror never got"
    address = address_of("mirror", cluster, full_name)
    hint = (
        f"To keep them: reconciler mirror restore {address} --keep-diverged. "
        f"To give them up in a plan: --allow truncate-and-restore:{address}"
    )
    return UserError(f"{message}: {first_few(parts, _FEW, grouping='')}", hint=hint)


def _agreed_end(copy: Position, source: Position) -> int:
    """Return from which offset on a mirror lacks what its source has."""
    compared = min(copy.fetched, source.end)
    if compared <= 0 or not copy.source_epochs:
        return copy.end
    agreed = agreed_to(copy.source_epochs, source.epochs, compared)
    return agreed if agreed < compared else copy.end


def _copied_to(copy: Position, source: Position, source_topic_id: str | None) -> int:
    """Return up to which offset one log is known to be a copy of another as it is now."""
    if copy.fetched <= 0 or copy.source_topic_id != source_topic_id:
        return 0
    reached = copy.fetched if copy.is_renumbered else min(copy.fetched, copy.end)
    return agreed_to(copy.source_epochs, source.epochs, min(reached, source.end))


# What topics take, tier by tier: what lies with the cluster, and what lies in object storage.


Mode: TypeAlias = Literal["disabled", "write_only", "read_only", "full", "read_replica"]
"""What tiering does now: nothing, upload, serve what was uploaded, or both; or serve what another topic uploaded. A
pause of uploads does not show."""


class TierUsage(NamedTuple):
    """What a tier holds."""

    bytes: int = 0
    segments: int = 0

    @classmethod
    def sum(cls, usages: Iterable[TierUsage]) -> TierUsage:
        """Return what several hold together."""
        usage_list = list(usages)
        return cls(sum(one.bytes for one in usage_list), sum(one.segments for one in usage_list))


@dataclass(frozen=True, slots=True)
class RemoteHeld:
    """What object storage holds of a partition."""

    start: int
    end: int
    """The next offset to be uploaded."""
    held: TierUsage
    garbage: TierUsage
    """What is marked for deletion and not deleted yet: it is not part of the log any more."""
    uploaded_ms: int | None
    """When a segment was uploaded last. Null: nothing was uploaded yet."""
    is_ahead: bool
    """Whether an upload was cut off before the cluster took note of it."""


@dataclass(frozen=True, slots=True)
class PartitionStorage:
    """One partition. Offsets from `start` to `local_start` are remote only; `end` is the next to be written."""

    partition: int
    start: int
    local_start: int
    end: int
    """The next offset to be written."""
    local: TierUsage
    remote: RemoteHeld | None
    """`None`: nothing was ever uploaded, or it is not shown."""
    log_bytes: int
    """What the log takes, each record counted once, though it may lie in both tiers."""
    log_records: int
    """Likewise."""
    pending_bytes: int | None
    """Still to be uploaded, the open segment included. Null: nothing of it is uploaded."""
    problem: ReconcilerError | None = None
    """Why it cannot be told what object storage holds; nothing of that is counted then."""


@dataclass(frozen=True, slots=True)
class TieringShown:
    """What holds for a topic that is, or was, tiered."""

    mode: Mode
    state: str
    """ENABLED, DISABLING or DISABLED; of a read replica FOLLOWING or SOURCE_GONE."""
    epoch: int
    """Rises whenever it is switched on or off."""
    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, for life; of a read replica that of its source."""
    url: str
    """`remote://<object storage>`."""
    is_paused: bool
    """Whether uploads pause on the whole cluster."""
    hidden: str | None
    """Why nothing is shown of object storage. Null: it is."""
    problem: ReconcilerError | None = None
    """Where that is no choice: what is wrong with the object storage as a whole."""


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """One topic or mirror."""

    address: Address
    tiering: TieringShown | None
    """`None`: it was never tiered."""
    partitions: tuple[PartitionStorage, ...]

    @property
    def problem(self) -> ReconcilerError | None:
        """Return why it cannot be told what object storage holds of all of it, the first reason; `None`: it can."""
        whole = None if self.tiering is None else self.tiering.problem
        return whole or next(
            (partition.problem for partition in self.partitions if partition.problem is not None), None
        )

    @property
    def lag(self) -> int | None:
        """Return how many offsets the source of a read replica has uploaded that it does not show yet.

        `None`: it is no read replica, or its source cannot be seen.
        """
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
        """What the cluster holds of all partitions."""
        return TierUsage.sum(partition.local for partition in self.partitions)

    @property
    def remote(self) -> TierUsage:
        """What object storage holds of all partitions, counted once."""
        return TierUsage.sum(partition.remote.held for partition in self.partitions if partition.remote is not None)

    @property
    def garbage(self) -> TierUsage:
        """What is marked for deletion in object storage."""
        return TierUsage.sum(partition.remote.garbage for partition in self.partitions if partition.remote is not None)

    @property
    def log_bytes(self) -> int:
        """What the log takes, each record counted once."""
        return sum(partition.log_bytes for partition in self.partitions)

    @property
    def log_records(self) -> int:
        """How many records the log has."""
        return sum(partition.log_records for partition in self.partitions)

    @property
    def pending_bytes(self) -> int | None:
        """What is still to be uploaded; `None`: nothing is uploaded of this topic."""
        pending = [partition.pending_bytes for partition in self.partitions if partition.pending_bytes is not None]
        return sum(pending) if pending else None

    @property
    def uploaded_ms(self) -> int | None:
        """When a segment was uploaded last."""
        upload_times = [partition.remote.uploaded_ms for partition in self.partitions if partition.remote is not None]
        return max((when for when in upload_times if when is not None), default=None)


# What a cluster's instruments say: sizes, lags and what is pending, as numbers.


COUNTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "segment_uploads_total": "Segments uploaded to object storage.",
        "uploaded_bytes": "Bytes of the segments uploaded to object storage.",
        "deleted_segments": "Segments deleted from object storage: expired, merged, compacted, or of deleted topics.",
        "partition_manifest_uploads_total": "Manifests of partitions written to object storage.",
        "topic_manifest_uploads_total": "Manifests of topics written to object storage.",
        "spillover_manifest_uploads_total": "Pages that manifests spilled to object storage.",
        "spillover_manifest_reads_total": "Pages of manifests read back from object storage: history.",
        "errors_total": "Requests to object storage that failed for good.",
        "jobs_cloud_segment_reuploads": "Segments that merging and compaction wrote anew in object storage.",
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
"""What upkeep counts of object storage, in Redpanda's names below `cloud_storage_`, and what each counts."""

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
"""What holds of object storage and its cache, named likewise, and what each says."""


class RemoteVitals(NamedTuple):
    """What a tiered topic has in object storage, sums over its partitions."""

    bytes: int
    segments: int
    pending_deletion: int
    """Segments that are marked and not deleted yet."""
    log_bytes: int
    """Of the whole log, each record counted once."""
    pending_bytes: int | None
    """Still to be uploaded; `None`: nothing of it is uploaded."""
    lag: int | None = None
    """Of a read replica: offsets that its source has uploaded and that it does not show yet."""


class PartitionVitals(NamedTuple):
    """Where one partition stands."""

    end: int
    newest_ms: int | None = None
    """The latest timestamp of a record; `None`: it holds none, or its platform does not say."""
    copied: int | None = None
    """Of a mirror that is numbered anew: its end in offsets of its source; `None`: they are its own."""

    @property
    def reached(self) -> int:
        """How far a mirror has come, in offsets of its source."""
        return self.end if self.copied is None else self.copied


NO_PARTITIONS: Final[Mapping[int, PartitionVitals]] = MappingProxyType({})


class TopicVitals(NamedTuple):
    """One topic or mirror; offsets, records and bytes are sums over its partitions."""

    address: Address
    partitions: int
    start: int
    end: int
    records: int
    """On Kafka at most so many: compaction and transactions leave offsets without a record."""
    bytes: int | None
    """`None`: whoever asks may not know."""
    source: Address | None = None
    """Of a mirror: the topic it follows."""
    remote: RemoteVitals | None = None
    """`None`: it was never tiered, or that is not shown."""
    stands: Mapping[int, PartitionVitals] = NO_PARTITIONS
    """Of the partitions that were ever written or copied to."""

    def behind(self, source: TopicVitals) -> int:
        """Return how many offsets a mirror lacks of its source."""
        return sum(
            max(0, source_partition.end - self.stands.get(number, PartitionVitals(0)).reached)
            for number, source_partition in source.stands.items()
        )

    def behind_ms(self, source: TopicVitals) -> int | None:
        """Return how much older a mirror's newest records are, in its slowest partition; `None`: that is not known.

        That of a partition of which nothing was copied yet is not known.
        """
        lags, is_known = [], True
        for number, source_partition in source.stands.items():
            own_partition = self.stands.get(number, PartitionVitals(0))
            if own_partition.reached >= source_partition.end:
                continue
            if own_partition.newest_ms is None or source_partition.newest_ms is None:
                is_known = False
            else:
                lags.append(max(0, source_partition.newest_ms - own_partition.newest_ms))
        return max(lags, default=0 if is_known else None)


class GroupLag(NamedTuple):
    """How many offsets a group has still to read of a topic."""

    group: str
    topic: str
    lag: int


_TOPICS_MEASURED: Final = 1_000
_PARTITIONS_MEASURED: Final = 10_000
GROUPS_MEASURED: Final = 1_000
LAGS_MEASURED: Final = 10_000
"""What is measured of a cluster at most; the first by name."""


def measured_names(partitions: Mapping[str, int]) -> list[str]:
    """Return the topics that are measured: the first by name, as many as the bounds above allow. Pure."""
    chosen: list[str] = []
    left = _PARTITIONS_MEASURED
    for name, count in sorted(partitions.items()):
        if len(chosen) == _TOPICS_MEASURED:
            break
        if count <= left:
            chosen.append(name)
            left -= count
    return chosen


@dataclass(frozen=True, slots=True)
class Vitals:
    """Everything of one cluster; `measured` and `lags` are bounded, what is beyond is only counted."""

    topics: int
    partitions: int
    measured: Sequence[TopicVitals] = ()
    unmeasured: int = 0
    """Topics beyond the bounds."""
    groups: int = 0
    lags: Sequence[GroupLag] = ()
    unmeasured_groups: int = 0
    open_transactions: int | None = 0
    """In the partitions of measured topics; on Kafka all. `None`: whoever asks may not know."""
    pending_deletions: int = 0
    """Topics that are marked and not yet deleted."""
    pending_rewrites: int = 0
    levels: Mapping[str, float] = field(default_factory=dict)
    """Of the cache of this machine, by the names of `LEVELS`; nothing where there is none."""
