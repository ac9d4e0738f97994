"""What a Kafka cluster can do, asked once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from reconciler.errors import NotAuthorizedError, RetryableError
from reconciler.planning.fields import CONFIGS, LINK_FEATURES, canonical_field
from reconciler.providers.kafka.client import KafkaClient, read_bindings
from reconciler.providers.kafka.faults import SECURITY_DISABLED
from reconciler.providers.kafka.translate import OWN, ClusterSeen, ConfigSeen
from reconciler.resources.acls import OPERATIONS, Binding, is_about_writing
from reconciler.resources.inventory import AccessControl, Capabilities, MirrorSupport
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, KAFKA_INTERNAL, ConfigKey, ConfigType, kafka_configs

# What a plan asks of a cluster as a whole, each once: who answers, its access rules, what its brokers are set to.


@dataclass(frozen=True)
class ClusterLook:
    """One look. What was asked is kept as long as the look lasts: identifying, limits and observing share it."""

    client: KafkaClient

    @cached_property
    def cluster(self) -> ClusterSeen:
        """Who answers, and which brokers are alive."""
        return self.client.cluster()

    @cached_property
    def bindings(self) -> tuple[list[Binding], int]:
        """Every access rule, or the code of why they cannot be read."""
        return read_bindings(self.client)

    @cached_property
    def configs(self) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]] | NotAuthorizedError:
        """What one broker says of itself, and what was set for all while they ran; why it may not be seen."""
        first, *others = self.cluster.brokers
        try:
            return self._configs_of(first, others)
        except NotAuthorizedError as error:
            return error

    def overrides(self, keys: AbstractSet[str]) -> Iterator[tuple[str, int, str]]:
        """Yield what of `keys` each broker sets for itself alone: one request for each but the one asked before."""
        if not keys or isinstance(self.configs, NotAuthorizedError):
            return
        first = self.configs[0]
        number = first["node.id"].value if "node.id" in first else None
        for broker in self.cluster.brokers:
            with suppress(RetryableError):  # a broker that died since serves nothing
                own = first if str(broker) == number else self.client.own_broker_configs(broker)
                for key in sorted(keys & own.keys()):
                    value = own[key].value
                    if own[key].source == _DYNAMIC_BROKER and value is not None:
                        yield key, broker, value

    def _configs_of(
        self, broker: int, others: Sequence[int]
    ) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]]:
        """Ask one broker; where that has just died, and is not missed yet, another one. The last is waited for."""
        try:
            return self.client.both_broker_configs(broker, is_only_once=bool(others))
        except RetryableError:
            if not others:
                raise
            return self._configs_of(others[0], others[1:])


_DYNAMIC_BROKER: Final = 2
"""Source of a property that one broker was given while it ran."""
_SYSTEM_SWITCH: Final = "remote.log.storage.system.enable"
_TIERING: Final = "remote.storage.enable"
_COPY_SWITCH: Final = "remote.log.copy.disable"
_OPEN: Final = "allow.everyone.if.no.acl.found"
_GONE_IN_FOUR: Final = "message.timestamp.difference.max.ms"
_UNTRIED: Final = "reconciler-defaults"
"""Name of a topic that is never made: the controller is asked what it would be."""
_OFFSETS: Final = "__consumer_offsets"
"""A topic that nearly every cluster has, and that leaves how long records are kept to the brokers."""
_SAMPLE: Final = 20
"""How many topics brokers are asked about, to find one that does not set a config itself."""
_KEPT_BY: Final[Mapping[str, Mapping[str, int | None]]] = {
    "retention.ms": {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
    "retention.bytes": {"log.retention.bytes": None},
    "cleanup.policy": {"log.cleanup.policy": None},
}
"""Topic configs by which records go, and the broker properties they come from, the first that is set, with its unit."""
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
    namespaces_are_rules=True,
    untiering=False,
    tiering_words="kip-405",
    mountings=True,
    mountings_by_jobs=True,
    copy_move=True,
    mirrors=MirrorSupport(
        by_jobs=True,
        roles=frozenset({"mirroring", "paused", "promoted", "failed-over", "reversed"}),
        features=frozenset({*LINK_FEATURES.values(), "bidirectional-mode", "mode-change"}),
        read_only=False,
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
"""What every version can; the rest is asked of the brokers."""


def capabilities_of(look: ClusterLook, known: Sequence[str] = (), principal: str | None = None) -> Capabilities:
    """Return the limits of a cluster; `known`: topics that are likely there; `principal`: see `AccessControl`.

    `may_hide` stays off: what is declared or recorded is asked for by its name, and then brokers tell what is hidden.
    """
    seen, (bindings, acl_code) = look.cluster, look.bindings
    # Nothing where whoever acts may not see what a broker says of itself.
    broker = {} if isinstance(look.configs, NotAuthorizedError) else look.configs[0]
    topic = _topic_configs(look, known)
    configs = dict(kafka_configs(topic, "3.9" if _GONE_IN_FOUR in topic else "4.0"))
    # What the brokers do not say is not Kafka's own default: they may be set to keep less.
    configs |= {key: replace(configs[key], default=None) for key in _KEPT_BY if key in configs and topic[key] is None}
    lacks = {"max_replication_factor": _alive(len(seen.brokers)), **_lacks_of_tiering(broker, topic)}
    if acl_code:
        lacks["acls"] = (
            "no authorizer is configured"
            if acl_code == SECURITY_DISABLED
            else "the principal of reconciler may not see its access rules: it needs DESCRIBE on the cluster"
        )
    return replace(
        KAFKA,
        tiering="tiering" not in lacks,
        untiering="untiering" not in lacks,
        acls=not acl_code,
        access=replace(
            KAFKA.access,
            write_rules=frozenset(each for each in bindings if is_about_writing(each)),
            principal=principal,
            is_open=acl_code == SECURITY_DISABLED or _is_open(broker),
        ),
        max_replication_factor=len(seen.brokers),
        lacks=lacks,
        configs=configs,
        defaults={
            key: str(canonical_field(CONFIGS + key, value, configs))
            for key, value in topic.items()
            if value is not None
        },
        properties={
            name: _property(name, each)
            for name, each in broker.items()
            if not each.is_read_only and not each.is_sensitive
        },
    )


def _lacks_of_tiering(broker: Mapping[str, ConfigSeen], topic: Mapping[str, str | None]) -> dict[str, str]:
    """Return why topics cannot be tiered, or not be untiered; of a switch that may not be seen the brokers judge."""
    if _TIERING not in topic:
        return dict.fromkeys(("tiering", "untiering"), f"this version does not know {_TIERING}")
    if broker and ((found := broker.get(_SYSTEM_SWITCH)) is None or found.value != "true"):
        return dict.fromkeys(("tiering", "untiering"), f"{_SYSTEM_SWITCH} is not true at the brokers")
    if _COPY_SWITCH not in topic:
        return {"untiering": f"this version does not know {_COPY_SWITCH}, which is there from 3.9 on"}
    return {}


def _is_open(broker: Mapping[str, ConfigSeen]) -> bool:
    """Tell whether everyone may do what no rule is about.

    The authorizer's own settings are no configs of the broker: it lists them and hides their values, and nobody writes
    this one to say that it is off.
    """
    found = broker.get(_OPEN)
    return found is not None and found.value != "false"


def _alive(brokers: int) -> str:
    return "one broker is alive" if brokers == 1 else f"{brokers} brokers are alive"


def _topic_configs(look: ClusterLook, known: Sequence[str]) -> dict[str, str | None]:
    """Return every topic config this version knows, and what a topic that does not set it has here; `None`: not known.

    A controller says it of a topic that is to be, but by its own properties. How long records are kept the brokers
    decide by theirs, and say it of topics that are there: those that are `known`, else some that show.
    """
    client = look.client
    said = _said_by_brokers(look, [_OFFSETS, *known[:_SAMPLE]])
    if not said:
        shown = [name for name, topic in client.topics().items() if not topic.error]
        said = _said_by_brokers(look, shown[:_SAMPLE]) if shown else {}
    by_controller = _said_by_controller(client)
    found = {
        key: value if value is not None or key in _KEPT_BY else by_controller.get(key) for key, value in said.items()
    }
    return found or dict(by_controller) or dict.fromkeys(KAFKA_CONFIGS)


def _said_by_brokers(look: ClusterLook, names: Sequence[str]) -> dict[str, str | None]:
    """Return what topics have by the brokers' defaults; how long records are kept is known where all brokers agree."""
    found: list[dict[str, str | None]] = []
    is_known = True
    for broker in look.cluster.brokers:
        try:
            found.append(_said_by(look.client, broker, names))
        except RetryableError:
            is_known = False  # It has just died, or hangs.
    if not any(found):
        return {}
    differing = {key for key in _KEPT_BY if not is_known or len({each.get(key) for each in found}) > 1}
    return {**next(filter(None, found)), **dict.fromkeys(differing)}


def _said_by(client: KafkaClient, broker: int, names: Sequence[str]) -> dict[str, str | None]:
    """Return what topics have by the defaults of one broker; nothing where none of these topics may be described."""
    found: dict[str, str | None] = {}
    for _, configs in client.configs(names, node=broker):
        if not isinstance(configs, int):
            for key, each in configs.items():
                if found.get(key) is None:
                    found[key] = each.value if each.source != OWN else None
    if found and any(found.get(key) is None for key in _KEPT_BY):
        found.update(_kept_by(client, broker))
    return found


def _kept_by(client: KafkaClient, broker: int) -> dict[str, str]:
    """Return how long a broker keeps records where a topic does not say it; nothing where that may not be seen."""
    try:
        said, _ = client.both_broker_configs(broker)
    except NotAuthorizedError:
        return {}
    found = {}
    for key, names in _KEPT_BY.items():
        for name, unit_ms in names.items():
            value = said[name].value if name in said else None
            if value is not None:
                found[key] = value if unit_ms is None else str(max(-1, int(value) * unit_ms))
                break
    return found


def _said_by_controller(client: KafkaClient) -> Mapping[str, str | None]:
    """Return what a new topic would have; nothing where whoever acts may make none."""
    from kafka.protocol.admin import CreateTopicsRequest

    asked = CreateTopicsRequest.CreatableTopic(
        name=_UNTRIED, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=10_000, validate_only=True, min_version=5)
    (answer,) = client.send(request, doing="asking for the defaults of topics").topics
    return {} if answer.error_code else {each.name: each.value for each in answer.configs or ()}


def _property(name: str, seen: ConfigSeen) -> ConfigKey:
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
"""Pools that a running broker makes at most twice as large as they are, and at least half as large."""
