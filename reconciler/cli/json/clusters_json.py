"""JSON of topics, namespaces, groups, storage and access rules."""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from reconciler.cli.json.base import JsonForm, define_document
from reconciler.operations.clusters.groups import DescribedGroup, GroupDeletion, GroupNames, GroupReset
from reconciler.operations.clusters.namespaces import NamespaceRow, QuotaUsage
from reconciler.operations.clusters.topics import ProfiledTopic, Storages, TopicDescription
from reconciler.resources.address import Address
from reconciler.resources.groups import ConsumerGroup, GroupOffset
from reconciler.resources.inventory import FollowedSource, TopicShown
from reconciler.resources.measures import PartitionStorage, RemoteUsage, TieringShown, TierUsage, TopicStorage
from reconciler.resources.mount import Migration
from reconciler.resources.topic_profile import Counts, KeyCounts, KeyProfile, PartitionProfile, Profile
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.operations.steps.effective import AclRow


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """A partition's data in object storage."""

    held: RemoteUsage
    url: str
    """`remote://<object storage>`; every cluster that shares it sees the same bytes."""


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """One partition. Records from `start` to `local_start` are only in object storage."""

    held: PartitionStorage
    remote: RemotePartition | None
    """Null if nothing was ever uploaded, or if it is hidden."""


def _list_partitions(topic: TopicStorage) -> tuple[StoredPartition, ...]:
    """Partitions of the topic, with offsets and sizes."""
    url = "" if topic.tiering is None else topic.tiering.url
    return tuple(
        StoredPartition(held, None if held.remote is None else RemotePartition(held.remote, url))
        for held in topic.partitions
    )


def _count_partitions(topic: TopicStorage) -> int:
    return len(topic.partitions)


def _sum_storages(storages: Storages) -> TopicStorage:
    """Sums over all topics; remote bytes are counted once."""
    return TopicStorage(Address(""), None, tuple(part for topic in storages.topics for part in topic.partitions))


_HELD: Final = JsonForm(TierUsage, ("bytes", "segments"))
_REMOTE: Final = JsonForm(
    RemotePartition,
    (
        "held.held.bytes",
        "held.held.segments",
        "url",
        "held.start",
        "held.end",
        "last_upload_ms=held.uploaded_ms",
        "metadata_update_pending=held.is_ahead",
        ("pending_deletion=held.garbage", _HELD),
    ),
)
_PARTITION: Final = JsonForm(
    StoredPartition,
    (
        "held.partition",
        "held.start",
        "held.local_start",
        "held.end",
        ("held.local", _HELD),
        ("remote", _REMOTE),
        "held.log_bytes",
        "held.pending_bytes",
        "held.problem?",
    ),
)
_TIERING: Final = JsonForm(TieringShown, ("mode", "state", "epoch", "location", "is_paused", "hidden"))
_SUMS: Final = (("local", _HELD), ("remote", _HELD), "log_bytes", "pending_bytes")
_TOTAL: Final = JsonForm(TopicStorage, _SUMS)
_TOPIC_STORAGE: Final = JsonForm(
    TopicStorage,
    (
        *_SUMS,
        "address",
        ("tiering", _TIERING),
        ("partitions", _count_partitions),
        "last_upload_ms=uploaded_ms",
        "problem?",
        "lag?",
    ),
)
STORAGE: Final = define_document(
    "reconciler.storage/1",
    TopicStorage,
    "address",
    ("tiering", _TIERING),
    "problem?",
    "lag?",
    ("total=.", _TOTAL),
    ("partitions", _list_partitions, _PARTITION),
    about="What one topic takes, by partition and tier.",
)
STORAGES: Final = define_document(
    "reconciler.storages/1",
    Storages,
    ("total", _sum_storages, _TOTAL),
    ("topics", _TOPIC_STORAGE),
    "unmeasured",
    about="What many topics take.",
)


@dataclass(frozen=True, slots=True)
class ActingAcl:
    """An effective access rule."""

    principal: str
    permission: str
    operations: tuple[str, ...]
    host: str
    resources: tuple[str, ...]
    names: tuple[str, ...]
    """Names of the resources, relative to the namespace of the rule."""
    origin: str
    """Address of the topic or namespace that declares the rule."""


def list_effective_rules(rows: Iterable[AclRow]) -> tuple[ActingAcl, ...]:
    """Return access rules in the order of evaluation."""
    return tuple(ActingAcl(**row.rule.model_dump(warnings=False), origin=row.origin) for row in rows)


Quota: TypeAlias = Literal["topics", "partitions", "bytes"]


def _list_deleted_offsets(deletion: GroupDeletion) -> tuple[GroupOffset, ...]:
    """Committed offsets that the command deletes."""
    return tuple(
        offset
        for offset in deletion.group.offsets
        if offset.committed is not None and deletion.topic in {None, offset.topic}
    )


def _read_quota(usage: QuotaUsage) -> Quota:
    return cast("Quota", usage.quota)


_OFFSET: Final = JsonForm(
    GroupOffset,
    ("topic", "partition", "committed", "lag", "start", "stable", "end", "committed_at_ms=at_ms", "metadata"),
)
_GROUP: Final = JsonForm(
    ConsumerGroup, ("group=name", "is_reading", "last_commit_ms", "lag", ("offsets", _OFFSET), "type")
)
GROUPS: Final = define_document("reconciler.groups/1", GroupNames)
GROUP: Final = define_document(
    "reconciler.group-description/1",
    DescribedGroup,
    "cluster",
    "group=group.name",
    "group.is_reading",
    "group.last_commit_ms",
    "group.lag",
    ("group.offsets", _OFFSET),
    "group.type",
)
GROUP_RESET: Final = define_document("reconciler.group-reset/1", GroupReset, "cluster", "group", "moves")
GROUP_DELETION: Final = define_document(
    "reconciler.group-deletion/1",
    GroupDeletion,
    "cluster",
    "group=group.name",
    "topic",
    ("forgotten", _list_deleted_offsets, _OFFSET),
)
QUOTA: Final = JsonForm(QuotaUsage, (("quota", _read_quota), "limit", "used"))
NAMESPACES: Final = define_document(
    "reconciler.namespaces/1",
    tuple[NamespaceRow, ...],
    ("namespaces=.", JsonForm(NamespaceRow, ("address", "topics", "configs", ("quotas?", QUOTA)))),
    about="The namespaces of one cluster or of all.",
)


def _read_partition_count(topic: TopicShown) -> int | None:
    return topic.partitions


def _is_closed(migration: Migration) -> bool:
    """Whether the topic rejects producers and consumers."""
    return any(topic.is_closed for topic in migration.topics)


def _list_acls(topic: TopicDescription) -> tuple[ActingAcl, ...]:
    """Access rules in the order of evaluation."""
    return list_effective_rules(topic.acls)


_FOLLOWING: Final = JsonForm(FollowedSource, ("mirror_status=state", "link_name=link", "source"))
_TOPIC: Final = JsonForm(
    TopicShown,
    (
        "address",
        ("partitions", _read_partition_count),
        "replication_factor",
        "records",
        "bytes",
        ("mirror=following", _FOLLOWING),
    ),
)
TOPICS: Final = define_document(
    "reconciler.topics/1", tuple[TopicShown, ...], ("topics=.", _TOPIC), about="Topics, mirrors among them."
)
TOPIC: Final = define_document(
    "reconciler.topic/1",
    TopicDescription,
    "address",
    "incarnation",
    ("groups", _GROUP),
    "records",
    "bytes",
    "partitions",
    "configs",
    ("acls", _list_acls),
    ("storage", _TOPIC_STORAGE),
    ("migration", JsonForm(Migration, ("id", "direction", "state", ("closed", _is_closed)))),
    ("mirror=following", _FOLLOWING),
)


@dataclass(frozen=True, slots=True)
class Base64:
    """Bytes that are not UTF-8."""

    base64: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Upper limit of what another retention would free; platforms remove whole segments."""

    records: int
    bytes: int
    """Uncompressed size of keys, values and headers."""
    retention_ms: int


def decode_key(profile: KeyProfile) -> str | Base64:
    """The first 256 bytes of the key."""
    is_whole = profile.key_bytes <= len(profile.prefix)
    try:
        # A truncated key may end within a character.
        return getincrementaldecoder("utf-8")().decode(profile.prefix, final=is_whole)
    except UnicodeDecodeError:
        return Base64(b64encode(profile.prefix).decode())


def _build_retention(profiled: ProfiledTopic) -> Retention | None:
    """What another retention would free; null if not requested."""
    counts = profiled.profile.counts
    if profiled.retention_ms is None:
        return None
    return Retention(counts.old_records, counts.old_bytes, profiled.retention_ms)


_CONTENT: Final = JsonForm(
    Counts, ("records", "bytes", "first_ms", "last_ms", "null_keys", "null_values", "tombstones", "sizes")
)
_SUPERSEDED: Final = ("records=superseded_records", "bytes=superseded_bytes")
_PARTITION_PROFILE: Final = JsonForm(
    PartitionProfile,
    (
        "partition",
        "counts.first_offset",
        "counts.last_offset",
        ("content=counts", _CONTENT),
        "keys.keys",
        ("superseded=keys", JsonForm(KeyCounts, _SUPERSEDED)),
        "longest_gap=gap",
        ("old=counts", JsonForm(Counts, ("records=old_records", "bytes=old_bytes"))),
    ),
)
_KEY: Final = JsonForm(KeyProfile, (("key", decode_key), "key_bytes", "records", "bytes", "partitions"))
TOPIC_PROFILE: Final = define_document(
    "reconciler.topic-profile/1",
    ProfiledTopic,
    "address",
    "engine",
    ("content=profile.counts", _CONTENT),
    "profile.keys",
    "profile.scattered_keys",
    "profile.skew",
    ("compaction=profile", JsonForm(Profile, _SUPERSEDED)),
    ("retention", _build_retention),
    ("profile.partitions", _PARTITION_PROFILE),
    ("profile.top_keys", _KEY),
    "profile.timeline",
    about="What a topic holds, up to its last stable offsets.",
)
