"""JSON of `topic storage`: what topics take, tier by tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part
from reconciler.resources.storages import Held, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.storages import PartitionStorage, RemoteHeld, TieringShown, TopicStorage
    from reconciler.workflow.storage import Storages

_ONCE = "What the log takes, each record counted once, though it may lie in both tiers."
_PROBLEM = "Why it cannot be told what object storage holds; nothing of that is counted then. Null: it can."
_PENDING = "Still to be uploaded, the open segment included. Null: nothing of it is uploaded."


class HeldPart(Part):
    """What a tier holds."""

    bytes: int
    segments: int

    @classmethod
    def of(cls, held: Held) -> HeldPart:
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
    state: str = Field(description="ENABLED, DISABLING or DISABLED.")
    epoch: int = Field(description="Rises whenever it is switched on or off.")
    location: str = Field(description="<topic>/<cluster uuid>/<initial revision>, for life.")
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
            local=HeldPart.of(Held.sum(topic.local for topic in topics)),
            remote=HeldPart.of(Held.sum(topic.remote for topic in topics)),
            log_bytes=sum(topic.log_bytes for topic in topics),
            pending_bytes=sum(pending) if pending else None,
        )


class StorageDocument(Document):
    """What one topic takes, by partition and tier."""

    format: Literal["reconciler.storage/1"] = "reconciler.storage/1"
    address: str
    tiering: TieringPart | None = Field(description="Null: it was never tiered.")
    problem: str | None = Field(None, description=_PROBLEM)
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
