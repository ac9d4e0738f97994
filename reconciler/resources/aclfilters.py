"""The ACL filters of a link against access rules: what of a rule a filter is about is taken, the rest is left. Pure.

Of a rule about reading and writing, a filter on reading takes the reading. Filters are Kafka's: an absent word is any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.aclpaths import rule_at, rule_fields
from reconciler.resources.syncs import AccessRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reconciler.resources.acls import NamespaceAcl
    from reconciler.resources.linksyncs import AclFilter
    from reconciler.resources.syncs import RuleFields

_ANY: Final = frozenset({"any", "*"})
_KINDS: Final = {"topics": "topic", "groups": "group", "transactional-ids": "transactional-id"}
LITERAL: Final = "literal"
PREFIXED: Final = "prefixed"


def taken_rules(filters: Sequence[AclFilter], rules: AccessRules) -> AccessRules:
    """Return what filters take of the rules of topics and namespaces; what is left without rules is absent."""
    topics = {name: _taken(filters, name, fields, is_topic=True) for name, fields in rules.topics.items()}
    namespaces = {name: _taken(filters, name, fields, is_topic=False) for name, fields in rules.namespaces.items()}
    return AccessRules(
        {name: fields for name, fields in topics.items() if fields},
        {name: fields for name, fields in namespaces.items() if fields},
    )


def _taken(filters: Iterable[AclFilter], where: str, fields: RuleFields, *, is_topic: bool) -> RuleFields:
    rules = [rule_at(path, operations) for path, operations in fields.items()]
    narrowed = (_narrowed(each, rule, where, is_topic=is_topic) for each in filters for rule in rules)
    return rule_fields(rule for rule in narrowed if rule is not None)


def _narrowed(each: AclFilter, rule: NamespaceAcl, where: str, *, is_topic: bool) -> NamespaceAcl | None:
    """Return what of a rule a filter is about; `None`: nothing."""
    who = (
        _is(each.principal, rule.principal) and _is(each.host, rule.host) and _is_word(each.permission, rule.permission)
    )
    kept: Mapping[str, tuple[str, ...]] = {
        "operations": tuple(one for one in rule.operations if _is_word(each.operation, one)),
        "resources": tuple(one for one in rule.resources if _is_word(each.resource_type, _KINDS[one])),
        "names": tuple(name for name in rule.names if _is_named(each, *_pattern(where, name, is_topic=is_topic))),
    }
    return rule.model_copy(update=dict(kept)) if who and all(kept.values()) else None


def _pattern(where: str, name: str, *, is_topic: bool) -> tuple[str, str]:
    """Return how a rule names what it is about, by full name: as a whole, or by its beginning."""
    if is_topic:
        return LITERAL, where
    return (PREFIXED, f"{where}:{name[:-1]}") if name.endswith("*") else (LITERAL, f"{where}:{name}")


def _is_named(each: AclFilter, kind: str, name: str) -> bool:
    asked = each.pattern_type.lower()
    if asked == "match":  # Whatever would be about something of that name.
        return each.resource_name == "*" or (
            each.resource_name.startswith(name) if kind == PREFIXED else each.resource_name == name
        )
    return _is(each.resource_name, name) and (asked in _ANY or asked == kind)


def _is(asked: str, found: str) -> bool:
    return asked in {"*", found}


def _is_word(asked: str, found: str) -> bool:
    word = asked.lower().replace("_", "-")
    return word in _ANY or word == found
