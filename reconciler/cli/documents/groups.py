"""JSON of the commands about consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.resources.groups import ConsumerGroup
    from reconciler.workflow.groups import DescribedGroup, GroupDeletion, GroupNames, GroupReset


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
