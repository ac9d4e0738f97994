"""What one cluster can do, as its brokers say it: asked once, in three requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.planning.fields import LINK_FEATURES
from reconciler.providers.kafka.permitting import OPERATIONS
from reconciler.resources.capabilities import Capabilities
from reconciler.resources.configs import KAFKA_CONFIGS, ConfigKey, canonical_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.client import ClusterSeen, ConfigSeen, KafkaClient
    from reconciler.resources.configs import ConfigType

_SYSTEM_SWITCH: Final = "remote.log.storage.system.enable"
_TIERING: Final = "remote.storage.enable"
_COPY_SWITCH: Final = "remote.log.copy.disable"
_UNTRIED: Final = "reconciler-defaults"
"""Name of a topic that is never made: the broker is asked what it would be."""
_TYPES: Final[Mapping[int, ConfigType]] = {
    1: "boolean",
    3: "integer",
    4: "integer",
    5: "integer",
    6: "double",
    7: "list",
}
"""Of a description (6.1); all else is text."""

KAFKA: Final = Capabilities(
    platform="kafka",
    untiering=False,
    tiering_words="kip-405",
    mountings=True,
    mountings_by_jobs=True,
    copy_move=True,
    links=True,
    mirror_states=frozenset({"mirroring", "paused", "promoted", "failed-over"}),
    link_features=frozenset(LINK_FEATURES.values()),
    mirrors_read_only=False,
    acls=True,
    acl_hosts_are_addresses=True,
    denies_are_final=True,
    acl_operations=OPERATIONS,
    quotas=True,
    keeps_quotas=False,
    cluster_properties=True,
    max_partitions=9_999,
    batch=10_000,
)
"""What every version can; the rest is asked of the brokers."""


def capabilities_of(client: KafkaClient, seen: ClusterSeen, acl_code: int) -> Capabilities:
    """Return the limits of a cluster; `acl_code` is what reading its access rules ended with."""
    broker = client.broker_configs(seen.brokers[0])
    topic = _topic_configs(client)
    lacks: dict[str, str] = {}
    has_tiering = (found := broker.get(_SYSTEM_SWITCH)) is not None and found.value == "true" and _TIERING in topic
    if not has_tiering:
        known = f"{_SYSTEM_SWITCH} is not true" if _TIERING in topic else "this version does not know it"
        lacks["tiering"] = known
        lacks["untiering"] = known
    elif _COPY_SWITCH not in topic:
        lacks["untiering"] = f"this version does not know {_COPY_SWITCH}, which is there from 3.9 on"
    if acl_code:
        lacks["acls"] = (
            "no authorizer is configured"
            if acl_code == _SECURITY_DISABLED
            else "whoever acts may not see its access rules: they need DESCRIBE on the cluster"
        )
    configs = {name: _topic_key(name) for name in topic}
    return replace(
        KAFKA,
        tiering=has_tiering,
        untiering="untiering" not in lacks,
        acls=not acl_code,
        max_replication_factor=len(seen.brokers),
        lacks=lacks,
        configs=configs,
        defaults={key: canonical_value(key, value, configs) for key, value in topic.items() if value is not None},
        properties={
            name: _property(name, each)
            for name, each in broker.items()
            if not each.is_read_only and not each.is_sensitive
        },
    )


_SECURITY_DISABLED: Final = 54


def _topic_configs(client: KafkaClient) -> dict[str, str | None]:
    """Return every topic config this version knows, and what a topic that sets none of them has here."""
    from kafka.protocol.admin import CreateTopicsRequest

    asked = CreateTopicsRequest.CreatableTopic(
        name=_UNTRIED, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=10_000, validate_only=True, min_version=5)
    (answer,) = client.send(request, doing="asking for the defaults of topics").topics
    if not answer.error_code and answer.configs:
        return {each.name: each.value for each in answer.configs}
    return _seen_on_topics(client)


def _seen_on_topics(client: KafkaClient) -> dict[str, str | None]:
    """Return the same as far as a topic that is there shows it: where whoever acts may make none."""
    found: dict[str, str | None] = {}
    names = [name for name, topic in client.topics().items() if not topic.error][:3]
    for _, configs in client.configs(names):
        if isinstance(configs, dict):
            for key, each in configs.items():
                if each.source != 1 or key not in found:
                    found[key] = each.value if each.source != 1 else None
    return found or dict.fromkeys(KAFKA_CONFIGS)


def _topic_key(name: str) -> ConfigKey:
    return KAFKA_CONFIGS.get(name) or ConfigKey(name, "string", description="A config of this version of the brokers.")


def _property(name: str, seen: ConfigSeen) -> ConfigKey:
    kind: Any = _TYPES.get(seen.type, "string")
    if kind == "integer":
        kind = "duration" if name.endswith(".ms") else "size" if name.endswith(".bytes") else "integer"
    return ConfigKey(name, kind, minimum=None, description="A property that brokers take while they run.")
