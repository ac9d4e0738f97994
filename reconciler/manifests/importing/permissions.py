"""Access rules that were found: those of a topic at that topic, the others as a broker keeps them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.found import Lost
from reconciler.resources.acls import check_principal
from reconciler.resources.bindings import Binding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from reconciler.manifests.importing.found import FoundRule, Place

_TOPICS: Final = "topics"
_ALL: Final = frozenset({"all", "describe"})
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    _TOPICS: _ALL | {"read", "write", "create", "delete", "alter", "describe-configs", "alter-configs"},
    "groups": _ALL | {"read", "delete"},
    "transactional-ids": _ALL | {"write"},
}
"""What there is to allow or deny of each kind of thing on a broker."""


@dataclass(slots=True)
class Permissions:
    """The rules of one cluster: of topics, as manifests write them, by name; and what no topic carries, with places."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    bindings: dict[Binding, Place] = field(default_factory=dict)


def permissions_of(rules: Iterable[FoundRule], topics: Collection[str], lost: list[Lost]) -> Permissions:
    """Sort rules by what carries them; `lost` is told of each that says nothing a broker would keep."""
    of_topics: dict[str, dict[tuple[str, str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
    found = Permissions()
    for rule in rules:
        if why := _refused(rule):
            lost.append(Lost(rule.place, str(rule), "", why))
        elif rule.resource == _TOPICS and not rule.is_prefix and rule.name in topics:
            of_topics[rule.name][rule.permission, rule.principal, rule.host].add(rule.operation)
        else:
            found.bindings.setdefault(_binding(rule), rule.place)
    found.topics = {name: [_rule(*each) for each in sorted(who.items())] for name, who in of_topics.items()}
    return found


def _refused(rule: FoundRule) -> str | None:
    legal = OPERATIONS.get(rule.resource)
    if legal is not None and rule.operation not in legal:
        return f"{rule.operation} is nothing that can be done with {rule.resource}"
    try:
        check_principal(rule.principal)
    except ValueError as error:
        return f"{rule.principal!r} is {error}"
    return None


def _binding(rule: FoundRule) -> Binding:
    return Binding(
        resource=rule.resource,
        name=rule.name,
        is_prefix=rule.is_prefix,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )


def _rule(who: tuple[str, str, str], operations: Iterable[str]) -> dict[str, Any]:
    permission, principal, host = who
    return {"permission": permission, "principal": principal, "host": host, "operations": sorted(operations)}
