"""JSON of topics, namespaces, groups, storage and access rules."""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Part
from reconciler.resources.measures import Mode, PartitionStorage, RemoteHeld, TierUsage, TopicStorage

if TYPE_CHECKING:
    from reconciler.jobs.profile import KeyProfile, PartitionProfile
    from reconciler.operations.clusters.groups import DescribedGroup, GroupDeletion
    from reconciler.operations.clusters.namespaces import NamespaceRow
    from reconciler.operations.clusters.topics import ProfiledTopic, Storages, TopicDescription
    from reconciler.operations.steps.effective import AclRow
    from reconciler.resources.inventory import TopicShown


# JSON of `topic storage`: what topics take, tier by tier.


_ONCE = "What the log takes, each record counted once, though it may lie in both tiers."
_LAG = "Of a read replica: offsets that its source has uploaded and that it does not show yet. Else null."
_PROBLEM = "Why it cannot be told what object storage holds; nothing of that is counted then. Null: it can."
_PENDING = "Still to be uploaded, the open segment included. Null: nothing of it is uploaded."


class HeldPart(Part):
    """What a tier holds."""

    bytes: int
    segments: int


class RemotePart(HeldPart):
    """What object storage holds of a partition."""

    url: str = Field(description="remote://<object storage>; every cluster that shares it sees the same bytes.")
    start: int
    end: int = Field(description="The next offset to be uploaded.")
    last_upload_ms: int | None = Field(validation_alias="uploaded_ms", description="Null: nothing was uploaded yet.")
    metadata_update_pending: bool = Field(
        validation_alias="is_ahead", description="An upload was cut off before the cluster took note of it."
    )
    pending_deletion: HeldPart = Field(
        validation_alias="garbage", description="Marked, and no part of the log any more."
    )

    @classmethod
    def said(cls, remote: RemoteHeld, url: str) -> RemotePart:
        """Say it."""
        held = remote.held
        return cls.from_record(remote, url=url, bytes=held.bytes, segments=held.segments)


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
        return cls.from_record(
            partition,
            remote=None if partition.remote is None else RemotePart.said(partition.remote, url),
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
    paused: bool = Field(validation_alias="is_paused", description="Whether uploads pause on the whole cluster.")
    hidden: str | None = Field(description="Why nothing is shown of object storage. Null: it is.")


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
            local=HeldPart.from_record(TierUsage.sum(topic.local for topic in topics)),
            remote=HeldPart.from_record(TierUsage.sum(topic.remote for topic in topics)),
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
        return cls.from_record(
            topic,
            problem=None if topic.problem is None else topic.problem.message,
            total=SumsPart.of([topic]),
            partitions=tuple(PartitionStoragePart.of(each, url) for each in topic.partitions),
        )


class TopicStoragePart(SumsPart):
    """One topic of many."""

    address: str
    tiering: TieringPart | None = Field(description="Null: it was never tiered.")
    partitions: int
    last_upload_ms: int | None = Field(validation_alias="uploaded_ms", description="Null: nothing was uploaded yet.")
    problem: str | None = Field(None, description=_PROBLEM)
    lag: int | None = Field(None, description=_LAG)

    @classmethod
    def said(cls, topic: TopicStorage) -> TopicStoragePart:
        """Say it."""
        problem = None if topic.problem is None else topic.problem.message
        return cls.from_record(topic, partitions=len(topic.partitions), problem=problem)


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
        return cls(**row.rule.model_dump(warnings=False), origin=row.origin)


# JSON of the commands about consumer groups.


class GroupsDocument(Document):
    """The groups of one cluster."""

    format: Literal["reconciler.groups/1"] = "reconciler.groups/1"
    cluster: str
    groups: tuple[str, ...]


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
    committed_at_ms: int | None = Field(validation_alias="at_ms", description="Null: never, or set by a reset.")
    metadata: str


_TYPE: Final = "`classic`, `consumer`, `share`, or as brokers call it. Null: the platform has one type."


class GroupPart(Part):
    """A group, of all topics or of one."""

    group: str = Field(validation_alias="name")
    reading: bool = Field(validation_alias="is_reading", description="It committed within the last 24 hours.")
    last_commit_ms: int | None = Field(description="Null: it never committed itself.")
    lag: int = Field(description="Of the partitions it committed.")
    offsets: tuple[GroupOffsetPart, ...]
    type: str | None = Field(description=_TYPE)


class GroupDocument(Document):
    """One group."""

    format: Literal["reconciler.group-description/1"] = "reconciler.group-description/1"
    cluster: str
    group: str = Field(validation_alias="name")
    reading: bool = Field(validation_alias="is_reading", description="It committed within the last 24 hours.")
    last_commit_ms: int | None = Field(description="Null: it never committed itself.")
    lag: int = Field(description="Of the partitions it committed.")
    offsets: tuple[GroupOffsetPart, ...]
    type: str | None = Field(description=_TYPE)

    @classmethod
    def of(cls, described: DescribedGroup) -> GroupDocument:
        """Say everything of it."""
        return cls.from_record(described.group, cluster=described.cluster)


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
        forgotten = tuple(
            offset
            for offset in deletion.group.offsets
            if offset.committed is not None and deletion.topic in {None, offset.topic}
        )
        return cls.from_record(deletion, group=deletion.group.name, forgotten=forgotten)


class QuotaPart(Part):
    """One limit of a namespace, and how much of it is used."""

    quota: Literal["topics", "partitions", "bytes"]
    limit: int
    used: int | None = Field(description="With the namespaces below. Null: not every topic tells it.")


class NamespacePart(Part):
    """One namespace."""

    address: str
    topics: int = Field(description="Topics in it, not counting those of namespaces below.")
    configs: dict[str, str]
    quotas: tuple[QuotaPart, ...] = Field(default=(), description="Its own limits, without those that are unlimited.")


class NamespacesDocument(Document):
    """The namespaces of one cluster or of all."""

    format: Literal["reconciler.namespaces/1"] = "reconciler.namespaces/1"
    namespaces: tuple[NamespacePart, ...]

    @classmethod
    def of(cls, rows: Iterable[NamespaceRow]) -> NamespacesDocument:
        """Say every namespace."""
        return cls(namespaces=tuple(map(NamespacePart.from_record, rows)))


class FollowingPart(Part):
    """What a mirror follows."""

    mirror_status: str = Field(validation_alias="state")
    link_name: str = Field(validation_alias="link")
    source: str = Field(description="<cluster>/<full name>.")


class TopicPart(Part):
    """One topic of many."""

    address: str
    partitions: int | None
    replication_factor: int | None
    records: int | None = Field(description="Null: not measured.")
    bytes: int | None = Field(description="Null: not measured.")
    mirror: FollowingPart | None = Field(validation_alias="following", description="Null: it is an ordinary topic.")


class TopicsDocument(Document):
    """Topics, mirrors among them."""

    format: Literal["reconciler.topics/1"] = "reconciler.topics/1"
    topics: tuple[TopicPart, ...]

    @classmethod
    def of(cls, rows: Iterable[TopicShown]) -> TopicsDocument:
        """Say every topic."""
        return cls(topics=tuple(map(TopicPart.from_record, rows)))


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
    mirror: FollowingPart | None = Field(validation_alias="following", description="Null: it is an ordinary topic.")

    @classmethod
    def of(cls, topic: TopicDescription) -> TopicDocument:
        """Say everything of it."""
        storage, migration = topic.storage, topic.migration
        is_closed = migration is not None and any(each.is_closed for each in migration.topics)
        return cls.from_record(
            topic,
            acls=tuple(map(AclPart.of, topic.acls)),
            storage=None if storage is None else TopicStoragePart.said(storage),
            migration=None if migration is None else TopicMigrationPart.from_record(migration, closed=is_closed),
        )


# JSON of `topic profile`: what a topic holds.


_SIZE = "Of keys, values and headers, uncompressed."


class SizesPart(Part):
    """Bytes of single records."""

    min: int
    median: int
    p99: int
    max: int


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


class PartitionProfilePart(Part):
    """One partition."""

    partition: int
    first_offset: int | None = Field(description="Of a record that is there. Null: there is none.")
    last_offset: int | None
    content: ContentPart = Field(validation_alias="counts")
    keys: int
    superseded: FreedPart = Field(description="Older than the newest record of the same key.")
    longest_gap: GapPart | None = Field(
        validation_alias="gap", description="Between two records. Null: none is as long as a second."
    )
    old: FreedPart = Field(description="Older than the retention that was asked for; 0 where none was.")

    @classmethod
    def of(cls, found: PartitionProfile) -> PartitionProfilePart:
        """Say it."""
        counts, keys = found.counts, found.keys
        return cls.from_record(
            found,
            first_offset=counts.first_offset,
            last_offset=counts.last_offset,
            keys=keys.keys,
            superseded=FreedPart(records=keys.superseded_records, bytes=keys.superseded_bytes),
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
        is_whole = found.key_bytes <= len(found.prefix)
        try:
            # Where the key goes on, what is left of it may end within a character.
            key: str | Base64Part = getincrementaldecoder("utf-8")().decode(found.prefix, final=is_whole)
        except UnicodeDecodeError:
            key = Base64Part(base64=b64encode(found.prefix).decode())
        return cls.from_record(found, key=key)


class TimelinePart(Part):
    """Records in stretches of time of the same length, the first one beginning at `start_ms`."""

    start_ms: int
    width_ms: int
    records: tuple[int, ...]


class TopicProfileDocument(Document):
    """What a topic holds, up to its last stable offsets."""

    format: Literal["reconciler.topic-profile/1"] = "reconciler.topic-profile/1"
    address: str
    engine: str | None = Field(description="Where its records were read. Null: there are none.")
    content: ContentPart = Field(validation_alias="counts")
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
        return cls.from_record(
            found,
            address=profiled.address,
            engine=profiled.engine,
            skew=None if found.skew is None else round(found.skew, 3),
            compaction=FreedPart(records=found.superseded_records, bytes=found.superseded_bytes),
            retention=retention,
            partitions=tuple(map(PartitionProfilePart.of, found.partitions)),
            top_keys=tuple(map(KeyProfilePart.of, found.top_keys)),
        )
