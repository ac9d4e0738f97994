"""JSON of `run`: what was done to topic logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.workflow.run import Synced, Upkeep


class SyncedPart(Part):
    """One mirror that was brought to its source's end, or what kept it from there."""

    address: str
    records: int
    bytes: int
    seconds: float
    error: str | None
    hint: str | None

    @classmethod
    def of(cls, synced: Synced) -> SyncedPart:
        """Say one mirror."""
        return cls(
            address=synced.address,
            records=synced.records,
            bytes=synced.bytes,
            seconds=round(synced.seconds, 3),
            error=synced.error.message if synced.error else None,
            hint=synced.error.hint if synced.error else None,
        )


class PipelineDocument(Document):
    """What one round of the pipeline did."""

    format: Literal["reconciler.pipeline/1"] = "reconciler.pipeline/1"
    mirrors: tuple[SyncedPart, ...]

    @classmethod
    def of(cls, upkeep: Upkeep) -> PipelineDocument:
        """Say every mirror."""
        return cls(mirrors=tuple(SyncedPart.of(each) for each in upkeep.synced))
