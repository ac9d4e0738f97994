"""Provider of Apache Kafka clusters, and their capabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, RetryableError
from reconciler.planning.fields import CONFIGS, KEEP_DIVERGED, canonicalize_field
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.cluster_facts import BY_JOBS, ClusterFacts
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.brokers.translate import KAFKA as DIALECT
from reconciler.providers.brokers.translate import OWN, ConfigState
from reconciler.resources.acls import OPERATIONS
from reconciler.resources.inventory import AccessControl, Capabilities
from reconciler.resources.kafka_configs import (
    KAFKA_CONFIGS,
    KAFKA_INTERNAL,
    LEDGER,
    ConfigKey,
    ConfigType,
    build_kafka_catalog,
)

if TYPE_CHECKING:
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster


class KafkaProvider(BrokersProvider):
    """Provider of one Apache Kafka cluster."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        super().__init__(declared, edge, KafkaClient.for_cluster(declared, edge, DIALECT))

    def _read_capabilities(self) -> Capabilities:
        from reconciler.providers.brokers.security import find_principal

        return read_capabilities(self._look, self._list_declared_topics(), find_principal(self._declared))


_SYSTEM_SWITCH: Final = "remote.log.storage.system.enable"
_TIERING: Final = "remote.storage.enable"
_COPY_SWITCH: Final = "remote.log.copy.disable"
_OPEN: Final = "allow.everyone.if.no.acl.found"
_GONE_IN_FOUR: Final = "message.timestamp.difference.max.ms"
_PROBE_TOPIC: Final = "reconciler-defaults"
"""Topic that the controller validates but never creates."""
_OFFSETS: Final = "__consumer_offsets"
"""Topic that exists nearly everywhere and has the brokers' retention."""
_SAMPLE: Final = 20
"""Maximum topics to search for one with the brokers' defaults."""
_RETENTION_SOURCES: Final[Mapping[str, Mapping[str, int | None]]] = {
    "retention.ms": {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "retention.bytes": {"log.retention.bytes": None},
    "cleanup.policy": {"log.cleanup.policy": None},
}
"""Retention configs of topics, each with the broker properties of its default and their unit in ms."""
_TYPES: Final[Mapping[int, ConfigType]] = {
    1: "boolean",
    3: "integer",
    4: "integer",
    5: "integer",
    6: "double",
    7: "list",
}

KAFKA: Final = Capabilities(
    platform="kafka",
    namespaces_are_rules=True,
    untiering=False,
    tiering_words="kip-405",
    mountings=True,
    mountings_by_jobs=True,
    copy_move=True,
    mirrors=replace(
        BY_JOBS,
        roles=BY_JOBS.roles | {"reversed"},
        features=BY_JOBS.features | {KEEP_DIVERGED, "bidirectional-mode", "mode-change"},
    ),
    acls=True,
    access=AccessControl(hosts_are_addresses=True, denies_are_final=True, operations=OPERATIONS),
    quotas=True,
    keeps_quotas=False,
    cluster_properties=True,
    replication_moves=True,
    internal_topics=KAFKA_INTERNAL,
    max_partitions=9_999,
    batch=10_000,
)
"""Capabilities of every version. The brokers report all others."""


def read_capabilities(look: ClusterFacts, known: Sequence[str] = (), principal: str | None = None) -> Capabilities:
    """Return a cluster's capabilities. `known` are topics that probably exist.

    The capability `may_hide` is false, because declared and recorded topics are read by name.
    """
    # Without the right to describe configs, `broker` is empty.
    broker = {} if isinstance(look.configs, NotAuthorizedError) else look.configs[0]
    topic = _read_topic_defaults(look, known)
    configs = dict(build_kafka_catalog(topic, "3.9" if _GONE_IN_FOUR in topic else "4.0"))
    # An unknown default stays unknown, because brokers may retain less than Kafka's default.
    configs |= {
        key: replace(configs[key], default=None) for key in _RETENTION_SOURCES if key in configs and topic[key] is None
    }
    missing = _explain_missing_tiering(broker, topic)
    shared = look.add_to(KAFKA, principal, is_open=_is_open(broker))
    return replace(
        shared,
        tiering="tiering" not in missing,
        untiering="untiering" not in missing,
        lacks={**shared.lacks, **missing},
        configs=configs,
        defaults={
            key: str(canonicalize_field(CONFIGS + key, value, configs))
            for key, value in topic.items()
            if value is not None
        },
        properties={
            name: _build_property(name, entry)
            for name, entry in broker.items()
            if not entry.is_read_only and not entry.is_sensitive
        },
    )


def _explain_missing_tiering(broker: Mapping[str, ConfigState], topic: Mapping[str, str | None]) -> dict[str, str]:
    """Return why tiered storage is unavailable. Switches that brokers hide count as on."""
    if _TIERING not in topic:
        return dict.fromkeys(("tiering", "untiering"), f"this version does not know {_TIERING}")
    if broker and ((switch := broker.get(_SYSTEM_SWITCH)) is None or switch.value != "true"):
        return dict.fromkeys(("tiering", "untiering"), f"{_SYSTEM_SWITCH} is not true at the brokers")
    if _COPY_SWITCH not in topic:
        return {"untiering": f"this version does not know {_COPY_SWITCH}, which is there from 3.9 on"}
    return {}


def _is_open(broker: Mapping[str, ConfigState]) -> bool:
    """Return whether principals without ACLs are allowed. A property with a hidden value counts as true."""
    setting = broker.get(_OPEN)
    return setting is not None and setting.value != "false"


def _read_topic_defaults(look: ClusterFacts, known: Sequence[str]) -> dict[str, str | None]:
    """Return the default of each topic config; `None` means unknown.

    The controller reports all defaults except retention, which brokers report for existing topics.
    """
    client = look.client
    by_brokers = _read_common_defaults(look, [_OFFSETS, LEDGER, *known[:_SAMPLE]])
    if not by_brokers:
        shown = [name for name, topic in client.read_topics().items() if not topic.error]
        by_brokers = _read_common_defaults(look, shown[:_SAMPLE]) if shown else {}
    is_complete = by_brokers and all(
        value is not None or key in _RETENTION_SOURCES for key, value in by_brokers.items()
    )
    by_controller = {} if is_complete else _read_controller_defaults(client)
    defaults = {
        key: value if value is not None or key in _RETENTION_SOURCES else by_controller.get(key)
        for key, value in by_brokers.items()
    }
    return defaults or dict(by_controller) or dict.fromkeys(KAFKA_CONFIGS)


def _read_common_defaults(look: ClusterFacts, names: Sequence[str]) -> dict[str, str | None]:
    """Return the default configs. A retention default is `None` unless all brokers agree."""
    answers: list[dict[str, str | None]] = []
    is_known = True
    for broker in look.cluster.brokers:
        try:
            answers.append(_read_broker_defaults(look, broker, names))
        except RetryableError:
            is_known = False  # A broker that died or hangs may have other defaults.
    if not any(answers):
        return {}
    differing = {key for key in _RETENTION_SOURCES if not is_known or len({answer.get(key) for answer in answers}) > 1}
    return {**next(filter(None, answers)), **dict.fromkeys(differing)}


def _read_broker_defaults(look: ClusterFacts, broker: int, names: Sequence[str]) -> dict[str, str | None]:
    """Return a broker's default topic configs; empty if no topic may be described."""
    defaults: dict[str, str | None] = {}
    for _, configs in look.client.read_configs(names, node=broker):
        if not isinstance(configs, int):
            for key, config in configs.items():
                if defaults.get(key) is None:
                    defaults[key] = config.value if config.source != OWN else None
    if defaults and any(defaults.get(key) is None for key in _RETENTION_SOURCES):
        defaults.update(_read_retention_defaults(look, broker))
    return defaults


def _read_retention_defaults(look: ClusterFacts, broker: int) -> dict[str, str]:
    try:
        properties = look.read_broker_configs(broker)
    except NotAuthorizedError:
        return {}
    retention = {}
    for key, names in _RETENTION_SOURCES.items():
        for name, unit_ms in names.items():
            value = properties[name].value if name in properties else None
            if value is not None:
                retention[key] = value if unit_ms is None else str(max(-1, int(value) * unit_ms))
                break
    return retention


def _read_controller_defaults(client: KafkaClient) -> Mapping[str, str | None]:
    from kafka.protocol.admin import CreateTopicsRequest

    topic = CreateTopicsRequest.CreatableTopic(
        name=_PROBE_TOPIC, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True, min_version=5)
    (answer,) = client.send(request, doing="asking for the defaults of topics").topics
    return {} if answer.error_code else {config.name: config.value for config in answer.configs or ()}


def _build_property(name: str, seen: ConfigState) -> ConfigKey:
    kind: Any = _TYPES.get(seen.type, "string")
    if kind == "integer":
        kind = "duration" if name.endswith(".ms") else "size" if name.endswith(".bytes") else "integer"
    low = high = None
    if name in _THREADS and (seen.value or "").isdecimal():
        now = int(seen.value or 0)
        low, high = max(1, now // 2), 2 * now
    return ConfigKey(name, kind, minimum=low, maximum=high, description="A property that brokers take while they run.")


_THREADS: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""Thread pools, which a running broker at most doubles or halves."""
