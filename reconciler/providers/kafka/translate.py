"""Names, topics and access rules: our words and the broker's, and what brokers answer as plain values. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.resources import kafka_configs
from reconciler.resources.acls import OPERATIONS, TOPICS, Binding, NamespaceAcl, TopicAcl
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


@dataclass(frozen=True, slots=True)
class Placed:
    """Rules as namespaces and topics carry them, by full name; `rest` belongs to neither."""

    namespaces: Mapping[str, tuple[NamespaceAcl, ...]]
    topics: Mapping[str, tuple[TopicAcl, ...]]
    rest: tuple[Binding, ...]


def bindings_of_topic(physical: str, rules: Iterable[TopicAcl]) -> Iterator[Binding]:
    """Yield what the broker is to have for the rules of one topic."""
    for rule in rules:
        for operation in rule.operations:
            yield Binding(
                TOPICS,
                physical,
                is_prefix=False,
                principal=rule.principal,
                host=rule.host,
                operation=operation,
                permission=rule.permission,
            )


def placed(bindings: Iterable[Binding], naming: Naming, topics: Collection[str]) -> Placed:
    """Sort bindings by what carries them: a topic that is there, or the longest known namespace of their prefix."""
    of_namespaces: dict[str, dict[tuple[Any, ...], set[str]]] = defaultdict(lambda: defaultdict(set))
    of_topics: dict[str, dict[tuple[Any, ...], set[str]]] = defaultdict(lambda: defaultdict(set))
    rest: list[Binding] = []
    for each in sorted(bindings):
        who = (each.permission, each.principal, each.host)
        if each.resource == TOPICS and not each.is_prefix and each.name in topics:
            of_topics[naming.full_name(each.name)][who].add(each.operation)
            continue
        namespace, name = naming.placed(each.name)
        # Of a topic that is not there: rules may precede it.
        is_of_one_topic = each.resource == TOPICS and not each.is_prefix
        if not namespace or is_of_one_topic or each.resource not in OPERATIONS or not (name or each.is_prefix):
            rest.append(each)
            continue
        name += "*" if each.is_prefix else ""
        of_namespaces[namespace][(*who, each.resource, name)].add(each.operation)
    return Placed(
        {
            name: tuple(_namespace_rule(key, found[key]) for key in sorted(found))
            for name, found in of_namespaces.items()
        },
        {name: tuple(_topic_rule(key, found[key]) for key in sorted(found)) for name, found in of_topics.items()},
        tuple(rest),
    )


def _namespace_rule(key: tuple[Any, ...], operations: Iterable[Any]) -> NamespaceAcl:
    permission, principal, host, resource, name = key  # Of the wire: what it says is not checked again.
    return NamespaceAcl.model_construct(
        permission=permission,
        principal=principal,
        host=host,
        resources=(resource,),
        names=(name,),
        operations=tuple(sorted(operations)),
    )


def _topic_rule(key: tuple[Any, ...], operations: Iterable[Any]) -> TopicAcl:
    permission, principal, host = key
    return TopicAcl.model_construct(
        permission=permission, principal=principal, host=host, operations=tuple(sorted(operations))
    )
