"""What a cluster's instruments say: sizes, lags and what is pending, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from reconciler.resources.address import Address

COUNTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "segment_uploads_total": "Segments uploaded to object storage.",
        "uploaded_bytes": "Bytes of the segments uploaded to object storage.",
        "deleted_segments": "Segments deleted from object storage: expired, merged, compacted, or of deleted topics.",
        "partition_manifest_uploads_total": "Manifests of partitions written to object storage.",
        "topic_manifest_uploads_total": "Manifests of topics written to object storage.",
        "spillover_manifest_uploads_total": "Pages that manifests spilled to object storage.",
        "spillover_manifest_reads_total": "Pages of manifests read back from object storage: history.",
        "errors_total": "Requests to object storage that failed for good.",
        "jobs_cloud_segment_reuploads": "Segments that merging and compaction wrote anew in object storage.",
        "housekeeping_rounds": "Rounds of housekeeping that began.",
        "housekeeping_pauses": "Times housekeeping paused under traffic.",
        "housekeeping_resumes": "Times housekeeping went on, idle again.",
        "housekeeping_drains": "Rounds done at their interval though object storage was never idle.",
        "housekeeping_jobs_completed": "Jobs of housekeeping that were done.",
        "cache_op_hit": "Reads of remote records that the cache answered.",
        "cache_op_miss": "Reads of remote records that went to object storage.",
    }
)
"""What upkeep counts of object storage, in Redpanda's names below `cloud_storage_`, and what each counts."""

LEVELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "upload_backlog_controller_backlog_size": "Bytes that waited to be uploaded when the share of uploads was set.",
        "upload_backlog_controller_error": "How far that was from nothing, in its unit.",
        "upload_backlog_controller_shares": "Share of uploads, of a thousand.",
        "active_segments": "Remote segments of which something is in the cache.",
        "cache_space_size_bytes": "Bytes of the cache.",
        "cache_space_files": "Files of the cache.",
    }
)
"""What holds of object storage and its cache, named likewise, and what each says."""


class RemoteVitals(NamedTuple):
    """What a tiered topic has in object storage, sums over its partitions."""

    bytes: int
    segments: int
    pending_deletion: int
    """Segments that are marked and not deleted yet."""
    log_bytes: int
    """Of the whole log, each record counted once."""
    pending_bytes: int | None
    """Still to be uploaded; `None`: nothing of it is uploaded."""


class TopicVitals(NamedTuple):
    """One topic or mirror; offsets, records and bytes are sums over its partitions."""

    address: Address
    partitions: int
    start: int
    end: int
    records: int
    bytes: int
    source: Address | None = None
    """Of a mirror: the topic it follows."""
    remote: RemoteVitals | None = None
    """`None`: it was never tiered, or that is not shown."""


class GroupLag(NamedTuple):
    """How many offsets a group has still to read of a topic."""

    group: str
    topic: str
    lag: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """Everything of one cluster; `measured` and `lags` are bounded, what is beyond is only counted."""

    topics: int
    partitions: int
    measured: Sequence[TopicVitals] = ()
    unmeasured: int = 0
    """Topics beyond the bounds."""
    groups: int = 0
    lags: Sequence[GroupLag] = ()
    unmeasured_groups: int = 0
    open_transactions: int = 0
    """In the partitions of measured topics."""
    pending_deletions: int = 0
    """Topics that are marked and not yet deleted."""
    pending_rewrites: int = 0
    levels: Mapping[str, float] = field(default_factory=dict)
    """Of the cache of this machine, by the names of `LEVELS`; nothing where there is none."""
