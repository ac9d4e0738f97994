"""What of tiering belongs to a cluster's machinery, not to a topic; compiled to the cluster's properties."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from reconciler.resources.acls import folded
from reconciler.resources.base import Count, DurationMs, Flag, Model, SizeBytes

if TYPE_CHECKING:
    from collections.abc import Mapping

Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class UploadSpec(Model):
    """When closed and open segments are uploaded."""

    max_interval: DurationMs | None = Field(
        default=None, description="Upload the open segment after this long; absent: closed ones only.", examples=["1h"]
    )


class MergeSpec(Model):
    """Merging of small adjacent remote segments."""

    enabled: Flag | None = Field(default=None, description="Merge at all; absent: yes.", examples=[True])
    target_bytes: SizeBytes | None = Field(default=None, description="Size of a merged object.", examples=["128MiB"])
    min_bytes: SizeBytes | None = Field(default=None, description="Runs below it wait or merge.", examples=["64MiB"])


class ManifestsSpec(Model):
    """Partition manifests of the remote tier."""

    spillover_bytes: SizeBytes | None = Field(
        default=None, description="Beyond it a manifest's oldest part is spilled.", examples=["64KiB"]
    )


class CacheSpec(Model):
    """The chunk cache in front of remote reads. Of several limits the smallest wins."""

    directory: str | None = Field(
        default=None, description="Where it lies, a full path.", examples=["/var/cache/topics"]
    )
    bytes: SizeBytes | None = Field(default=None, description="Its largest size.", examples=["20GiB"])
    percent: Percent | None = Field(default=None, description="Its largest share of the disk.", examples=[20])
    max_objects: Count | None = Field(default=None, description="Its largest number of files.", examples=[100_000])
    chunk_bytes: SizeBytes | None = Field(default=None, description="Size of a chunk.", examples=["16MiB"])
    eviction: Annotated[Literal["eager", "capped", "predictive"], BeforeValidator(folded)] | None = Field(
        default=None, description="Which unshared chunks go when space is needed.", examples=["eager"]
    )
    trim_size_percent: Percent | None = Field(
        default=None, description="Trim at this share of its size; absent: when full.", examples=[70]
    )
    trim_objects_percent: Percent | None = Field(
        default=None, description="Trim at this share of its number of files; absent: when full.", examples=[70]
    )


class SpaceSpec(Model):
    """How much local disk the platform may use."""

    target_bytes: SizeBytes | None = Field(default=None, description="For local data, in bytes.", examples=["100GiB"])
    target_percent: Percent | None = Field(default=None, description="For local data, in percent.", examples=[50])
    reservation_percent: Percent | None = Field(
        default=None, description="Left free for everything else, in percent.", examples=[25]
    )


class MachineryTiering(Model):
    """What of tiering belongs to the cluster's machinery, not to a topic; compiled to its properties."""

    upload: UploadSpec | None = Field(
        default=None, description="When segments are uploaded.", examples=[{"maxInterval": "1h"}]
    )
    merge: MergeSpec | None = Field(
        default=None, description="Merging of small remote segments.", examples=[{"targetBytes": "128MiB"}]
    )
    manifests: ManifestsSpec | None = Field(
        default=None, description="Partition manifests.", examples=[{"spilloverBytes": "64KiB"}]
    )
    cache: CacheSpec | None = Field(
        default=None, description="The cache of remote reads.", examples=[{"bytes": "20GiB", "eviction": "eager"}]
    )
    space: SpaceSpec | None = Field(
        default=None, description="Use of the local disk.", examples=[{"targetPercent": 50}]
    )


TIERING_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "upload.maxInterval": "cloud_storage_segment_max_upload_interval_sec",
        "merge.enabled": "cloud_storage_enable_segment_merging",
        "merge.targetBytes": "cloud_storage_segment_size_target",
        "merge.minBytes": "cloud_storage_segment_size_min",
        "manifests.spilloverBytes": "cloud_storage_spillover_manifest_size",
        "cache.directory": "cloud_storage_cache_directory",
        "cache.bytes": "cloud_storage_cache_size",
        "cache.percent": "cloud_storage_cache_size_percent",
        "cache.maxObjects": "cloud_storage_cache_max_objects",
        "cache.chunkBytes": "cloud_storage_cache_chunk_size",
        "cache.eviction": "cloud_storage_chunk_eviction_strategy",
        "cache.trimSizePercent": "cloud_storage_cache_trim_threshold_percent_size",
        "cache.trimObjectsPercent": "cloud_storage_cache_trim_threshold_percent_objects",
        "space.targetBytes": "retention_local_target_capacity_bytes",
        "space.targetPercent": "retention_local_target_capacity_percent",
        "space.reservationPercent": "disk_reservation_percent",
    }
)
"""Field of `spec.tiering` → the cluster property that says the same, in Redpanda's names."""
