"""JSON of the commands that change namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.workflow.namespaces.creating import Made
    from reconciler.workflow.namespaces.deleting import NamespaceDeletion
    from reconciler.workflow.namespaces.moving import Moved


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
