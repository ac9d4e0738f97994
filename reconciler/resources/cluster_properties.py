"""Cluster properties of an embedded cluster: types, ranges and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from reconciler.resources.kafka_configs import ConfigKey

ENABLED: Final = "cloud_storage_enabled"
_PAGE: Final = "cloud_storage_spillover_manifest_size"
_FORMER_PAGE: Final = "cloud_storage_target_manifest_size_bytes"
ALIASES: Final = (("delete_retention_ms", "log_retention_ms"), (_PAGE, _FORMER_PAGE))
UPLOADS: Final = "cloud_storage_enable_segment_uploads"
METADATA_UPLOADS: Final = "enable_cluster_metadata_upload_loop"
METADATA_INTERVAL: Final = "cloud_storage_cluster_metadata_upload_interval_ms"
REPLICA_INTERVAL: Final = "cloud_storage_readreplica_manifest_sync_timeout_ms"

_SWITCHES: Final = (
    ConfigKey(ENABLED, "boolean", "false", description="Tiered storage at all; off, nothing is uploaded or fetched."),
    ConfigKey(
        "cloud_storage_enable_remote_write", "boolean", "false", description="What remote.write of a new topic is."
    ),
    ConfigKey(
        "cloud_storage_enable_remote_read", "boolean", "false", description="What remote.read of a new topic is."
    ),
    ConfigKey(UPLOADS, "boolean", "true", description="Off: uploads pause, and nothing is lost by that."),
    ConfigKey(
        "cloud_storage_enable_compacted_topic_reupload",
        "boolean",
        "true",
        description="Upload segments again after compaction.",
    ),
    ConfigKey(
        METADATA_UPLOADS,
        "boolean",
        "true",
        description="Keep topics, namespaces, access rules, links and groups in object storage, too.",
    ),
    ConfigKey(
        "kafka_enable_describe_log_dirs_remote_storage", "boolean", "true", description="Show remote bytes of topics."
    ),
)

ACCESS_KEY: Final = "cloud_storage_access_key"
SECRET_KEY: Final = "cloud_storage_secret_key"  # noqa: S105 - the name of a property
AZURE_ACCOUNT: Final = "cloud_storage_azure_storage_account"
AZURE_KEY: Final = "cloud_storage_azure_shared_key"
TRUST_FILE: Final = "cloud_storage_trust_file"
IDLE: Final = "cloud_storage_max_connection_idle_time_ms"

_ACCESS: Final = (
    ConfigKey(ACCESS_KEY, "reference", description="Reference to the access key of S3; with a secret key."),
    ConfigKey(SECRET_KEY, "reference", description="Reference to the secret key of S3."),
    ConfigKey(AZURE_ACCOUNT, "string", description="Storage account of Azure; with a shared key."),
    ConfigKey(AZURE_KEY, "reference", description="Reference to the shared key of the account."),
    ConfigKey(
        TRUST_FILE, "string", description="Certificates of authorities (PEM) to trust; unset: those of the machine."
    ),
    ConfigKey(
        IDLE, "duration", "5000", minimum=1, description="A connection that was idle for longer is not used again."
    ),
)

_UPLOAD: Final = (
    ConfigKey(
        "cloud_storage_segment_max_upload_interval_sec",
        "integer",
        minimum=1,
        description="Upload what is new of the open segment after so many seconds; unset: closed ones only.",
    ),
    ConfigKey("cloud_storage_segment_upload_timeout_ms", "duration", "30000", minimum=1, description="Of one segment."),
    ConfigKey(
        "cloud_storage_manifest_upload_timeout_ms", "duration", "10000", minimum=1, description="Of one manifest."
    ),
    ConfigKey(
        "cloud_storage_initial_backoff_ms", "duration", "100", minimum=1, description="First pause after a refusal."
    ),
    ConfigKey(
        "cloud_storage_max_connections", "integer", "20", minimum=1, description="Of uploads and downloads together."
    ),
    ConfigKey(
        "cloud_storage_upload_ctrl_update_interval_ms",
        "duration",
        "60000",
        minimum=0,
        description="How often the share of uploads is recomputed.",
    ),
    ConfigKey(
        "cloud_storage_upload_ctrl_p_coeff",
        "double",
        "-2",
        description="Weight of the backlog in the share of uploads.",
    ),
    ConfigKey("cloud_storage_upload_ctrl_d_coeff", "double", "0", description="Weight of how the backlog changes."),
    ConfigKey(
        "cloud_storage_upload_ctrl_min_shares", "integer", "100", minimum=1, description="Least share of uploads."
    ),
    ConfigKey(
        "cloud_storage_upload_ctrl_max_shares", "integer", "1000", minimum=1, description="Largest share of uploads."
    ),
    ConfigKey(_FORMER_PAGE, "size", minimum=1024, description=f"Another name of {_PAGE}."),
    ConfigKey(
        METADATA_INTERVAL,
        "duration",
        "3600000",
        minimum=1,
        description="How often cluster metadata is checked, and uploaded if it changed.",
    ),
    ConfigKey(
        _PAGE,
        "size",
        "65536",
        minimum=1024,
        description="Size of a page that a manifest spills; it spills above twice that.",
    ),
)

_REPLICAS: Final = (
    ConfigKey(
        REPLICA_INTERVAL,
        "duration",
        "30000",
        minimum=0,
        description="How often read replicas look for what their sources have uploaded.",
    ),
)

_CACHE: Final = (
    ConfigKey("cloud_storage_cache_directory", "string", description="Location of the cache, a full path."),
    ConfigKey(
        "cloud_storage_cache_size", "size", "0", minimum=0, description="Largest size of the cache; 0: no limit."
    ),
    ConfigKey(
        "cloud_storage_cache_size_percent",
        "double",
        "20",
        minimum=0,
        maximum=100,
        description="Largest share of the disk; 0: no limit.",
    ),
    ConfigKey(
        "cloud_storage_cache_max_objects", "integer", "100000", minimum=1, description="Most files of the cache."
    ),
    ConfigKey(
        "cloud_storage_cache_check_interval_ms", "duration", "30000", minimum=1, description="How often it is checked."
    ),
    ConfigKey(
        "cloud_storage_cache_trim_carryover_bytes",
        "size",
        "0",
        minimum=0,
        description="Memory for the listing of the cache that one trim keeps for the next. 0: each trim lists it.",
    ),
    ConfigKey(
        "cloud_storage_cache_trim_walk_concurrency",
        "integer",
        "1",
        minimum=1,
        maximum=64,
        description="Folders that are listed at once.",
    ),
    ConfigKey("cloud_storage_cache_chunk_size", "size", "16777216", minimum=4096, description="Size of a chunk."),
    ConfigKey(
        "cloud_storage_cache_trim_threshold_percent_size",
        "double",
        minimum=1,
        maximum=100,
        description="Trim at this share of its size; unset: when full.",
    ),
    ConfigKey(
        "cloud_storage_cache_trim_threshold_percent_objects",
        "double",
        minimum=1,
        maximum=100,
        description="Trim at this share of its files; unset: when full.",
    ),
    ConfigKey(
        "cloud_storage_chunk_eviction_strategy",
        "enum",
        "eager",
        ("eager", "capped", "predictive"),
        description="Which unread chunks are evicted first.",
    ),
    ConfigKey("cloud_storage_disable_chunk_reads", "boolean", "false", description="Fetch whole segments, not chunks."),
    ConfigKey(
        "cloud_storage_hydrated_chunks_per_segment_ratio",
        "double",
        "0.7",
        minimum=0,
        maximum=1,
        description="Share of a segment's chunks that may be cached.",
    ),
    ConfigKey(
        "cloud_storage_min_chunks_per_segment_threshold",
        "integer",
        "5",
        minimum=0,
        description="Segments of fewer chunks may be cached whole.",
    ),
)

_HOUSEKEEPING: Final = (
    ConfigKey(
        "cloud_storage_idle_timeout_ms", "duration", "10000", minimum=1, description="Window of the idle measure."
    ),
    ConfigKey(
        "cloud_storage_idle_threshold_rps",
        "double",
        "1",
        minimum=0,
        description="Requests a second that count as idle.",
    ),
    ConfigKey(
        "cloud_storage_housekeeping_interval_ms",
        "duration",
        "300000",
        minimum=1,
        description="Every job runs at least this often, idle or not.",
    ),
    ConfigKey("cloud_storage_enable_segment_merging", "boolean", "true", description="Merge small remote segments."),
    ConfigKey(
        "cloud_storage_segment_size_target",
        "size",
        minimum=1,
        description="Largest size of a merged segment; unset: the topic's segment.bytes.",
    ),
    ConfigKey(
        "cloud_storage_segment_size_min",
        "size",
        minimum=1,
        description="Runs up to it wait for more; unset: half of the target.",
    ),
)

_LOCAL: Final = (
    ConfigKey(
        "retention_local_target_capacity_bytes", "size", minimum=1, description="What local data may take in all."
    ),
    ConfigKey(
        "retention_local_target_capacity_percent",
        "double",
        minimum=0,
        maximum=100,
        description="The same in percent of the disk; unset: what cache and reservation leave.",
    ),
    ConfigKey(
        "retention_local_trim_interval", "duration", "30000", minimum=1, description="How often that is checked."
    ),
    ConfigKey(
        "disk_reservation_percent", "double", "20", minimum=0, maximum=100, description="Left free for everything else."
    ),
)

_OF_KAFKA: Final[Mapping[str, str]] = {
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

CONFIG_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_OF_KAFKA,
        "delete_retention_ms": "retention.ms",
        "log_retention_ms": "retention.ms",
        "log_segment_size": "segment.bytes",
        "log_segment_ms": "segment.ms",
        "retention_local_target_ms_default": "retention.local.target.ms",
        "retention_local_target_bytes_default": "retention.local.target.bytes",
        "initial_retention_local_target_ms_default": "initial.retention.local.target.ms",
        "initial_retention_local_target_bytes_default": "initial.retention.local.target.bytes",
        "retention_local_strict": "retention.local.strict",
    }
)
"""Topic config by the property that is its default."""

CREATION_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {"cloud_storage_enable_remote_write": "remote.write", "cloud_storage_enable_remote_read": "remote.read"}
)
"""Config by the property from which only new topics copy it (F-R-004)."""

_DEFAULTS: Final = (
    ConfigKey("delete_retention_ms", "duration", minimum=-1, description="retention.ms of topics without their own."),
    ConfigKey("log_retention_ms", "duration", minimum=-1, description="Another name of delete_retention_ms."),
    ConfigKey("log_segment_size", "size", minimum=1, description="segment.bytes of topics without their own."),
    ConfigKey("log_segment_ms", "duration", minimum=1, description="segment.ms of topics without their own."),
    ConfigKey(
        "retention_local_target_ms_default", "duration", minimum=-1, description="How long uploaded records stay local."
    ),
    ConfigKey(
        "retention_local_target_bytes_default",
        "size",
        minimum=-1,
        description="Bytes per partition of uploaded records that stay local.",
    ),
    ConfigKey(
        "initial_retention_local_target_ms_default",
        "duration",
        minimum=-1,
        description="How far back a recovered partition fetches first.",
    ),
    ConfigKey(
        "initial_retention_local_target_bytes_default",
        "size",
        minimum=-1,
        description="Bytes per partition that a recovered one fetches first.",
    ),
    ConfigKey("retention_local_strict", "boolean", description="Expire local data also when space is free."),
)

EMBEDDED_PROPERTIES: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in sorted(
            (*_SWITCHES, *_ACCESS, *_UPLOAD, *_REPLICAS, *_CACHE, *_HOUSEKEEPING, *_LOCAL, *_DEFAULTS),
            key=lambda key: key.name,
        )
    }
)


REFERENCES: Final = frozenset(name for name, key in EMBEDDED_PROPERTIES.items() if key.type == "reference")
"""Properties whose values are references to secrets."""

_PLACE: Final = "objectStorage sets the location"

MEANINGLESS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "cloud_storage_region": (_PLACE, "Write `region` of objectStorage."),
        "cloud_storage_bucket": (_PLACE, "Write it into the URL of objectStorage: s3://bucket/prefix."),
        "cloud_storage_api_endpoint": (_PLACE, "Write `endpoint` of objectStorage: https://host."),
        "cloud_storage_api_endpoint_port": (_PLACE, "Write it into `endpoint` of objectStorage: https://host:port."),
        "cloud_storage_disable_tls": (_PLACE, "Write `endpoint` of objectStorage with http:// or https://."),
        "cloud_storage_url_style": (_PLACE, "Write `forcePathStyle` of objectStorage."),
        "cloud_storage_backend": (_PLACE, "The URL of objectStorage has it: s3://, gs:// or az://."),
        "cloud_storage_azure_container": (_PLACE, "Write it into the URL of objectStorage: az://container/prefix."),
        "cloud_storage_azure_adls_endpoint": (_PLACE, "Write `endpoint` of objectStorage: https://host."),
        "cloud_storage_azure_adls_port": (_PLACE, "Write it into `endpoint` of objectStorage: https://host:port."),
        "cloud_storage_azure_managed_identity_id": (
            "an identity belongs to a machine, not to a cluster",
            "Set AZURE_CLIENT_ID where reconciler runs.",
        ),
        "cloud_storage_credentials_source": (
            (
                "credentials are looked for where the tools of their cloud look: environment, profile, identity of the "
                "machine"
            ),
            f"Remove it; keys may be named by {ACCESS_KEY} and {SECRET_KEY}.",
        ),
        "cloud_storage_reconciliation_interval_ms": (
            (
                "it sets how often brokers agree on who uploads what; on embedded clusters any process may upload any "
                "partition"
            ),
            "Remove it; how often uploads are looked for is `reconciler run --interval`.",
        ),
        "cloud_storage_cache_num_buckets": (
            "it spreads objects by their random prefixes; they have none here, and each partition has a folder",
            "Remove it.",
        ),
    }
)
"""(reason, hint) by property of Redpanda that an embedded cluster rejects."""


def read_manifest_page_bytes(properties: Mapping[str, str]) -> int:
    """Return the page size of a spilled manifest in bytes, from either property name."""
    return int(properties.get(_FORMER_PAGE) or read_property(properties, _PAGE) or 0)


def read_property(properties: Mapping[str, str], name: str) -> str | None:
    """Return the value or default of a property, if any."""
    return properties.get(name, EMBEDDED_PROPERTIES[name].default)
