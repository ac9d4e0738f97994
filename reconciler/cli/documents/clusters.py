"""JSON of the commands that look at clusters: namespaces, topics, one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.acls import AclPart
from reconciler.cli.documents.base import Document, Part
from reconciler.cli.documents.groups import GroupPart
from reconciler.cli.documents.storages import TopicStoragePart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.resources.overviews import Following, TopicShown
    from reconciler.workflow.namespaces.listing import NamespaceRow
    from reconciler.workflow.topics import TopicDescription


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
