"""JSON of `run` and `verify`: what was done to topic logs, and how two of them compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.jobs.comparison import PartitionComparison, Side
    from reconciler.workflow.upkeep.outcomes import JobOutcome, Synced, Upkeep
    from reconciler.workflow.verify import Verified


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


class ErrorPart(Part):
    """What failed, and what to do."""

    error: str
    hint: str


class JobPart(Part):
    """One job of upkeep on one cluster."""

    job: str = Field(
        description="Also `link`: what links keep in step; `observe`, `state`: a cluster, or the state, not read."
    )
    cluster: str | None
    unit: str | None = Field(description="What `done` and `failed` count: partition, topic, transaction, object.")
    done: int
    failed: int
    records: int = Field(description="Removed by retention and compaction; written anew by a roll.")
    bytes: int = Field(description="Stored bytes, as `records`; of a sweep, deleted.")
    seconds: float
    errors: tuple[ErrorPart, ...] = Field(description="At most a hundred of those that failed.")

    @classmethod
    def of(cls, outcome: JobOutcome) -> JobPart:
        """Say one job."""
        upkept = outcome.upkept
        return cls(
            job=outcome.job,
            cluster=outcome.cluster or None,
            unit=upkept.unit if upkept else None,
            done=upkept.done if upkept else 0,
            failed=outcome.failed,
            records=upkept.records if upkept else 0,
            bytes=upkept.bytes if upkept else 0,
            seconds=round(outcome.seconds, 3),
            errors=tuple(ErrorPart(error=error.message, hint=error.hint) for error in outcome.errors),
        )


class PipelineDocument(Document):
    """What one pass of the pipeline did."""

    format: Literal["reconciler.pipeline/1"] = "reconciler.pipeline/1"
    mirrors: tuple[SyncedPart, ...]
    jobs: tuple[JobPart, ...]
    seconds: float
    stopped: bool = Field(description="Whether somebody asked it to end before it was through.")

    @classmethod
    def of(cls, upkeep: Upkeep) -> PipelineDocument:
        """Say every mirror and job."""
        return cls(
            mirrors=tuple(SyncedPart.of(each) for each in upkeep.synced),
            jobs=tuple(JobPart.of(each) for each in upkeep.jobs),
            seconds=round(upkeep.seconds, 3),
            stopped=upkeep.is_stopped,
        )


class SidePart(Part):
    """A partition as one log has it, up to its last stable offset."""

    start: int
    end: int
    records: int
    digest: str = Field(description="Two sums mod 2^128 over all records, hexadecimal.")

    @classmethod
    def of(cls, side: Side) -> SidePart:
        """Say one side."""
        digest = f"{side.digest.total:032x}{side.digest.weighted:032x}"
        return cls(start=side.start, end=side.end, records=side.records, digest=digest)


class PartitionPart(Part):
    """One partition of both logs; null where a log does not have it."""

    partition: int
    equal: bool
    differences: tuple[Literal["partition", "start", "end", "records", "digest"], ...]
    first_difference: int | None = Field(description="The first offset that differs, where it was looked for.")
    superseded: int = Field(description="Records that only one log has because the other was compacted.")
    left: SidePart | None
    right: SidePart | None

    @classmethod
    def of(cls, found: PartitionComparison) -> PartitionPart:
        """Say one partition."""
        return cls(
            partition=found.partition,
            equal=found.is_equal,
            differences=found.differences,
            first_difference=found.first_difference,
            superseded=found.superseded,
            left=SidePart.of(found.left) if found.left else None,
            right=SidePart.of(found.right) if found.right else None,
        )


class VerifyDocument(Document):
    """Two topic logs, compared partition by partition."""

    format: Literal["reconciler.verify/1"] = "reconciler.verify/1"
    left: str
    right: str
    equal: bool
    deep: bool = Field(description="Whether every record was read anew.")
    partitions: tuple[PartitionPart, ...]

    @classmethod
    def of(cls, verified: Verified) -> VerifyDocument:
        """Say every partition."""
        return cls(
            left=verified.left,
            right=verified.right,
            equal=verified.comparison.is_equal,
            deep=verified.comparison.is_deep,
            partitions=tuple(PartitionPart.of(each) for each in verified.comparison.partitions),
        )
