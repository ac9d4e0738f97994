"""JSON of `export` and `import`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Hint, Part
from reconciler.operations.export_archives import NEVER_KEPT, GroupReturn

if TYPE_CHECKING:
    from reconciler.importers.base import NotImported
    from reconciler.operations.export import Exported
    from reconciler.operations.export_layout import LeftOut
    from reconciler.operations.imports import Imported
    from reconciler.resources.mount import Recoverable


class PartitionEndPart(Part):
    """What object storage has of a partition."""

    partition: int
    start: int
    end: int = Field(description="The next offset to be uploaded; what came from there on is lost.")


class RecoveryPart(Part):
    """What a topic is recovered from."""

    location: str
    partitions: int
    records: int
    bytes: int
    ends: tuple[PartitionEndPart, ...] = Field(description="Partitions of which something was uploaded.")
    older: tuple[str, ...] = Field(description="Locations of topics that had its name before.")
    uploaded_ms: int | None = Field(description="When a record of it was uploaded last. Null: never.")
    age_ms: int | None = Field(description="How long that was ago.")


class ExportedPart(Part):
    """One resource of which a manifest was written."""

    address: str
    recovery: RecoveryPart | None
    comes_back_empty: bool = Field(
        default=False, description="A topic whose records were not in object storage: its definition was."
    )
    former_id: str | None = Field(
        default=None, description="The id it had on a cluster that is lost; made again, it has a new one."
    )


class LeftOutPart(Part):
    """Something of which none was written."""

    place: str = Field(description="Its key in object storage, its address, or the access rule.")
    message: str
    hint: Hint


class KeptPart(Part):
    """One part of what object storage keeps of a cluster beside segments."""

    name: Literal["cluster", "namespaces", "topics", "links", "groups"] = Field(
        description="cluster: its properties; access rules are parts of namespaces and topics."
    )
    entries: int
    bytes: int
    written_ms: int = Field(description="A part that does not change is not written again.")
    age_ms: int = Field(description="How long that was ago: what changed since is lost.")
    message: str | None = Field(description="Why it is no use. Null: it is whole.")


class ClampedPart(Part):
    """A committed offset that what is restored does not reach."""

    address: str
    partition: int
    committed: int
    offset: int = Field(description="What it is set back to.")


class ReturningGroupPart(Part):
    """What becomes of the committed offsets of a consumer group."""

    group: str
    offsets: int = Field(description="Partitions that it goes on with, once their topics are recovered.")
    clamped: tuple[ClampedPart, ...] = Field(description="Of these, those set back to the end of what was uploaded.")
    lost: tuple[str, ...] = Field(description="Topics that come back without the records its offsets are about.")
    waiting: tuple[str, ...] = Field(
        default=(), description="Topics that were mounted: its offsets travel on with each, once it is released."
    )


class KeptMetadataPart(Part):
    """What object storage keeps of a cluster beside segments."""

    cluster_id: str
    message: str | None = Field(description="Why none of it is of use. Null: each part says it of itself.")
    parts: tuple[KeptPart, ...]
    groups: tuple[ReturningGroupPart, ...]
    lost: tuple[str, ...] = Field(description="What is never kept.")

    @classmethod
    def of(cls, exported: Exported) -> KeptMetadataPart | None:
        """Say how old each part is."""
        kept = exported.archives.metadata
        if kept is None:
            return None
        return cls(
            cluster_id=kept.cluster_id,
            message=None if kept.error is None else kept.error.message,
            parts=tuple(
                KeptPart.from_record(
                    part,
                    age_ms=max(0, exported.now_ms - part.written_ms),
                    message=None if part.error is None else part.error.message,
                )
                for part in kept.parts
            ),
            groups=tuple(map(_returning, exported.archives.groups)),
            lost=NEVER_KEPT,
        )


class ExportDocument(Document):
    """What was exported."""

    format: Literal["reconciler.export/1"] = "reconciler.export/1"
    cluster: str
    source: Literal["cluster", "object-storage"]
    files: tuple[str, ...]
    exported: tuple[ExportedPart, ...]
    left_out: tuple[LeftOutPart, ...]
    unsaid: tuple[LeftOutPart, ...] = Field(
        description="What is there and has no words in manifests, such as access rules on the cluster: it stays."
    )
    metadata: KeptMetadataPart | None = Field(
        default=None, description="Of object storage: what it keeps beside segments. Null: nothing, or not asked for."
    )

    @classmethod
    def of(cls, exported: Exported) -> ExportDocument:
        """Say all of it."""
        archives, now_ms = exported.archives, exported.now_ms
        return cls(
            cluster=exported.cluster,
            source="object-storage" if exported.is_archived else "cluster",
            files=tuple(map(str, exported.files)),
            exported=tuple(
                ExportedPart(
                    address=address,
                    recovery=_recovery(archives.found.get(address), archives.older.get(address, ()), now_ms),
                    comes_back_empty=address in archives.empty,
                    former_id=seen.incarnation if (seen := archives.inventory.get(address)) is not None else None,
                )
                for address in exported.addresses
            ),
            left_out=tuple(map(_left_out, exported.left_out)),
            unsaid=tuple(map(_left_out, exported.unsaid)),
            metadata=KeptMetadataPart.of(exported),
        )


def _returning(group: GroupReturn) -> ReturningGroupPart:
    return ReturningGroupPart.from_record(
        group,
        clamped=tuple(ClampedPart.from_record(each, address=address) for address, each in group.clamped),
    )


def _left_out(left: LeftOut) -> LeftOutPart:
    return LeftOutPart(place=left.place, message=left.error.message, hint=left.error.hint)


def _recovery(found: Recoverable | None, older: Sequence[str], now_ms: int) -> RecoveryPart | None:
    if found is None:
        return None
    return RecoveryPart.from_record(
        found,
        ends=tuple(
            PartitionEndPart(partition=number, start=start, end=end)
            for number, (start, end) in sorted(found.ends.items())
        ),
        older=tuple(older),
        age_ms=None if found.uploaded_ms is None else max(0, now_ms - found.uploaded_ms),
    )


# JSON of `import`.


class ImportedPart(Part):
    """One resource of which a manifest was written."""

    address: str
    source: str | None = Field(description="File and line it was written at; null where it was made of several.")


class ImportedClusterPart(Part):
    """A cluster that manifests name."""

    name: str
    declared: bool = Field(
        validation_alias="is_declared", description="Whether the workspace, or what was written, declares it."
    )
    manifest: str | None = Field(description="What declares it, as far as the files say how it is reached.")


class LostPart(Part):
    """Something that was not carried over."""

    file: str
    line: int | None
    subject: str = Field(description="What it is about, such as `topic orders`.")
    field: str = Field(description="Which field of it; empty where all of it is meant.")
    message: str = Field(validation_alias="why")
    hint: Hint


class ImportDocument(Document):
    """What was imported."""

    format: Literal["reconciler.import/1"] = "reconciler.import/1"
    tool: str
    path: str
    read: tuple[str, ...] = Field(description="The files that were read.")
    unread: tuple[str, ...] = Field(description="Files of the same form that are none of the tool's.")
    files: tuple[str, ...] = Field(description="What was written.")
    clusters: tuple[ImportedClusterPart, ...]
    imported: tuple[ImportedPart, ...]
    left_out: tuple[LostPart, ...] = Field(description="What is carried over once it is written otherwise.")
    unsaid: tuple[LostPart, ...] = Field(description="What manifests have no words for.")

    @classmethod
    def of(cls, imported: Imported) -> ImportDocument:
        """Say all of it."""
        places = imported.places
        return cls.from_record(
            imported,
            files=tuple(map(str, imported.files)),
            imported=tuple(
                ImportedPart(address=address, source=str(places[address]) if address in places else None)
                for address in imported.addresses
            ),
            left_out=tuple(map(_lost, imported.left_out)),
            unsaid=tuple(map(_lost, imported.unsaid)),
        )


def _lost(lost: NotImported) -> LostPart:
    return LostPart.from_record(lost, file=lost.place.file, line=lost.place.line)
