"""Topic configs of Redpanda by version and storage mode, and its internal topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from reconciler.resources.configs import STORAGE_MODE, TIERING_CONFIGS
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, LEDGER, ConfigKey

WIRE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "remote.delete": "redpanda.remote.delete",
        "remote.read": "redpanda.remote.read",
        "remote.recovery": "redpanda.remote.recovery",
        "remote.write": "redpanda.remote.write",
    }
)
"""Redpanda's name by the config's name in files, which embedded clusters share."""

READ_REPLICA: Final = "redpanda.remote.readreplica"

_LIKE_KAFKA: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "flush.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
_LIKE_EMBEDDED: Final = (
    "initial.retention.local.target.bytes",
    "initial.retention.local.target.ms",
    "remote.delete",
    "remote.read",
    "remote.write",
    "retention.local.target.bytes",
    "retention.local.target.ms",
)
_MODES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        **dict.fromkeys((*_LIKE_EMBEDDED, "redpanda.remote.allowgaps"), frozenset({"unset", "tiered"})),
        **dict.fromkeys(("remote.delete", READ_REPLICA), frozenset({"unset", "tiered", "tiered_v2", "cloud"})),
        **dict.fromkeys(
            ("segment.bytes", "segment.ms", "flush.bytes", "flush.ms", "write.caching"),
            frozenset({"unset", "local", "tiered", "tiered_v2"}),
        ),
    }
)
"""Storage modes in which brokers accept a config; all modes if absent (redpanda.md, R5)."""
_OWN: Final = (
    ConfigKey("flush.bytes", "size", minimum=1, description="Bytes without a flush to disk."),
    ConfigKey(
        READ_REPLICA,
        "string",
        description="Bucket with the topic of this name that it shows, read-only.",
        is_unreported=True,
    ),
    replace(TIERING_CONFIGS["remote.recovery"], is_unreported=True),
    ConfigKey("redpanda.remote.allowgaps", "boolean", description="Upload even if records between are missing."),
    ConfigKey("redpanda.leaders.preference", "string", description="Racks that leaders of partitions should be on."),
    ConfigKey(
        "write.caching", "enum", None, ("true", "false"), description="Acknowledge records before they are on disk."
    ),
)
_SINCE_26_1: Final = (
    ConfigKey(
        STORAGE_MODE,
        "enum",
        "unset",
        ("unset", "local", "tiered", "cloud"),
        description="Where records are stored; once set it cannot be removed.",
        is_permanent=True,
    ),
    *(KAFKA_CONFIGS[key] for key in ("max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms")),
)

LONGEST_MS: Final = (2**63 - 1) // 1_000_000
"""Longest duration, because brokers count nanoseconds: they store it instead of a longer one."""
_DURATION: Final[Mapping[str, Any]] = {"maximum": LONGEST_MS}
_ENDLESS: Final = {**_DURATION, "default": str(LONGEST_MS)}
_DIFFERENT: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "delete.retention.ms": {"minimum": -1, "is_untiered": True},
        "max.compaction.lag.ms": _ENDLESS,
        "message.timestamp.after.max.ms": _DURATION,
        "message.timestamp.before.max.ms": _ENDLESS,
        "min.compaction.lag.ms": _DURATION,
    }
)
"""What differs from Kafka's config of the same name. -1 as `delete.retention.ms` keeps tombstones for ever."""

REDPANDA_INTERNAL: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "_redpanda.audit_log",
    "_redpanda.transform_logs",
    "_redpanda_e2e_probe",
    "_schemas",
    LEDGER,
)

PROPERTY_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cleanup.policy": ("log_cleanup_policy",),
        "compression.type": ("log_compression_type",),
        "initial.retention.local.target.bytes": ("initial_retention_local_target_bytes_default",),
        "initial.retention.local.target.ms": ("initial_retention_local_target_ms_default",),
        "max.message.bytes": ("kafka_batch_max_bytes",),
        "message.timestamp.type": ("log_message_timestamp_type",),
        "redpanda.storage.mode": ("default_redpanda_storage_mode",),
        "remote.read": ("cloud_storage_enable_remote_read",),
        "remote.write": ("cloud_storage_enable_remote_write",),
        "retention.bytes": ("retention_bytes",),
        "retention.local.target.bytes": ("retention_local_target_bytes_default",),
        "retention.local.target.ms": ("retention_local_target_ms_default",),
        "retention.ms": ("log_retention_ms", "delete_retention_ms"),
        "segment.bytes": ("log_segment_size",),
        "segment.ms": ("log_segment_ms",),
    }
)
"""Cluster properties that are a topic config's default. The first existing one applies."""


def redpanda_configs(listed: Collection[str], version: tuple[int, int]) -> Mapping[str, ConfigKey]:
    """Return the catalog of a cluster whose brokers report the configs `listed`; `version` is such as (26, 1).

    Unknown configs are strings.
    """
    keys = [
        *(KAFKA_CONFIGS[name] for name in _LIKE_KAFKA if name in KAFKA_CONFIGS),
        *(TIERING_CONFIGS[name] for name in _LIKE_EMBEDDED),
        *_OWN,
        *(key for key in _SINCE_26_1 if version >= (26, 1) or key.name in listed),
    ]
    catalog = {key.name: key for key in keys}
    others = {name: KAFKA_CONFIGS.get(name, ConfigKey(name, "string")) for name in listed if name not in catalog}
    configs = {**catalog, **others}
    return {
        name: replace(
            key, storage_modes=_MODES.get(name), aliases=PROPERTY_OF.get(name, ()), **_DIFFERENT.get(name, {})
        )
        for name, key in sorted(configs.items())
    }


def list_later_configs(version: tuple[int, int]) -> dict[str, str]:
    """Return when Redpanda introduced the configs that a version lacks."""
    since = {**dict.fromkeys((key.name for key in _SINCE_26_1), (26, 1)), f"{STORAGE_MODE}.impl": (26, 2)}
    return {
        name: f"it exists from Redpanda {'.'.join(map(str, first))}" for name, first in since.items() if version < first
    }
