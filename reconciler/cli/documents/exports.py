"""JSON of `export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.recoverable import Recoverable
    from reconciler.workflow.export import Exported
    from reconciler.workflow.exporting.archives import LeftOut


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


class ExportedPart(Part):
    """One resource of which a manifest was written."""

    address: str
    recovery: RecoveryPart | None


class LeftOutPart(Part):
    """Something of which none was written."""

    place: str = Field(description="Its key in object storage, its address, or the access rule.")
    message: str
    hint: str


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

    @classmethod
    def of(cls, exported: Exported) -> ExportDocument:
        """Say all of it."""
        archives = exported.archives
        return cls(
            cluster=exported.cluster,
            source="object-storage" if exported.is_archived else "cluster",
            files=tuple(map(str, exported.files)),
            exported=tuple(
                ExportedPart(
                    address=address, recovery=_recovery(archives.found.get(address), archives.older.get(address, ()))
                )
                for address in exported.addresses
            ),
            left_out=tuple(map(_left_out, exported.left_out)),
            unsaid=tuple(map(_left_out, exported.unsaid)),
        )


def _left_out(left: LeftOut) -> LeftOutPart:
    return LeftOutPart(place=left.place, message=left.error.message, hint=left.error.hint)


def _recovery(found: Recoverable | None, older: Sequence[str]) -> RecoveryPart | None:
    if found is None:
        return None
    return RecoveryPart(
        location=found.location,
        partitions=found.partitions,
        records=found.records,
        bytes=found.bytes,
        ends=tuple(
            PartitionEndPart(partition=number, start=start, end=end)
            for number, (start, end) in sorted(found.ends.items())
        ),
        older=tuple(older),
    )
