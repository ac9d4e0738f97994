"""Access rules taken apart, for platforms that keep one for each kind of thing and each name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.acls import NamespaceAcl, TopicAcl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TOPICS: Final = "topics"


def namespace_rules_apart(
    rules: Iterable[NamespaceAcl], operations: Mapping[str, frozenset[str]]
) -> tuple[NamespaceAcl, ...]:
    """Return rules that are each about one kind and one name, with what there is to do with that kind."""
    found: list[NamespaceAcl] = []
    for rule in rules:
        for resource in rule.resources:
            meant = tuple(each for each in rule.operations if each in operations[resource])
            for name in rule.names if meant else ():
                apart = {"resources": (resource,), "names": (name,), "operations": meant}
                found.append(rule.model_copy(update=apart))
    return tuple(found)


def refused_rules(
    rules: Iterable[TopicAcl], operations: Mapping[str, frozenset[str]]
) -> Iterator[tuple[int, str, str, str]]:
    """Yield what no such platform keeps: the place of a rule, its field, what is wrong and what to do."""
    for place, rule in enumerate(rules):
        resources = rule.resources if isinstance(rule, NamespaceAcl) else (_TOPICS,)
        for operation in rule.operations:
            if not any(operation in operations[resource] for resource in resources):
                what = f"{operation} says nothing of {' and '.join(resources)}"
                legal = ", ".join(sorted({each for resource in resources for each in operations[resource]}))
                yield place, "operations", what, f"There is: {legal}."
        if isinstance(rule, NamespaceAcl) and _TOPICS in resources:
            exact = [name for name in rule.names if not name.endswith("*")]
            if exact:
                what = f"{exact[0]} is one topic: a rule of a namespace is about names that begin alike here"
                yield place, "names", what, "Set it in the `acls` of that Topic, or end the name with *."
