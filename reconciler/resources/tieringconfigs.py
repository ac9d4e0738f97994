"""The words of tiering on an embedded cluster, and which field of a TieringPolicy each of them says."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pydantic.alias_generators import to_camel

from reconciler.resources.configkeys import ConfigKey
from reconciler.resources.kafkaconfigs import KAFKA_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS: Final = (
    ConfigKey(
        "initial.retention.local.target.bytes",
        "size",
        minimum=-1,
        description="Bytes per partition that a moved or recovered replica fetches first.",
    ),
    ConfigKey(
        "initial.retention.local.target.ms",
        "duration",
        minimum=-1,
        description="How far back a moved or recovered replica fetches first.",
    ),
    ConfigKey("remote.delete", "boolean", "true", description="Deleting the topic deletes its remote objects."),
    ConfigKey(
        "remote.log.disable.policy",
        "enum",
        "retain",
        ("retain", "delete"),
        description="KIP-950: what switching tiering off does to remote data.",
    ),
    ConfigKey("remote.read", "boolean", description="Serve reads from the remote tier."),
    ConfigKey("remote.recovery", "boolean", "false", description="Only at creation: from what is in object storage."),
    ConfigKey("remote.write", "boolean", description="Upload closed segments to the remote tier."),
    ConfigKey("retention.local.strict", "boolean", "false", description="Expire local data also when space is free."),
    ConfigKey(
        "retention.local.target.bytes", "size", minimum=-1, description="Bytes per partition kept on local disk."
    ),
    ConfigKey(
        "retention.local.target.ms",
        "duration",
        "86400000",
        minimum=-1,
        description="How long uploaded records stay on local disk.",
    ),
)

TIERING_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})
"""What an embedded cluster knows beyond Kafka's names."""

EMBEDDED_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    dict(sorted({**KAFKA_CONFIGS, **TIERING_CONFIGS}.items()))
)
"""Every topic config of an embedded cluster, by name."""

POLICY_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "remote_write": ("remote.write", "remote.storage.enable", "remote.log.copy.disable"),
        "remote_read": ("remote.read", "remote.storage.enable"),
        "remote_delete": ("remote.delete",),
        "retention.time": ("retention.ms",),
        "retention.bytes": ("retention.bytes",),
        "local_retention.time": ("retention.local.target.ms", "local.retention.ms"),
        "local_retention.bytes": ("retention.local.target.bytes", "local.retention.bytes"),
        "local_retention.strict": ("retention.local.strict",),
        "initial_local_retention.time": ("initial.retention.local.target.ms",),
        "initial_local_retention.bytes": ("initial.retention.local.target.bytes",),
        "on_disable": ("remote.log.disable.policy", "remote.log.delete.on.disable"),
        "segment_bytes": ("segment.bytes",),
    }
)
"""Field of a TieringPolicy's spec → the configs that say the same; the first is the embedded cluster's own word."""


def policy_path(config: str) -> tuple[str, ...] | None:
    """Return the way to the field of a TieringPolicy that stands for a config; `None`: there is none."""
    for field, words in POLICY_KEYS.items():
        if config in words:
            return ("spec", *map(to_camel, field.split(".")))
    return None
