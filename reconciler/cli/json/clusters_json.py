"""JSON of topics, namespaces, groups, storage and access rules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Part
from reconciler.resources.measures import Mode, PartitionStorage, RemoteHeld, TieringShown, TierUsage, TopicStorage

if TYPE_CHECKING:
    from reconciler.jobs.profile import Counts, Gap, KeyProfile, PartitionProfile, Sizes, Timeline
    from reconciler.operations.clusters.groups import DescribedGroup, GroupDeletion, GroupNames, GroupReset
    from reconciler.operations.clusters.namespaces import Made, Moved, NamespaceDeletion, NamespaceRow
    from reconciler.operations.clusters.topics import ProfiledTopic, Storages, TopicDescription
    from reconciler.operations.steps.effective import AclRow
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.resources.inventory import Following, TopicShown


# JSON of `topic storage`: what topics take, tier by tier.


_ONCE = "What the log takes, each record counted once, though it may lie in both tiers."
_LAG = "Of a read replica: offsets that its source has uploaded and that it does not show yet. Else null."
_PROBLEM = "Why it cannot be told what object storage holds; nothing of that is counted then. Null: it can."
_PENDING = "Still to be uploaded, the open segment included. Null: nothing of it is uploaded."


class HeldPart(Part):
    """What a tier holds."""

    bytes: int
    segments: int

    @classmethod
    def of(cls, held: TierUsage) -> HeldPart:
        """Say it."""
        return cls(bytes=held.bytes, segments=held.segments)


class RemotePart(HeldPart):
    """What object storage holds of a partition."""

    url: str = Field(description="remote://<object storage>; every cluster that shares it sees the same bytes.")
    start: int
    end: int = Field(description="The next offset to be uploaded.")
    last_upload_ms: int | None = Field(description="Null: nothing was uploaded yet.")
    metadata_update_pending: bool = Field(description="An upload was cut off before the cluster took note of it.")
    pending_deletion: HeldPart = Field(description="Marked, and no part of the log any more.")

    @classmethod
    def said(cls, remote: RemoteHeld, url: str) -> RemotePart:
        """Say it."""
        return cls(
            bytes=remote.held.bytes,
            segments=remote.held.segments,
            url=url,
            start=remote.start,
            end=remote.end,
            last_upload_ms=remote.uploaded_ms,
            metadata_update_pending=remote.is_ahead,
            pending_deletion=HeldPart.of(remote.garbage),
        )


class PartitionStoragePart(Part):
    """One partition. What lies from `start` to `local_start` is remote only."""

    partition: int
    start: int
    local_start: int
    end: int = Field(description="The next offset to be written.")
    local: HeldPart
    remote: RemotePart | None = Field(description="Null: nothing was ever uploaded, or it is hidden.")
    log_bytes: int = Field(description=_ONCE)
    pending_bytes: int | None = Field(description=_PENDING)
    problem: str | None = Field(None, description=_PROBLEM)

    @classmethod
    def of(cls, partition: PartitionStorage, url: str) -> PartitionStoragePart:
        """Say it."""
        return cls(
            partition=partition.partition,
            start=partition.start,
            local_start=partition.local_start,
            end=partition.end,
            local=HeldPart.of(partition.local),
            remote=None if partition.remote is None else RemotePart.said(partition.remote, url),
            log_bytes=partition.log_bytes,
            pending_bytes=partition.pending_bytes,
            problem=None if partition.problem is None else partition.problem.message,
        )


class TieringPart(Part):
    """What holds for a topic that is, or was, tiered."""

    mode: Mode
    state: str = Field(description="ENABLED, DISABLING or DISABLED; of a read replica FOLLOWING or SOURCE_GONE.")
    epoch: int = Field(description="Rises whenever it is switched on or off.")
    location: str = Field(
        description="<topic>/<cluster uuid>/<initial revision>, for life; of a read replica that of its source."
    )
    paused: bool = Field(description="Whether uploads pause on the whole cluster.")
    hidden: str | None = Field(description="Why nothing is shown of object storage. Null: it is.")

    @classmethod
    def of(cls, tiering: TieringShown) -> TieringPart:
        """Say it."""
        return cls(
            mode=tiering.mode,
            state=tiering.state,
            epoch=tiering.epoch,
            location=tiering.location,
            paused=tiering.is_paused,
            hidden=tiering.hidden,
        )


class SumsPart(Part):
    """Sums; remote bytes are counted once."""

    local: HeldPart
    remote: HeldPart
    log_bytes: int = Field(description=_ONCE)
    pending_bytes: int | None = Field(description=_PENDING)

    @classmethod
    def of(cls, topics: Sequence[TopicStorage]) -> SumsPart:
        """Sum up topics."""
        pending = [topic.pending_bytes for topic in topics if topic.pending_bytes is not None]
        return cls(
            local=HeldPart.of(TierUsage.sum(topic.local for topic in topics)),
            remote=HeldPart.of(TierUsage.sum(topic.remote for topic in topics)),
            log_bytes=sum(topic.log_bytes for topic in topics),
            pending_bytes=sum(pending) if pending else None,
        )


class StorageDocument(Document):
    """What one topic takes, by partition and tier."""

    format: Literal["reconciler.storage/1"] = "reconciler.storage/1"
    address: str
    tiering: TieringPart | None = Field(description="Null: it was never tiered.")
    problem: str | None = Field(None, description=_PROBLEM)
    lag: int | None = Field(None, description=_LAG)
    total: SumsPart
    partitions: tuple[PartitionStoragePart, ...]

    @classmethod
    def of(cls, topic: TopicStorage) -> StorageDocument:
        """Say every partition."""
        url = "" if topic.tiering is None else topic.tiering.url
        return cls(
            address=topic.address,
            tiering=None if topic.tiering is None else TieringPart.of(topic.tiering),
            problem=None if topic.problem is None else topic.problem.message,
            lag=topic.lag,
            total=SumsPart.of([topic]),
            partitions=tuple(PartitionStoragePart.of(each, url) for each in topic.partitions),
        )


class TopicStoragePart(SumsPart):
    """One topic of many."""

    address: str
    tiering: TieringPart | None = Field(description="Null: it was never tiered.")
    partitions: int
    last_upload_ms: int | None = Field(description="Null: nothing was uploaded yet.")
    problem: str | None = Field(None, description=_PROBLEM)
    lag: int | None = Field(None, description=_LAG)

    @classmethod
    def said(cls, topic: TopicStorage) -> TopicStoragePart:
        """Say it."""
        sums = SumsPart.of([topic])
        return cls(
            local=sums.local,
            remote=sums.remote,
            log_bytes=sums.log_bytes,
            pending_bytes=sums.pending_bytes,
            address=topic.address,
            tiering=None if topic.tiering is None else TieringPart.of(topic.tiering),
            partitions=len(topic.partitions),
            last_upload_ms=topic.uploaded_ms,
            problem=None if topic.problem is None else topic.problem.message,
            lag=topic.lag,
        )


class StoragesDocument(Document):
    """What many topics take."""

    format: Literal["reconciler.storages/1"] = "reconciler.storages/1"
    total: SumsPart
    topics: tuple[TopicStoragePart, ...]
    unmeasured: int = Field(description="Topics beyond the bound of 10,000 partitions a cluster.")

    @classmethod
    def of(cls, found: Storages) -> StoragesDocument:
        """Say every topic."""
        return cls(
            total=SumsPart.of(found.topics),
            topics=tuple(map(TopicStoragePart.said, found.topics)),
            unmeasured=found.unmeasured,
        )


# JSON of access rules as they act.


class AclPart(Part):
    """An access rule that acts."""

    principal: str
    permission: str
    operations: tuple[str, ...]
    host: str
    resources: tuple[str, ...]
    names: tuple[str, ...] = Field(description="Counted from below the namespace it comes from.")
    origin: str = Field(description="The address of what it lies on: the topic, or a tier above it.")

    @classmethod
    def of(cls, row: AclRow) -> AclPart:
        """Say one rule."""
        return cls(**row.rule.to_json(), origin=row.origin)


# JSON of the commands about consumer groups.


class GroupsDocument(Document):
    """The groups of one cluster."""

    format: Literal["reconciler.groups/1"] = "reconciler.groups/1"
    cluster: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, found: GroupNames) -> GroupsDocument:
        """Say their names."""
        return cls(cluster=found.cluster, groups=found.groups)


class GroupOffsetPart(Part):
    """One partition as a group reads it."""

    topic: str
    partition: int
    committed: int | None = Field(description="Null: never committed. On Kafka it may lie outside the log.")
    lag: int | None = Field(
        description="How many offsets it has still to read, also those that are gone. Null: never committed."
    )
    start: int
    stable: int = Field(description="What read_committed may reach.")
    end: int
    committed_at_ms: int | None = Field(description="Null: never, or set by a reset.")
    metadata: str


class GroupPart(Part):
    """A group, of all topics or of one."""

    group: str
    reading: bool = Field(description="It committed within the last 24 hours.")
    last_commit_ms: int | None = Field(description="Null: it never committed itself.")
    lag: int = Field(description="Of the partitions it committed.")
    offsets: tuple[GroupOffsetPart, ...]

    @classmethod
    def of(cls, group: ConsumerGroup) -> GroupPart:
        """Say everything of it."""
        return cls(
            group=group.name,
            reading=group.is_reading,
            last_commit_ms=group.last_commit_ms,
            lag=group.lag,
            offsets=_offsets(group),
        )


class GroupDocument(Document):
    """One group."""

    format: Literal["reconciler.group-description/1"] = "reconciler.group-description/1"
    cluster: str
    group: str
    reading: bool = Field(description="It committed within the last 24 hours.")
    last_commit_ms: int | None = Field(description="Null: it never committed itself.")
    lag: int = Field(description="Of the partitions it committed.")
    offsets: tuple[GroupOffsetPart, ...]

    @classmethod
    def of(cls, described: DescribedGroup) -> GroupDocument:
        """Say everything of it."""
        part = GroupPart.of(described.group)
        return cls(
            cluster=described.cluster,
            group=part.group,
            reading=part.reading,
            last_commit_ms=part.last_commit_ms,
            lag=part.lag,
            offsets=part.offsets,
        )


class MovePart(Part):
    """One partition of a reset."""

    topic: str
    partition: int
    before: int | None = Field(description="Null: never committed.")
    after: int


class GroupResetDocument(Document):
    """A reset that was done; without moves there was nothing to do."""

    format: Literal["reconciler.group-reset/1"] = "reconciler.group-reset/1"
    cluster: str
    group: str
    moves: tuple[MovePart, ...]

    @classmethod
    def of(cls, reset: GroupReset) -> GroupResetDocument:
        """Say what moved."""
        moves = tuple(
            MovePart(topic=move.topic, partition=move.partition, before=move.before, after=move.after)
            for move in reset.moves
        )
        return cls(cluster=reset.cluster, group=reset.group, moves=moves)


class GroupDeletionDocument(Document):
    """A deletion that was done."""

    format: Literal["reconciler.group-deletion/1"] = "reconciler.group-deletion/1"
    cluster: str
    group: str
    topic: str | None = Field(description="Null: the group as a whole.")
    forgotten: tuple[GroupOffsetPart, ...]

    @classmethod
    def of(cls, deletion: GroupDeletion) -> GroupDeletionDocument:
        """Say what was forgotten."""
        forgotten = (
            offset
            for offset in _offsets(deletion.group)
            if offset.committed is not None and deletion.topic in {None, offset.topic}
        )
        return cls(
            cluster=deletion.cluster, group=deletion.group.name, topic=deletion.topic, forgotten=tuple(forgotten)
        )


def _offsets(group: ConsumerGroup) -> tuple[GroupOffsetPart, ...]:
    return tuple(
        GroupOffsetPart(
            topic=row.topic,
            partition=row.partition,
            committed=row.committed,
            lag=row.lag,
            start=row.start,
            stable=row.stable,
            end=row.end,
            committed_at_ms=row.at_ms,
            metadata=row.metadata,
        )
        for row in group.offsets
    )


class NamespacePart(Part):
    """One namespace."""

    address: str
    topics: int = Field(description="Topics in it, not counting those of namespaces below.")
    configs: dict[str, str]


class NamespacesDocument(Document):
    """The namespaces of one cluster or of all."""

    format: Literal["reconciler.namespaces/1"] = "reconciler.namespaces/1"
    namespaces: tuple[NamespacePart, ...]

    @classmethod
    def of(cls, rows: Iterable[NamespaceRow]) -> NamespacesDocument:
        """Say every namespace."""
        return cls(
            namespaces=tuple(
                NamespacePart(address=row.address, topics=row.topics, configs=dict(row.configs)) for row in rows
            )
        )


class FollowingPart(Part):
    """What a mirror follows."""

    mirror_status: str
    link_name: str
    source: str = Field(description="<cluster>/<full name>.")

    @classmethod
    def of(cls, following: Following) -> FollowingPart:
        """Say it."""
        return cls(mirror_status=following.state, link_name=following.link, source=following.source)


class TopicPart(Part):
    """One topic of many."""

    address: str
    partitions: int | None
    replication_factor: int | None
    records: int | None = Field(description="Null: not measured.")
    bytes: int | None = Field(description="Null: not measured.")
    mirror: FollowingPart | None = Field(description="Null: it is an ordinary topic.")


class TopicsDocument(Document):
    """Topics, mirrors among them."""

    format: Literal["reconciler.topics/1"] = "reconciler.topics/1"
    topics: tuple[TopicPart, ...]

    @classmethod
    def of(cls, rows: Iterable[TopicShown]) -> TopicsDocument:
        """Say every topic."""
        return cls(
            topics=tuple(
                TopicPart(
                    address=row.address,
                    partitions=row.partitions,
                    replication_factor=row.replication_factor,
                    records=row.records,
                    bytes=row.bytes,
                    mirror=None if row.following is None else FollowingPart.of(row.following),
                )
                for row in rows
            )
        )


class PartitionPart(Part):
    """One partition."""

    partition: int
    start: int
    stable: int = Field(description="What read_committed may reach.")
    end: int


class ConfigPart(Part):
    """One config as it acts."""

    key: str
    value: str
    origin: str = Field(
        description="Where it comes from: the topic, a namespace, `brokers` (what they do by themselves), or `default`."
    )


class TopicMigrationPart(Part):
    """A migration that has a topic."""

    id: int
    direction: Literal["inbound", "outbound"]
    state: str
    closed: bool = Field(description="Whether the topic takes and gives no records.")


class TopicDocument(Document):
    """One topic."""

    format: Literal["reconciler.topic/1"] = "reconciler.topic/1"
    address: str
    incarnation: str | None
    groups: tuple[GroupPart, ...] | None = Field(
        description="Consumer groups that have offsets of it. Null: we cannot tell."
    )
    records: int | None = Field(description="Null: not measured.")
    bytes: int | None = Field(description="Null: not measured.")
    partitions: tuple[PartitionPart, ...]
    configs: tuple[ConfigPart, ...]
    acls: tuple[AclPart, ...] = Field(description="Access rules as they are asked, in that order.")
    storage: TopicStoragePart | None = Field(description="By tier. Null: it was never tiered.")
    migration: TopicMigrationPart | None = Field(description="That mounts or unmounts it. Null: none does.")
    mirror: FollowingPart | None = Field(description="Null: it is an ordinary topic.")

    @classmethod
    def of(cls, topic: TopicDescription) -> TopicDocument:
        """Say everything of it."""
        return cls(
            address=topic.address,
            incarnation=topic.incarnation,
            groups=None if topic.groups is None else tuple(map(GroupPart.of, topic.groups)),
            records=topic.records,
            bytes=topic.bytes,
            partitions=tuple(
                PartitionPart(partition=row.partition, start=row.start, stable=row.stable, end=row.end)
                for row in topic.partitions
            ),
            configs=tuple(ConfigPart(key=row.key, value=row.value, origin=row.origin) for row in topic.configs),
            acls=tuple(AclPart.of(row) for row in topic.acls),
            storage=None if topic.storage is None else TopicStoragePart.said(topic.storage),
            migration=None
            if topic.migration is None
            else TopicMigrationPart(
                id=topic.migration.id,
                direction=topic.migration.direction,
                state=topic.migration.state,
                closed=any(each.is_closed for each in topic.migration.topics),
            ),
            mirror=None if topic.following is None else FollowingPart.of(topic.following),
        )


# JSON of `topic profile`: what a topic holds.


_SIZE = "Of keys, values and headers, uncompressed."


class SizesPart(Part):
    """Bytes of single records."""

    min: int
    median: int
    p99: int
    max: int

    @classmethod
    def of(cls, sizes: Sizes) -> SizesPart:
        """Say them."""
        return cls(min=sizes.min, median=sizes.median, p99=sizes.p99, max=sizes.max)


class ContentPart(Part):
    """Records, of a partition or of a topic."""

    records: int
    bytes: int = Field(description=_SIZE)
    first_ms: int | None = Field(description="The earliest time of a record. Null: none has one.")
    last_ms: int | None = Field(description="The latest.")
    null_keys: int
    null_values: int
    tombstones: int = Field(description="Null values that have a key.")
    sizes: SizesPart | None = Field(description="Null: there are no records.")

    @classmethod
    def of(cls, counts: Counts) -> ContentPart:
        """Say them."""
        return cls(
            records=counts.records,
            bytes=counts.bytes,
            first_ms=counts.first_ms,
            last_ms=counts.last_ms,
            null_keys=counts.null_keys,
            null_values=counts.null_values,
            tombstones=counts.tombstones,
            sizes=None if counts.sizes is None else SizesPart.of(counts.sizes),
        )


class FreedPart(Part):
    """What would be freed at most."""

    records: int
    bytes: int = Field(description=_SIZE)


class RetentionPart(FreedPart):
    """What another retention would free at most: platforms remove whole segments."""

    retention_ms: int


class GapPart(Part):
    """A time without a record."""

    start_ms: int
    end_ms: int

    @classmethod
    def of(cls, gap: Gap) -> GapPart:
        """Say it."""
        return cls(start_ms=gap.start_ms, end_ms=gap.end_ms)


class PartitionProfilePart(Part):
    """One partition."""

    partition: int
    first_offset: int | None = Field(description="Of a record that is there. Null: there is none.")
    last_offset: int | None
    content: ContentPart
    keys: int
    superseded: FreedPart = Field(description="Older than the newest record of the same key.")
    longest_gap: GapPart | None = Field(description="Between two records. Null: none is as long as a second.")
    old: FreedPart = Field(description="Older than the retention that was asked for; 0 where none was.")

    @classmethod
    def of(cls, found: PartitionProfile) -> PartitionProfilePart:
        """Say it."""
        counts, keys = found.counts, found.keys
        return cls(
            partition=found.partition,
            first_offset=counts.first_offset,
            last_offset=counts.last_offset,
            content=ContentPart.of(counts),
            keys=keys.keys,
            superseded=FreedPart(records=keys.superseded_records, bytes=keys.superseded_bytes),
            longest_gap=None if found.gap is None else GapPart.of(found.gap),
            old=FreedPart(records=counts.old_records, bytes=counts.old_bytes),
        )


class Base64Part(Part):
    """Bytes that are no UTF-8."""

    base64: str


class KeyProfilePart(Part):
    """One of the keys with the most records."""

    key: str | Base64Part = Field(description="The first 256 bytes of it.")
    key_bytes: int = Field(description="How long it is.")
    records: int
    bytes: int = Field(description=_SIZE)
    partitions: int = Field(description="How many it lies in.")

    @classmethod
    def of(cls, found: KeyProfile) -> KeyProfilePart:
        """Say it."""
        try:
            key: str | Base64Part = found.prefix.decode()
        except UnicodeDecodeError:
            key = Base64Part(base64=b64encode(found.prefix).decode())
        return cls(
            key=key,
            key_bytes=found.key_bytes,
            records=found.records,
            bytes=found.bytes,
            partitions=found.partitions,
        )


class TimelinePart(Part):
    """Records in stretches of time of the same length, the first one beginning at `start_ms`."""

    start_ms: int
    width_ms: int
    records: tuple[int, ...]

    @classmethod
    def of(cls, timeline: Timeline) -> TimelinePart:
        """Say it."""
        return cls(start_ms=timeline.start_ms, width_ms=timeline.width_ms, records=timeline.records)


class TopicProfileDocument(Document):
    """What a topic holds, up to its last stable offsets."""

    format: Literal["reconciler.topic-profile/1"] = "reconciler.topic-profile/1"
    address: str
    engine: str | None = Field(description="Where its records were read. Null: there are none.")
    content: ContentPart
    keys: int = Field(description="Different ones.")
    scattered_keys: int = Field(description="Those that lie in more than one partition.")
    skew: float | None = Field(description="Bytes of the largest partition over the average. Null: there are none.")
    compaction: FreedPart = Field(description="What compaction would free at most.")
    retention: RetentionPart | None = Field(description="Null: it was not asked for.")
    partitions: tuple[PartitionProfilePart, ...]
    top_keys: tuple[KeyProfilePart, ...] = Field(description="With the most records first; at most ten.")
    timeline: TimelinePart | None = Field(description="Null: no record has a time.")

    @classmethod
    def of(cls, profiled: ProfiledTopic) -> TopicProfileDocument:
        """Say everything of it."""
        found, counts = profiled.profile, profiled.profile.counts
        retention = None
        if profiled.retention_ms is not None:
            retention = RetentionPart(
                records=counts.old_records, bytes=counts.old_bytes, retention_ms=profiled.retention_ms
            )
        return cls(
            address=profiled.address,
            engine=profiled.engine,
            content=ContentPart.of(counts),
            keys=found.keys,
            scattered_keys=found.scattered_keys,
            skew=None if found.skew is None else round(found.skew, 3),
            compaction=FreedPart(records=found.superseded_records, bytes=found.superseded_bytes),
            retention=retention,
            partitions=tuple(map(PartitionProfilePart.of, found.partitions)),
            top_keys=tuple(map(KeyProfilePart.of, found.top_keys)),
            timeline=None if found.timeline is None else TimelinePart.of(found.timeline),
        )


# JSON of the commands that change namespaces.


class NamespaceCreationDocument(Document):
    """A namespace that was made."""

    format: Literal["reconciler.namespace-creation/1"] = "reconciler.namespace-creation/1"
    cluster: str
    namespace: str
    created: tuple[str, ...] = Field(description="Addresses, upper tiers first; empty where it was there.")

    @classmethod
    def of(cls, made: Made) -> NamespaceCreationDocument:
        """Say what was made."""
        return cls(cluster=made.cluster, namespace=made.namespace, created=made.created)


class TopicMovePart(Part):
    """One topic."""

    before: str
    after: str


class TopicMovesDocument(Document):
    """Topics that were moved to another namespace."""

    format: Literal["reconciler.topic-moves/1"] = "reconciler.topic-moves/1"
    cluster: str
    moves: tuple[TopicMovePart, ...]

    @classmethod
    def of(cls, moved: Moved) -> TopicMovesDocument:
        """Say every move."""
        moves = tuple(TopicMovePart(before=before, after=after) for before, after in moved.moves)
        return cls(cluster=moved.cluster, moves=moves)


class LeavingPart(Part):
    """A topic that was deleted with its namespace."""

    address: str
    records: int | None = Field(description="Null: not measured.")
    bytes: int | None = Field(description="Null: not measured.")
    groups: tuple[str, ...] | None = Field(description="Consumer groups that were reading it. Null: cannot be told.")


class NamespaceDeletionDocument(Document):
    """A namespace that was deleted, with all that went with it."""

    format: Literal["reconciler.namespace-deletion/1"] = "reconciler.namespace-deletion/1"
    cluster: str
    namespace: str
    nested: tuple[str, ...]
    topics: tuple[LeavingPart, ...]

    @classmethod
    def of(cls, deletion: NamespaceDeletion) -> NamespaceDeletionDocument:
        """Say all that went."""
        return cls(
            cluster=deletion.cluster,
            namespace=deletion.namespace,
            nested=deletion.nested,
            topics=tuple(
                LeavingPart(
                    address=topic.address,
                    records=topic.measure.records if topic.measure else None,
                    bytes=topic.measure.bytes if topic.measure else None,
                    groups=topic.measure.groups if topic.measure else None,
                )
                for topic in deletion.topics
            ),
        )
