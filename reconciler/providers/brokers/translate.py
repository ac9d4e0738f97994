"""Pure conversion of names, topics and access rules between files and brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from reconciler.resources import kafka_configs
from reconciler.resources.acls import OPERATIONS, TOPICS, AccessBinding, NamespaceAcl, TopicAcl, can_be_declared
from reconciler.resources.address import Address, full_name_of, join_name, list_levels, split_name
from reconciler.resources.base import InNamespace, OfNamespace
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences of one platform, except those read from its brokers."""

    platform: str
    tells_own: bool
    """Whether config sources show which values were set. Otherwise set values may be reported as defaults."""
    replication: Literal["reassignment", "config"]
    """How the number of replicas changes; `config` is `replication.factor`."""
    records_at_once: int | None
    """Limit of metadata records per request; `None` means no limit."""
    config_names: Mapping[str, str] = field(default_factory=dict)
    """Brokers' names of topic configs by their name in files, if different."""
    fixed_at_creation: frozenset[str] = frozenset()
    """Configs whose default is copied into each new topic."""
    unreported: frozenset[str] = frozenset()
    """Configs that brokers accept at a topic's creation and never report."""
    has_odd_replicas: bool = False
    """Whether brokers refuse an even number of replicas."""
    ledger_configs: Mapping[str, str | None] = field(default_factory=dict)
    """Configs of the ledger's topic that differ from those on Kafka; `None` for those that users may not set."""

    def to_wire(self, config: str) -> str:
        """Return the brokers' name of a topic config."""
        return self.config_names.get(config, config)

    def map_wire_names(self) -> Mapping[str, str]:
        """Return the files' names by the brokers' names, if different."""
        return {theirs: ours for ours, theirs in self.config_names.items()}


KAFKA: Final = Dialect("kafka", tells_own=True, replication="reassignment", records_at_once=9_000)
"""Apache Kafka, whose controller accepts 10,000 topics, partitions, configs and access rules per request (facts 6.2).
"""


TOPIC: Final = 2
"""Resource type of topics in configs and access rules."""
BROKER: Final = 4
OWN: Final = 1
"""Source of a config set on the topic itself (facts 6.1), which can be declared."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Identity and live brokers of a cluster."""

    id: str
    racks: Mapping[int, str | None]
    operations: frozenset[str]
    """Operations on the cluster allowed to this principal, such as `describe`."""

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the live brokers."""
        return tuple(self.racks)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """Metadata of a topic; `error` is the brokers' error code, or 0."""

    name: str
    id: str
    is_internal: bool
    replicas: tuple[tuple[int, ...], ...]
    error: int = 0
    is_led: bool = True
    leaders: tuple[int, ...] = ()
    """Leader by partition; -1 means none."""
    in_sync: tuple[tuple[int, ...], ...] = ()
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class ConfigState:
    """Value of a config (`None` if sensitive) and its source, such as `OWN`."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int = 0


def select_own_configs(configs: Mapping[str, ConfigState]) -> dict[str, str]:
    """Return the configs set on the topic itself."""
    return {key: config.value for key, config in configs.items() if config.source == OWN and config.value is not None}


# The topic `shop:eu:orders` has the *flat name* `shop.eu.orders` on brokers. A flat name belongs to the longest known
# namespace with a matching prefix, or to the default namespace (facts 2).


_NAMED = frozenset({"topic", "mirror", "mounting"})


@dataclass(frozen=True, slots=True)
class ClusterNaming:
    """Names of one cluster; `prefixes` maps name prefixes to namespaces."""

    separator: str
    prefixes: Mapping[str, str]

    def to_physical(self, full_name: str) -> str:
        """Return the brokers' name of a topic."""
        return full_name.replace(":", self.separator)

    def to_prefix(self, namespace: str) -> str:
        """Return a namespace's name prefix, with the separator."""
        return namespace.replace(":", self.separator) + self.separator if namespace else ""

    def to_full_name(self, physical: str) -> str:
        """Return a topic's full name in files."""
        namespace, rest = self.split_namespace(physical)
        return join_name(namespace, rest) if rest else physical

    def split_namespace(self, name: str) -> tuple[str, str]:
        """Split a name into the longest known namespace and the rest."""
        if self.prefixes:
            at = name.rfind(self.separator)
            while at >= 0:
                namespace = self.prefixes.get(name[: at + 1])
                if namespace is not None:
                    return namespace, name[at + 1 :]
                at = name.rfind(self.separator, 0, at)
        return "", name

    def add(self, other: ClusterNaming) -> ClusterNaming:
        """Return the naming for the namespaces of both."""
        if other.prefixes.items() <= self.prefixes.items():
            return self
        namespaces = sorted({*self.prefixes.values(), *other.prefixes.values()})
        return ClusterNaming(self.separator, {self.to_prefix(namespace): namespace for namespace in namespaces})


def build_naming(separator: str, known: Iterable[Address]) -> ClusterNaming:
    """Return the naming for known addresses."""
    namespaces: set[str] = set()
    for address in known:
        kind, _, rest = address.partition("/")
        if kind == "namespace":
            namespaces.add(full_name_of(address))
        elif kind in _NAMED:
            namespaces.add(split_name(rest.partition("/")[2])[0])
    levels = sorted({level for namespace in namespaces for level in list_levels(namespace)})
    bare = ClusterNaming(separator, {})
    return ClusterNaming(separator, {bare.to_prefix(namespace): namespace for namespace in levels})


def is_internal(topic: TopicMetadata) -> bool:
    """Return whether Kafka or reconciler uses the topic internally."""
    return topic.is_internal or kafka_configs.is_internal(topic.name)


class ResourceModels:
    """Factory of resources, which are copies of a validated model and share equal specs."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._pattern = Topic(metadata=InNamespace(name="t", cluster=cluster), spec=TopicSpec(partitions=1))
        self._specs: dict[object, TopicSpec] = {}

    def build_topic(
        self, full_name: str, seen: TopicMetadata, configs: Mapping[str, str], acls: tuple[TopicAcl, ...] = ()
    ) -> Topic:
        """Return a topic with its own configs only."""
        namespace, name = split_name(full_name)
        replicas = min(map(len, seen.replicas), default=1)
        path = tuple((rule.permission, rule.principal, rule.host, rule.operations) for rule in acls)
        alike = len(seen.replicas), replicas, path, *sorted(configs.items())
        spec = self._specs.get(alike)
        if spec is None:
            shape = {
                "partitions": len(seen.replicas),
                "replication_factor": replicas,
                "configs": dict(sorted(configs.items())),
                "acls": acls,
            }
            spec = self._specs[alike] = self._pattern.spec.model_copy(update=shape)
        metadata = self._pattern.metadata.model_copy(update={"name": name, "namespace": namespace})
        return self._pattern.model_copy(update={"metadata": metadata, "spec": spec})

    def build_namespace(self, name: str, acls: tuple[NamespaceAcl, ...]) -> Namespace:
        """Return a namespace with its access rules; brokers store nothing else of it."""
        return Namespace(
            metadata=OfNamespace(name=name, cluster=self._cluster), spec=NamespaceSpec.model_construct(acls=acls)
        )


Carrier: TypeAlias = tuple[str, str]
"""Kind and full name of a rule's topic or namespace."""
_Rule: TypeAlias = tuple[Any, ...]
"""Permission, principal, host, resource type and name."""


@dataclass(frozen=True, slots=True)
class PlacedRules:
    """Access rules by namespace and topic; `rest` has all others."""

    namespaces: Mapping[str, tuple[NamespaceAcl, ...]]
    topics: Mapping[str, tuple[TopicAcl, ...]]
    undeclarable: Mapping[Carrier, tuple[NamespaceAcl, ...]]
    """Rules that manifests cannot express."""
    rest: tuple[AccessBinding, ...]


def expand_topic_rules(physical: str, rules: Iterable[TopicAcl]) -> Iterator[AccessBinding]:
    """Yield the bindings of a topic's rules."""
    for rule in rules:
        place = TOPICS, physical, False, rule.principal, rule.host
        yield from (AccessBinding(*place, operation, rule.permission) for operation in rule.operations)


def assign_bindings(bindings: Iterable[AccessBinding], naming: ClusterNaming, topics: Collection[str]) -> PlacedRules:
    """Assign bindings to existing topics, or to the longest known namespace with their prefix."""
    known: dict[Carrier, dict[_Rule, set[str]]] = defaultdict(lambda: defaultdict(set))
    others: dict[Carrier, dict[_Rule, set[str]]] = defaultdict(lambda: defaultdict(set))
    rest: list[AccessBinding] = []
    for binding in sorted(bindings):
        is_declarable = can_be_declared(binding)
        carrier, name = _find_carrier(binding, naming, topics)
        if carrier is not None:
            rule = binding.permission, binding.principal, binding.host, binding.resource, name
            (known if is_declarable else others)[carrier][rule].add(binding.operation)
        if carrier is None or not is_declarable:
            rest.append(binding)
    return PlacedRules(
        {name: _build_namespace_rules(operations) for (kind, name), operations in known.items() if kind == "namespace"},
        {name: _build_topic_rules(operations) for (kind, name), operations in known.items() if kind == "topic"},
        {carrier: _build_namespace_rules(operations) for carrier, operations in others.items()},
        tuple(rest),
    )


def _find_carrier(binding: AccessBinding, naming: ClusterNaming, topics: Collection[str]) -> tuple[Carrier | None, str]:
    """Return a binding's topic or namespace (`None` if unknown), and the resource name of its rule."""
    if binding.resource == TOPICS and not binding.is_prefix:
        return (("topic", naming.to_full_name(binding.name)) if binding.name in topics else None), "*"
    namespace, name = naming.split_namespace(binding.name)
    is_inside = namespace and binding.resource in OPERATIONS and (name or binding.is_prefix)
    return (("namespace", namespace) if is_inside else None), name + "*" * binding.is_prefix


def _build_namespace_rules(rules: Mapping[_Rule, Iterable[Any]]) -> tuple[NamespaceAcl, ...]:
    return tuple(
        NamespaceAcl.model_construct(
            permission=permission,
            principal=principal,
            host=host,
            resources=(resource,),
            names=(name,),
            operations=tuple(sorted(operations)),
        )
        for (permission, principal, host, resource, name), operations in sorted(rules.items())
    )


def _build_topic_rules(rules: Mapping[_Rule, Iterable[Any]]) -> tuple[TopicAcl, ...]:
    return tuple(
        TopicAcl.model_construct(
            permission=permission, principal=principal, host=host, operations=tuple(sorted(operations))
        )
        for (permission, principal, host, *_), operations in sorted(rules.items())
    )
