"""Access rules of brokers as namespaces carry them, as few as say the same, and those that none can carry. Pure.

Rules are merged only where every combination is one of the broker's own: first operations, then kinds of things, then
names.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from reconciler.errors import UserError
from reconciler.resources.acls import NamespaceAcl
from reconciler.resources.aclsapart import refused_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reconciler.resources.bindings import Binding
    from reconciler.workflow.exporting.prefixes import Spaces

_RESOURCES: Final = frozenset({"topics", "groups", "transactional-ids"})
_STAYS: Final = "It stays as it is: no plan touches what the files do not say."

Names: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class Granted:
    """The rules of each namespace, and each binding that has no words here, with why."""

    rules: Mapping[str, tuple[NamespaceAcl, ...]]
    unsaid: tuple[tuple[Binding, UserError], ...]


class _Rule(NamedTuple):
    """A rule in the making: all combinations of these."""

    permission: str
    principal: str
    host: str
    resources: Names
    names: Names
    operations: Names


def granted(bindings: Iterable[Binding], spaces: Spaces, operations: Mapping[str, frozenset[str]]) -> Granted:
    """Give every binding to the longest namespace whose prefix it carries; `operations` are a platform's, by kind."""
    found: defaultdict[str, list[_Rule]] = defaultdict(list)
    unsaid: list[tuple[Binding, UserError]] = []
    for each in sorted(bindings):
        namespace, name = spaces.placed(each.name)
        name += "*" if each.is_prefix else ""
        rule = _Rule(
            each.permission,
            each.principal,
            each.host,
            frozenset([each.resource]),
            frozenset([name]),
            frozenset([each.operation]),
        )
        why = _why_not(each, namespace, rule, operations)
        if why is None:
            found[namespace].append(rule)
        else:
            unsaid.append((each, UserError(why, hint=_STAYS)))
    return Granted({namespace: _merged(rules) for namespace, rules in sorted(found.items())}, tuple(unsaid))


def merged_rules(rules: Iterable[NamespaceAcl]) -> tuple[NamespaceAcl, ...]:
    """Return rules as few as say the same, sorted."""
    return _merged(
        _Rule(each.permission, each.principal, each.host, frozenset([kind]), frozenset([name]), frozenset([operation]))
        for each in rules
        for kind in each.resources
        for name in each.names
        for operation in each.operations
    )


def _why_not(each: Binding, namespace: str, rule: _Rule, operations: Mapping[str, frozenset[str]]) -> str | None:
    """Say why a namespace cannot carry a binding; `None`: it can."""
    if each.resource not in _RESOURCES:
        return f"rules on {each.resource} are about no topic and no namespace"
    if not namespace:
        return "it is about no topic that is there, and about no namespace"
    [name] = rule.names
    if not name or ("*" in name[:-1]) or (name.endswith("*") and not each.is_prefix):
        return f"{name!r} is no name and no beginning of one"
    if each.resource == "topics" and not each.is_prefix:
        return "it is about one topic, which is not there"
    try:
        written = _written(rule)
    except ValidationError as error:
        return f"it has no words here: {error.errors()[0]['msg']}"
    refused = refused_rules([written], operations) if operations else ()
    return next((what for _, _, what, _ in refused), None)


def _merged(rules: Iterable[_Rule]) -> tuple[NamespaceAcl, ...]:
    found = _joined(rules, lambda rule: rule.operations, lambda rule, them: rule._replace(operations=them))
    found = _joined(found, lambda rule: rule.resources, lambda rule, them: rule._replace(resources=them))
    found = _joined(found, lambda rule: rule.names, lambda rule, them: rule._replace(names=them))
    return tuple(sorted(map(_written, found), key=_order))


def _joined(
    rules: Iterable[_Rule], of: Callable[[_Rule], Names], with_: Callable[[_Rule, Names], _Rule]
) -> list[_Rule]:
    """Make one rule of those that differ in one field alone."""
    alike: defaultdict[_Rule, Names] = defaultdict(frozenset)
    for rule in rules:
        alike[with_(rule, frozenset())] |= of(rule)
    return [with_(rule, values) for rule, values in alike.items()]


def _written(rule: _Rule) -> NamespaceAcl:
    lists = {"resources": rule.resources, "names": rule.names, "operations": rule.operations}
    return NamespaceAcl.model_validate({**rule._asdict(), **{field: sorted(lists[field]) for field in lists}})


def _order(rule: NamespaceAcl) -> tuple[object, ...]:
    return rule.principal, rule.permission, rule.host, rule.names, rule.resources, rule.operations
