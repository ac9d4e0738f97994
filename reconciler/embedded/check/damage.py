"""Kinds of check findings, with severity, meaning and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.records.log import OffsetRange


class Severity(StrEnum):
    """Severity of a finding; only errors fail a check."""

    ERROR = "error"
    """Data is lost, unreadable or untrustworthy."""
    WARNING = "warning"
    """Work is unfinished or objects are left over; no data is lost."""
    NOTE = "note"
    """Space may be wasted."""


class Kind(StrEnum):
    """Kinds of findings."""

    CLUSTER_FILE = "cluster-file"
    CATALOG_LOST = "catalog-lost"
    CATALOG_DAMAGED = "catalog-damaged"
    CATALOG_CONTRADICTION = "catalog-contradiction"
    NAMESPACE_MISSING = "namespace-missing"
    LINK_MISSING = "link-missing"
    MIRROR_LEFT_OVER = "mirror-left-over"
    MIRROR_SOURCE = "mirror-source"
    TRANSITION_UNDER_WAY = "transition-under-way"
    HEAD_LOST = "head-lost"
    PARTS_WITHOUT_HEAD = "parts-without-head"
    HEAD_DAMAGED = "head-damaged"
    HEAD_CONTRADICTION = "head-contradiction"
    HEAD_WRITER = "head-writer"
    HANDOVER_UNFINISHED = "handover-unfinished"
    HEAD_BEYOND = "head-beyond"
    HEAD_LEFT_OVER = "head-left-over"
    HEAD_UNKNOWN = "head-unknown"
    PAGE_MISSING = "page-missing"
    PAGE_DAMAGED = "page-damaged"
    PART_MISSING = "part-missing"
    PART_DIFFERS = "part-differs"
    PART_SHARED = "part-shared"
    MANIFEST_MISSING = "manifest-missing"
    MANIFEST_DAMAGED = "manifest-damaged"
    MANIFEST_FOREIGN = "manifest-foreign"
    MANIFEST_SHORT = "manifest-short"
    SEGMENT_MISSING = "segment-missing"
    SEGMENT_DIFFERS = "segment-differs"
    INDEX_MISSING = "index-missing"
    INDEX_DIFFERS = "index-differs"
    MANIFEST_AHEAD = "manifest-ahead"
    CUT_UNFINISHED = "cut-unfinished"
    GARBAGE_LEFT = "garbage-left"
    GROUP_DAMAGED = "group-damaged"
    GROUP_LEFT_OVER = "group-left-over"
    GROUP_BEYOND = "group-beyond"
    TRANSACTION_DAMAGED = "transaction-damaged"
    TRANSACTION_UNFINISHED = "transaction-unfinished"
    TRANSACTION_OVERDUE = "transaction-overdue"
    TRANSACTION_UNKNOWN = "transaction-unknown"
    DELETION_UNFINISHED = "deletion-unfinished"
    REWRITE_UNFINISHED = "rewrite-unfinished"
    MIGRATION_UNDER_WAY = "migration-under-way"
    MIGRATION_WAITS = "migration-waits"
    MIGRATION_CONTRADICTION = "migration-contradiction"
    HOLD_STALE = "hold-stale"
    SEAL_LEFT = "seal-left"
    CLAIM_LEFT = "claim-left"
    OWNERSHIP_LOST = "ownership-lost"
    OWNERSHIP_DAMAGED = "ownership-damaged"
    OWNED_WITHOUT_TOPIC = "owned-without-topic"
    UNNAMED = "unnamed"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class KindRule:
    """Severity, meaning and remedy of a kind of finding.

    `is_mended`: `--repair` can fix it without data loss.
    """

    severity: Severity
    matters: str
    advice: str
    is_mended: bool = False


_RESTORE: Final = "Restore the object from a copy of the store, then check again"

_PUT_BACK: Final = f"{_RESTORE}; what was cut off `--repair` puts back where the bucket keeps versions"
_RESTORE_REMOTE: Final = "Restore the object from a version or copy of the bucket, or from a mirror; then check again"
_WITHOUT_INDEX: Final = "Nothing is lost: reads ask the segment itself, which takes them a request more"
_SCRUB: Final = "`reconciler run --once --only scrub` writes it again"

RULES: Final[Mapping[Kind, KindRule]] = {
    Kind.CLUSTER_FILE: KindRule(
        Severity.ERROR, "Nothing opens a cluster whose identity cannot be read", "Restore cluster.json from a copy"
    ),
    Kind.CATALOG_LOST: KindRule(
        Severity.ERROR, "Without its catalog a cluster has no topics, though their records are there", _RESTORE
    ),
    Kind.CATALOG_DAMAGED: KindRule(Severity.ERROR, "No topic can be found, read or changed", _PUT_BACK),
    Kind.CATALOG_CONTRADICTION: KindRule(
        Severity.ERROR, "The catalog contradicts itself", "Restore the catalog from a copy, or report this"
    ),
    Kind.NAMESPACE_MISSING: KindRule(
        Severity.ERROR,
        "What is below inherits nothing from it, and nothing can be created there",
        "`--repair` makes it, empty",
        is_mended=True,
    ),
    Kind.LINK_MISSING: KindRule(
        Severity.ERROR,
        "The mirror is no longer updated, and no other producer may write to it",
        "Fail it over, and it is an ordinary topic; or delete it",
    ),
    Kind.MIRROR_LEFT_OVER: KindRule(
        Severity.WARNING,
        "Its mirroring has ended and its link was deleted: it accepts records, and is still listed as a mirror",
        "`--repair` makes it an ordinary topic; no record of it is touched",
        is_mended=True,
    ),
    Kind.MIRROR_SOURCE: KindRule(
        Severity.ERROR,
        "What the partition holds is not the beginning of what its mirror follows: nothing more is copied to it",
        "Delete the mirror and create it again, or fail it over and keep its records",
    ),
    Kind.TRANSITION_UNDER_WAY: KindRule(
        Severity.NOTE,
        "A promotion, reversal or restore has begun and has not ended; its unfinished parts are no damage",
        "`reconciler run` continues it once it reaches both clusters. What it waits for: reconciler mirror list",
    ),
    Kind.HEAD_LOST: KindRule(
        Severity.ERROR,
        "Nothing finds the partition's records any more, and what is appended begins at offset 0 again",
        "Stop its producers and restore the head that is named from a copy of the store; nothing deletes the records",
    ),
    Kind.PARTS_WITHOUT_HEAD: KindRule(
        Severity.WARNING,
        "A first append died before it was published, or the head was removed",
        "If records were acknowledged there, restore the head that is named from a copy; nothing deletes them",
    ),
    Kind.HEAD_DAMAGED: KindRule(Severity.ERROR, "The partition can neither be read nor written", _PUT_BACK),
    Kind.HEAD_CONTRADICTION: KindRule(
        Severity.ERROR, "Reads of the partition may miss records or return some twice", _RESTORE
    ),
    Kind.HEAD_WRITER: KindRule(
        Severity.ERROR, "The partition refuses the writer that the catalog allows", "Report this; records are safe"
    ),
    Kind.HANDOVER_UNFINISHED: KindRule(
        Severity.WARNING,
        "Mirroring began or ended, and the process died before this partition: its head allows the earlier writer",
        "The next append takes it over; `--repair` does it now",
        is_mended=True,
    ),
    Kind.HEAD_BEYOND: KindRule(
        Severity.ERROR,
        "Its records are stored, and no reader looks for them",
        "Raise the topic's partitions until it is one of them",
    ),
    Kind.HEAD_LEFT_OVER: KindRule(
        Severity.WARNING,
        "The topic was deleted; its partition still uses space",
        "`--repair` deletes it",
        is_mended=True,
    ),
    Kind.HEAD_UNKNOWN: KindRule(
        Severity.ERROR,
        "Its records were acknowledged, and the catalog does not know their topic: an older catalog was put back",
        "Restore the newest catalog; until then `--repair` deletes nothing",
    ),
    Kind.PAGE_MISSING: KindRule(Severity.ERROR, "The offsets it described cannot be read", _RESTORE),
    Kind.PAGE_DAMAGED: KindRule(Severity.ERROR, "The offsets it describes cannot be read, or are read wrong", _RESTORE),
    Kind.PART_MISSING: KindRule(
        Severity.ERROR,
        "The records at these offsets are missing from this store",
        "Restore them from a copy or a mirror",
    ),
    Kind.PART_DIFFERS: KindRule(
        Severity.ERROR, "The records at these offsets are not those that were written", _RESTORE
    ),
    Kind.PART_SHARED: KindRule(
        Severity.ERROR,
        "Deleting the records of one deletes those of the other",
        "Delete neither topic; copy one of them to another first",
    ),
    Kind.MANIFEST_MISSING: KindRule(
        Severity.ERROR,
        "Nothing finds what is in object storage alone, and what counts as uploaded may be evicted",
        "Restore the manifest from a copy of object storage, then check again",
    ),
    Kind.MANIFEST_DAMAGED: KindRule(
        Severity.ERROR,
        "What is in object storage alone cannot be read, and nothing is uploaded",
        _PUT_BACK,
    ),
    Kind.MANIFEST_FOREIGN: KindRule(
        Severity.ERROR,
        "Nothing of the partition is uploaded or expires any more: its topic was released, or mounted elsewhere",
        "Delete the topic here; nothing of it is deleted in object storage by that",
    ),
    Kind.MANIFEST_SHORT: KindRule(
        Severity.ERROR,
        "Records that are in object storage according to the head are not in its manifest",
        "Restore the manifest from a copy of object storage, then check again",
    ),
    Kind.MANIFEST_AHEAD: KindRule(
        Severity.ERROR,
        "Object storage has records the cluster does not know: an older copy of it was put back",
        "Stop its producers and restore the newest copy of the cluster, or recover the topic under another name",
    ),
    Kind.SEGMENT_MISSING: KindRule(
        Severity.ERROR, "The records at these offsets are missing from object storage", _RESTORE_REMOTE
    ),
    Kind.SEGMENT_DIFFERS: KindRule(
        Severity.ERROR,
        "The records at these offsets in object storage are not those that were uploaded",
        _RESTORE_REMOTE,
    ),
    Kind.INDEX_MISSING: KindRule(Severity.WARNING, _WITHOUT_INDEX, _SCRUB),
    Kind.INDEX_DIFFERS: KindRule(Severity.WARNING, _WITHOUT_INDEX, _SCRUB),
    Kind.CUT_UNFINISHED: KindRule(
        Severity.WARNING,
        "The log was cut; what object storage has above the cut is never read and takes space",
        "`reconciler run` finishes it, as does the restore that began it",
    ),
    Kind.GARBAGE_LEFT: KindRule(
        Severity.NOTE, "They are never read and take space in object storage", "`reconciler run` deletes them"
    ),
    Kind.GROUP_DAMAGED: KindRule(
        Severity.ERROR,
        "The group can neither commit nor continue at its offsets",
        "Delete the group and reset its offsets; what was cut off `--repair` puts back where the bucket keeps versions",
    ),
    Kind.GROUP_LEFT_OVER: KindRule(
        Severity.NOTE,
        "The group has offsets of a deleted topic; they are never read",
        "Its next commit removes them; `--repair` does it now",
        is_mended=True,
    ),
    Kind.GROUP_BEYOND: KindRule(
        Severity.WARNING,
        "The group skips what is written until the log has reached that offset",
        "Reset it with: reconciler group reset",
    ),
    Kind.TRANSACTION_DAMAGED: KindRule(
        Severity.ERROR, "Its producer cannot begin, and readers wait at its first record", _PUT_BACK
    ),
    Kind.TRANSACTION_UNFINISHED: KindRule(
        Severity.WARNING,
        "Its outcome is decided; readers wait until it is carried out",
        "`--repair` does",
        is_mended=True,
    ),
    Kind.TRANSACTION_OVERDUE: KindRule(
        Severity.WARNING,
        "Readers of committed records wait for a producer that exceeded its transaction timeout",
        "`reconciler run` aborts it",
    ),
    Kind.TRANSACTION_UNKNOWN: KindRule(
        Severity.ERROR, "Readers that wait for commits never get past its first record", "Report this"
    ),
    Kind.DELETION_UNFINISHED: KindRule(
        Severity.WARNING, "Its name is free, its objects still take space", "`--repair` finishes it", is_mended=True
    ),
    Kind.REWRITE_UNFINISHED: KindRule(
        Severity.WARNING,
        "Some of its objects are still under the key of its former namespace",
        "`--repair` finishes it",
        is_mended=True,
    ),
    Kind.MIGRATION_UNDER_WAY: KindRule(
        Severity.NOTE,
        "Topics are being mounted or unmounted; their unfinished parts are no damage",
        "`reconciler run` continues it. Its progress: reconciler mount status",
    ),
    Kind.MIGRATION_WAITS: KindRule(
        Severity.NOTE,
        "Its topics are held until the next step is requested; it does not continue by itself",
        "Ask for the next step by cluster.mounts.ask in the library, or stop it; the steps: reconciler mount status",
    ),
    Kind.MIGRATION_CONTRADICTION: KindRule(
        Severity.ERROR,
        "What a migration says of its topics is not so, and it cannot finish as they are",
        "Cancel it, or delete it where it is only planned; then mount or unmount again",
    ),
    Kind.HOLD_STALE: KindRule(
        Severity.ERROR,
        "The topic cannot be changed, and may be closed, for a migration that will never let go of it",
        "`--repair` releases the topic, if object storage still lists this cluster as its owner",
        is_mended=True,
    ),
    Kind.SEAL_LEFT: KindRule(
        Severity.NOTE, "A migration was cancelled that had sealed the partition", "The next append takes the seal off"
    ),
    Kind.CLAIM_LEFT: KindRule(
        Severity.WARNING,
        "No cluster can mount the topic: this cluster claimed it, and no migration finishes the claim",
        "`--repair` releases the claim",
        is_mended=True,
    ),
    Kind.OWNERSHIP_LOST: KindRule(
        Severity.ERROR,
        "Nothing of it is uploaded, expires or is merged here any more: object storage lists another owner. Records "
        "written here since exist only here",
        "Copy what was written here since, if it matters, cancel what migrates it, and delete the topic here: nothing "
        "of it is deleted in object storage by that",
    ),
    Kind.OWNERSHIP_DAMAGED: KindRule(
        Severity.ERROR,
        "The owner of the topic is unknown: the topic cannot be mounted, unmounted or released",
        "Restore the register from a version or copy of the bucket; where it is of a newer format, upgrade",
    ),
    Kind.OWNED_WITHOUT_TOPIC: KindRule(
        Severity.NOTE,
        "The topic was mounted here and deleted, its objects in object storage stayed; no other cluster can mount it",
        "Recover it here, or let go of it: reconciler mount release",
    ),
    Kind.UNNAMED: KindRule(
        Severity.NOTE,
        "Nothing names them: a writer is about to, or has died; they take space",
        "`--repair` deletes those older than 24 hours",
        is_mended=True,
    ),
    Kind.FOREIGN: KindRule(
        Severity.NOTE, "They are not part of the cluster and are left alone", "Move other files to other folders"
    ),
}


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Location of a finding: an object's key, and its topic and partition if known."""

    key: str
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding of a check. `gone` are unreadable offsets."""

    kind: Kind
    what: str
    place: FindingPlace
    gone: tuple[OffsetRange, ...] = ()
    objects: int = 1
    bytes: int = 0
    age_ms: int | None = None
    """Age of the oldest object by the store's clock."""

    @property
    def rule(self) -> KindRule:
        """Severity, meaning and remedy."""
        return RULES[self.kind]

    @property
    def severity(self) -> Severity:
        """Severity."""
        return self.rule.severity


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What a repair did about one kind of finding."""

    kind: Kind
    what: str


HIDING_KINDS: Final = frozenset(
    {
        Kind.CLUSTER_FILE,
        Kind.CATALOG_LOST,
        Kind.CATALOG_DAMAGED,
        Kind.CATALOG_CONTRADICTION,
        Kind.HEAD_DAMAGED,
        Kind.HEAD_CONTRADICTION,
        Kind.PAGE_MISSING,
        Kind.PAGE_DAMAGED,
    }
)
"""Kinds of findings after which references to objects are incomplete."""
MAX_FINDINGS: Final = 10_000


@dataclass(slots=True)
class CheckResult:
    """The check's result."""

    cluster_id: str | None = None
    objects: int = 0
    stored_bytes: int = 0
    namespaces: int = 0
    topics: int = 0
    partitions: int = 0
    pages: int = 0
    parts: int = 0
    records: int = 0
    segments: int = 0
    remote_records: int = 0
    groups: int = 0
    transactions: int = 0
    findings: list[CheckFinding] = field(default_factory=list)
    left_out: int = 0
    kinds: set[Kind] = field(default_factory=set)
    """Kinds of all findings, including those beyond the limit."""
    errors: int = 0
    serial: int | None = None
    is_sure: bool = True
    """Whether all references to objects were readable and consistent."""

    def add(self, findings: Iterable[CheckFinding]) -> None:
        """Count findings, and store them until the limit is reached."""
        for finding in findings:
            self.errors += finding.severity is Severity.ERROR
            self.kinds.add(finding.kind)
            self.is_sure &= finding.kind not in HIDING_KINDS
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)
            else:
                self.left_out += 1
