"""JSON of `cluster check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.embedded.checking.findings import Finding
    from reconciler.workflow.clusters import CheckedCluster


class OffsetsPart(Part):
    """Offsets from `start` up to, not including, `stop`."""

    start: int
    stop: int


class FindingPart(Part):
    """One thing that is not as it should be."""

    kind: str
    severity: Literal["error", "warning", "note"]
    what: str
    key: str = Field(description="The object it is about, or the first of several.")
    topic: str | None
    partition: int | None
    gone: tuple[OffsetsPart, ...] = Field(description="Offsets whose records cannot be read any more, or not trusted.")
    objects: int
    bytes: int
    age_ms: int | None = Field(description="Of the oldest object, by the store's clock, where age matters.")
    why: str
    advice: str
    repairable: bool = Field(description="Whether --repair mends it.")

    @classmethod
    def of(cls, finding: Finding) -> FindingPart:
        """Say one finding."""
        return cls(
            kind=finding.kind,
            severity=finding.severity.value,
            what=finding.what,
            key=finding.place.key,
            topic=finding.place.topic,
            partition=finding.place.partition,
            gone=tuple(OffsetsPart(start=each.start, stop=each.stop) for each in finding.gone),
            objects=finding.objects,
            bytes=finding.bytes,
            age_ms=finding.age_ms,
            why=finding.rule.matters,
            advice=finding.rule.advice,
            repairable=finding.rule.is_mended,
        )


class CountsPart(Part):
    """How much was looked at."""

    objects: int
    bytes: int
    namespaces: int
    topics: int
    partitions: int = Field(description="That were ever written.")
    pages: int
    parts: int
    records: int
    groups: int
    transactions: int


class MendedPart(Part):
    """What a repair did about one kind of finding."""

    kind: str
    what: str


class CheckDocument(Document):
    """A cluster, checked; after a repair, as it is then."""

    format: Literal["reconciler.check/1"] = "reconciler.check/1"
    cluster: str
    url: str
    id: str | None
    consistent: bool
    counts: CountsPart
    findings: tuple[FindingPart, ...]
    left_out: int = Field(description="Findings that are counted and not listed.")
    mended: tuple[MendedPart, ...]

    @classmethod
    def of(cls, found: CheckedCluster) -> CheckDocument:
        """Say all of it."""
        checked = found.checked
        return cls(
            cluster=found.address,
            url=found.url,
            id=checked.cluster_id,
            consistent=checked.errors == 0,
            counts=CountsPart(
                objects=checked.objects,
                bytes=checked.stored_bytes,
                namespaces=checked.namespaces,
                topics=checked.topics,
                partitions=checked.partitions,
                pages=checked.pages,
                parts=checked.parts,
                records=checked.records,
                groups=checked.groups,
                transactions=checked.transactions,
            ),
            findings=tuple(map(FindingPart.of, checked.findings)),
            left_out=checked.left_out,
            mended=tuple(MendedPart(kind=each.kind, what=each.what) for each in found.mended),
        )
