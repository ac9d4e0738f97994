"""Names, topics and access rules: our words and the broker's, and what brokers answer as plain values. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from reconciler.resources import kafka_configs
from reconciler.resources.acls import OPERATIONS, TOPICS, Binding, NamespaceAcl, TopicAcl, can_be_declared
from reconciler.resources.address import Address, full_name_of, join_name, kind_of, split_name, tiers_of
from reconciler.resources.base import InNamespace, OfNamespace
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.topic import Topic, TopicSpec

TOPIC: Final = 2
"""Resource type of configs, as of access rules."""
BROKER: Final = 4
OWN: Final = 1
"""Source of a config that a topic sets itself (6.1): only those are declared on it."""


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """What a cluster says of itself."""

    id: str
    racks: Mapping[int, str | None]
    """The brokers that are alive, and where each stands."""
    operations: frozenset[str]
    """The operations on the cluster that the principal is allowed, by their Kafka names, such as `DESCRIBE`."""

    @property
    def brokers(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(self.racks)


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as the metadata have it; `error` is the broker's code where it tells no more."""

    name: str
    id: str
    is_internal: bool
    replicas: tuple[tuple[int, ...], ...]
    """The brokers of each partition, by number."""
    error: int = 0
    is_led: bool = True
    """Whether every partition has a leader."""
    leaders: tuple[int, ...] = ()
    """The broker that leads each partition; -1: none does."""
    in_sync: tuple[tuple[int, ...], ...] = ()
    """The brokers of each partition whose replicas are in sync."""
    is_moving: bool = False
    """Whether a reassignment of its replicas is in progress."""


@dataclass(frozen=True, slots=True)
class ConfigSeen:
    """One entry of a description of configs; what is sensitive has no value."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int = 0


def own_values(configs: Mapping[str, ConfigSeen]) -> dict[str, str]:
    """Return what a topic sets itself."""
    return {key: each.value for key, each in configs.items() if each.source == OWN and each.value is not None}


# Our names and the flat ones of a broker. Pure.
#
# `shop:eu:orders` is `shop.eu.orders` there. The flat name is the identity: read back, it belongs to the longest known
# namespace whose prefix it carries, else to the default one (facts, 2).


_NAMED = frozenset({"topic", "mirror", "mounting"})


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one cluster. `prefixes`: what names of a namespace begin with → the namespace."""

    separator: str
    prefixes: Mapping[str, str]

    def physical(self, full_name: str) -> str:
        """Return what the broker calls a topic."""
        return full_name.replace(":", self.separator)

    def prefix(self, namespace: str) -> str:
        """Return what every name of a namespace begins with; it ends with the separator."""
        return namespace.replace(":", self.separator) + self.separator if namespace else ""

    def full_name(self, physical: str) -> str:
        """Return our name of a topic of the broker."""
        namespace, rest = self.placed(physical)
        return join_name(namespace, rest) if rest else physical

    def placed(self, name: str) -> tuple[str, str]:
        """Return the longest known namespace whose prefix a name carries, and what follows it."""
        if self.prefixes:
            at = name.rfind(self.separator)
            while at >= 0:
                namespace = self.prefixes.get(name[: at + 1])
                if namespace is not None:
                    return namespace, name[at + 1 :]
                at = name.rfind(self.separator, 0, at)
        return "", name


def naming_of(separator: str, known: Iterable[Address]) -> Naming:
    """Return the names of a cluster of which these addresses are declared or recorded."""
    namespaces: set[str] = set()
    for address in known:
        if kind_of(address) == "namespace":
            namespaces.update(tiers_of(full_name_of(address)))
        elif kind_of(address) in _NAMED:
            namespaces.update(tiers_of(split_name(full_name_of(address))[0]))
    bare = Naming(separator, {})
    return Naming(separator, {bare.prefix(namespace): namespace for namespace in sorted(namespaces)})


def is_internal(topic: TopicSeen) -> bool:
    """Tell whether a topic is Kafka's own or ours."""
    return topic.is_internal or kafka_configs.is_internal(topic.name)


class Models:
    """Resources of one cluster: copies of one checked model, and one spec for all topics that are alike."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._pattern = Topic(metadata=InNamespace(name="t", cluster=cluster), spec=TopicSpec(partitions=1))
        self._specs: dict[object, TopicSpec] = {}

    def topic(
        self, full_name: str, seen: TopicSeen, configs: Mapping[str, str], acls: tuple[TopicAcl, ...] = ()
    ) -> Topic:
        """Return a topic as the broker has it, with the configs it sets itself."""
        namespace, name = split_name(full_name)
        replicas = min(map(len, seen.replicas), default=1)
        path = tuple((each.permission, each.principal, each.host, each.operations) for each in acls)
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

    def namespace(self, name: str, acls: tuple[NamespaceAcl, ...]) -> Namespace:
        """Return a namespace, of which the broker knows the access rules of its prefix alone."""
        return Namespace(
            metadata=OfNamespace(name=name, cluster=self._cluster), spec=NamespaceSpec.model_construct(acls=acls)
        )


# Access rules and the broker's bindings: one binding for each operation, on a name or on a prefix (facts, 2). Pure.


Carrier: TypeAlias = tuple[str, str]
"""`topic` or `namespace`, and the full name."""
_Rule: TypeAlias = tuple[Any, ...]
"""Permission, principal, host, kind of thing, name: what rules of one path share."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rules as namespaces and topics carry them, by full name; `rest` belongs to neither, or cannot be declared."""

    namespaces: Mapping[str, tuple[NamespaceAcl, ...]]
    topics: Mapping[str, tuple[TopicAcl, ...]]
    undeclarable: Mapping[Carrier, tuple[NamespaceAcl, ...]]
    """What no rule of a file can say about a topic or namespace, as the broker has it."""
    rest: tuple[Binding, ...]


def bindings_of_topic(physical: str, rules: Iterable[TopicAcl]) -> Iterator[Binding]:
    """Yield what the broker is to have for the rules of one topic."""
    for rule in rules:
        place = TOPICS, physical, False, rule.principal, rule.host
        yield from (Binding(*place, operation, rule.permission) for operation in rule.operations)


def placed(bindings: Iterable[Binding], naming: Naming, topics: Collection[str]) -> Placed:
    """Sort bindings by what carries them: a topic that is there, or the longest known namespace of their prefix."""
    known: dict[Carrier, dict[_Rule, set[str]]] = defaultdict(lambda: defaultdict(set))
    others: dict[Carrier, dict[_Rule, set[str]]] = defaultdict(lambda: defaultdict(set))
    rest: list[Binding] = []
    for each in sorted(bindings):
        is_declarable = can_be_declared(each)
        carrier, name = _carrier(each, naming, topics)
        if carrier is not None:
            rule = each.permission, each.principal, each.host, each.resource, name
            (known if is_declarable else others)[carrier][rule].add(each.operation)
        if carrier is None or not is_declarable:
            rest.append(each)
    return Placed(
        {name: _namespace_rules(found) for (kind, name), found in known.items() if kind == "namespace"},
        {name: _topic_rules(found) for (kind, name), found in known.items() if kind == "topic"},
        {carrier: _namespace_rules(found) for carrier, found in others.items()},
        tuple(rest),
    )


def _carrier(each: Binding, naming: Naming, topics: Collection[str]) -> tuple[Carrier | None, str]:
    """Return what carries a binding, and the name that its rule has there; `None`: no topic and no namespace."""
    if each.resource == TOPICS and not each.is_prefix:  # One topic: its rules may precede it.
        return (("topic", naming.full_name(each.name)) if each.name in topics else None), "*"
    namespace, name = naming.placed(each.name)
    is_inside = namespace and each.resource in OPERATIONS and (name or each.is_prefix)
    return (("namespace", namespace) if is_inside else None), name + "*" * each.is_prefix


def _namespace_rules(found: Mapping[_Rule, Iterable[Any]]) -> tuple[NamespaceAcl, ...]:
    return tuple(  # Of the wire: what it says is not checked again.
        NamespaceAcl.model_construct(
            permission=permission,
            principal=principal,
            host=host,
            resources=(resource,),
            names=(name,),
            operations=tuple(sorted(operations)),
        )
        for (permission, principal, host, resource, name), operations in sorted(found.items())
    )


def _topic_rules(found: Mapping[_Rule, Iterable[Any]]) -> tuple[TopicAcl, ...]:
    return tuple(
        TopicAcl.model_construct(
            permission=permission, principal=principal, host=host, operations=tuple(sorted(operations))
        )
        for (permission, principal, host, *_), operations in sorted(found.items())
    )
