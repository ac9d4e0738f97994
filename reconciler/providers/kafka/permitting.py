"""Access rules and the broker's bindings: one binding for each operation, on a name or on a prefix (facts, 2). Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.resources.acls import NamespaceAcl, TopicAcl
from reconciler.resources.bindings import Binding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from reconciler.providers.kafka.naming import Naming

TOPICS: Final = "topics"

_ALL: Final = frozenset({"all", "describe"})
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    TOPICS: _ALL | {"read", "write", "create", "delete", "alter", "describe-configs", "alter-configs"},
    "groups": _ALL | {"read", "delete"},
    "transactional-ids": _ALL | {"write"},
}
"""What there is to allow or deny of each kind of thing."""


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


def bindings_of_namespace(prefix: str, rules: Iterable[NamespaceAcl]) -> Iterator[Binding]:
    """Yield what the broker is to have for the rules of a namespace; of each kind, what can be said of it."""
    for rule in rules:
        for resource in rule.resources:
            for name in rule.names:
                for operation in rule.operations:
                    if operation in OPERATIONS[resource]:
                        yield Binding(
                            resource,
                            prefix + name.removesuffix("*"),
                            name.endswith("*"),
                            rule.principal,
                            rule.host,
                            operation,
                            rule.permission,
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
