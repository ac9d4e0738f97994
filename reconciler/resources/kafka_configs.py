"""Topic configs of Apache Kafka by version, and its internal topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from reconciler.resources.base import LONG_MAX
from reconciler.runtime.dataclass import dataclass, replace

ConfigType = Literal["duration", "size", "integer", "double", "boolean", "list", "enum", "string", "reference"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config's type, stored default, and range or values. For numbers, `values` are legal outside the range."""

    name: str
    type: ConfigType
    default: str | None = None
    values: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    description: str = ""
    storage_modes: frozenset[str] | None = None
    """Storage modes of topics that may set it; `None` means all."""
    is_permanent: bool = False
    """Whether the config, once set, can be changed and not removed."""
    is_unreported: bool = False
    """Whether brokers accept it only at a topic's creation and never report it."""
    aliases: tuple[str, ...] = ()
    """Other names for which hints suggest this one."""
    is_untiered: bool = False
    """Whether brokers refuse it on topics in tiered storage."""


# Topic configs as documented by Apache Kafka 3.9 to 4.4.


_INT_MAX: Final = 2**31 - 1
_FOR_EVER: Final = str(LONG_MAX)

_RETENTION_KEYS: Final = (
    ConfigKey("cleanup.policy", "list", "delete", ("compact", "delete"), description="What happens to old records."),
    ConfigKey(
        "delete.retention.ms", "duration", "86400000", minimum=0, description="How long tombstones of compaction stay."
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        "duration",
        _FOR_EVER,
        minimum=1,
        description="Longest time a record may stay uncompacted.",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        "double",
        "0.5",
        minimum=0,
        maximum=1,
        description="Share of uncompacted bytes at which compaction starts.",
    ),
    ConfigKey(
        "min.compaction.lag.ms", "duration", "0", minimum=0, description="Shortest time a record stays uncompacted."
    ),
    ConfigKey(
        "retention.bytes", "size", "-1", minimum=-1, description="Bytes per partition kept in total; -1 is unlimited."
    ),
    ConfigKey(
        "retention.ms", "duration", "604800000", minimum=-1, description="How long records are kept; -1 is for ever."
    ),
)

_RECORD_KEYS: Final = (
    ConfigKey(
        "compression.type",
        "enum",
        "producer",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        description="How the log is compressed.",
    ),
    ConfigKey("compression.gzip.level", "integer", "-1", ("-1",), minimum=1, maximum=9, description="Level of gzip."),
    ConfigKey("compression.lz4.level", "integer", "9", minimum=1, maximum=17, description="Level of lz4."),
    ConfigKey("compression.zstd.level", "integer", "3", minimum=-131072, maximum=22, description="Level of zstd."),
    ConfigKey(
        "max.message.bytes", "size", "1048588", minimum=0, maximum=_INT_MAX, description="Largest batch accepted."
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        "duration",
        "3600000",
        minimum=0,
        description="How far in the future a record's timestamp may be.",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        "duration",
        _FOR_EVER,
        minimum=0,
        description="How far in the past a record's timestamp may be.",
    ),
    ConfigKey(
        "message.timestamp.difference.max.ms",
        "duration",
        _FOR_EVER,
        minimum=0,
        description="How far off a record's timestamp may be; gone in Kafka 4.0.",
    ),
    ConfigKey(
        "message.timestamp.type",
        "enum",
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        description="Whose clock a record's timestamp comes from.",
    ),
    ConfigKey(
        "min.insync.replicas",
        "integer",
        "1",
        minimum=1,
        maximum=_INT_MAX,
        description="Replicas that must have a record before acks=all.",
    ),
)

_FILE_KEYS: Final = (
    ConfigKey(
        "file.delete.delay.ms", "duration", "60000", minimum=0, description="How long a removed file is still stored."
    ),
    ConfigKey("flush.messages", "integer", _FOR_EVER, minimum=1, description="Records between two flushes to disk."),
    ConfigKey("flush.ms", "duration", _FOR_EVER, minimum=0, description="Time between two flushes to disk."),
    ConfigKey(
        "follower.replication.throttled.replicas", "list", "", description="Replicas that follow at a limited rate."
    ),
    ConfigKey(
        "index.interval.bytes", "size", "4096", minimum=0, maximum=_INT_MAX, description="Bytes between index entries."
    ),
    ConfigKey(
        "leader.replication.throttled.replicas", "list", "", description="Replicas that are fed at a limited rate."
    ),
    ConfigKey("preallocate", "boolean", "false", description="Reserve a segment's file before it is written."),
    ConfigKey(
        "segment.bytes",
        "size",
        "1073741824",
        minimum=14,
        maximum=_INT_MAX,
        description="Size at which a segment closes.",
    ),
    ConfigKey(
        "segment.index.bytes", "size", "10485760", minimum=4, maximum=_INT_MAX, description="Size of a segment's index."
    ),
    ConfigKey("segment.jitter.ms", "duration", "0", minimum=0, description="Random part taken off segment.ms."),
    ConfigKey("segment.ms", "duration", "604800000", minimum=1, description="Age at which a segment closes."),
    ConfigKey(
        "unclean.leader.election.enable",
        "boolean",
        "false",
        description="Let a replica that lags lead, losing records.",
    ),
)

_TIERING_KEYS: Final = (
    ConfigKey(
        "local.retention.bytes",
        "size",
        "-2",
        minimum=-2,
        description="Bytes per partition kept on local disk; -2 follows retention.bytes.",
    ),
    ConfigKey(
        "local.retention.ms",
        "duration",
        "-2",
        minimum=-2,
        description="How long records stay on local disk; -2 follows retention.ms.",
    ),
    ConfigKey(
        "remote.copy.lag.bytes",
        "size",
        "0",
        minimum=-1,
        description="KIP-1241: bytes kept back from the remote tier; -1 derives it.",
    ),
    ConfigKey(
        "remote.copy.lag.ms",
        "duration",
        "0",
        minimum=-1,
        description="KIP-1241: time records are kept back from the remote tier; -1 derives it.",
    ),
    ConfigKey("remote.log.copy.disable", "boolean", "false", description="KIP-950: stop copying to the remote tier."),
    ConfigKey(
        "remote.log.delete.on.disable",
        "boolean",
        "false",
        description="KIP-950: delete remote data when tiering is switched off.",
    ),
    ConfigKey("remote.storage.enable", "boolean", "false", description="KIP-405: tiered storage for this topic."),
)

KAFKA_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in sorted((*_RETENTION_KEYS, *_RECORD_KEYS, *_FILE_KEYS, *_TIERING_KEYS), key=lambda key: key.name)
    }
)

TRANSIENT_CONFIGS: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""Configs that a reassignment sets temporarily, so no file declares them."""


_FOUR: Final = (4, 0)
_SINCE_FOUR: Final[Mapping[str, Mapping[str, Any]]] = {"segment.bytes": {"minimum": 1024 * 1024}}
_BEFORE_FOUR: Final[Mapping[str, Mapping[str, Any]]] = {"message.timestamp.after.max.ms": {"default": str(2**63 - 1)}}


def build_kafka_catalog(listed: Iterable[str], version: str) -> Mapping[str, ConfigKey]:
    """Return the catalog of a cluster whose brokers report the configs `listed`. Unknown configs are strings."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    changed = _SINCE_FOUR if numbers >= _FOUR else _BEFORE_FOUR
    return {name: _adapt_key(name, changed) for name in sorted(listed)}


def _adapt_key(name: str, changed: Mapping[str, Mapping[str, Any]]) -> ConfigKey:
    known = KAFKA_CONFIGS.get(name)
    if known is None:
        return ConfigKey(name, "string")
    return replace(known, **changed[name]) if name in changed else known


LEDGER: Final = "__reconciler"
"""Topic on the destination that stores states and offset maps of mirrors."""

KAFKA_INTERNAL: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__remote_log_metadata",
    LEDGER,
)
INTERNAL: Final = "topics of this name are Kafka's own and never managed"


def is_internal(name: str, internal: tuple[str, ...] = KAFKA_INTERNAL) -> bool:
    """Return whether the platform reserves a topic name."""
    return name in internal
