"""Apache Kafka's topic configs, as its documentation lists them (3.9 to 4.4)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.resources.base import LONG_MAX
from reconciler.resources.configkeys import ConfigKey

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT_MAX: Final = 2**31 - 1
_FOR_EVER: Final = str(LONG_MAX)

_CLEANING: Final = (
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

_RECORDS: Final = (
    ConfigKey(
        "compression.type",
        "enum",
        "producer",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        description="How the log is compressed.",
    ),
    ConfigKey("compression.gzip.level", "integer", "-1", minimum=-1, maximum=9, description="Level of gzip."),
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
        description="How far in the future a record's timestamp may lie.",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        "duration",
        _FOR_EVER,
        minimum=0,
        description="How far in the past a record's timestamp may lie.",
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

_FILES: Final = (
    ConfigKey(
        "file.delete.delay.ms", "duration", "60000", minimum=0, description="How long a removed file still lies there."
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

_TIERED: Final = (
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
    {key.name: key for key in sorted((*_CLEANING, *_RECORDS, *_FILES, *_TIERED), key=lambda key: key.name)}
)
"""Every topic config of Apache Kafka, by name."""

PASSING: Final = frozenset({"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"})
"""What a reassignment sets on a topic while it lasts: nobody means to declare it."""
