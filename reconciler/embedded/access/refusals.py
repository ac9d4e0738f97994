"""What a refused principal is told: who, what, where, which rule, and the rule that would allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.access.operations import Kind
from reconciler.errors import NotAuthorizedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.access.permissions import Level, Permissions, Verdict
    from reconciler.embedded.catalog.namespaceentries import AclEntry

_KAFKA: Final[Mapping[Kind, str]] = {
    Kind.TOPIC: "TopicAuthorizationException",
    Kind.GROUP: "GroupAuthorizationException",
    Kind.TRANSACTIONAL_ID: "TransactionalIdAuthorizationException",
    Kind.NAMESPACE: "TopicAuthorizationException",
}

_RESOURCES: Final[Mapping[Kind, str]] = {
    Kind.TOPIC: "",
    Kind.NAMESPACE: "",
    Kind.GROUP: ", resources: [groups]",
    Kind.TRANSACTIONAL_ID: ", resources: [transactional-ids]",
}


def refused(who: Permissions, operation: str, what: tuple[Kind, str], verdict: Verdict) -> NotAuthorizedError:
    """Return the error for an operation that a rule denies, or that none allows."""
    kind, name = what
    start = f"{_who(who)} may not {operation} {kind} {name}: "
    end = f" ({_KAFKA[kind]})"
    if verdict.rule is not None:
        message = f"{start}rule {verdict.position} of {verdict.level} denies it: {describe_rule(verdict.rule)}{end}"
        hint = f"Remove or narrow that rule in the acls of {verdict.level}; no rule below it lifts a denial."
        return NotAuthorizedError(message, hint=hint)
    has = "have" if " and " in (verdict.level or "") else "has"
    return NotAuthorizedError(
        f"{start}{verdict.level} {has} access rules, and none allows it{end}",
        hint=_allowing(who, operation, kind, verdict.nearest),
    )


def _allowing(who: Permissions, operation: str, kind: Kind, nearest: Level | None) -> str:
    """Return where a rule would go that allows it, and the rule: about what was asked and nothing beside it."""
    if nearest is None:
        return ""
    is_tier = kind is not Kind.NAMESPACE and nearest.label.startswith("namespace ")
    names = f', names: ["{nearest.name}"]' if is_tier else ""
    rule = f'{{principal: "{who.principal}", operations: [{operation}]{_RESOURCES[kind]}{names}}}'
    return f"Add to the acls of {nearest.label}: {rule}"


def not_the_super_user(who: Permissions, what: str) -> NotAuthorizedError:
    """Return the error for what belongs to the whole cluster."""
    return NotAuthorizedError(
        f"{_who(who)} may not {what}: it belongs to the whole cluster (ClusterAuthorizationException)",
        hint="Only the super user may: act without a principal.",
    )


def not_every_topic(who: Permissions, group: str) -> NotAuthorizedError:
    """Return the error for what concerns all topics of a group, some of which are hidden: it names none of them."""
    return NotAuthorizedError(
        f"{_who(who)} may not read every topic that group {group} has offsets of (TopicAuthorizationException)",
        hint="Name one topic that may be read (--topic), or let somebody do it who may read all of them.",
    )


def describe_rule(rule: AclEntry) -> str:
    """Return a rule in one line, what holds for all left out."""
    parts = [rule.permission, rule.principal, ", ".join(rule.operations)]
    if rule.resources != ("topics",):
        parts.append(f"on {', '.join(rule.resources)}")
    if rule.names != ("*",):
        parts.append(f"named {', '.join(rule.names)}")
    if rule.host != "*":
        parts.append(f"from {rule.host}")
    return " ".join(parts)


def _who(who: Permissions) -> str:
    return who.principal or "the super user" if who.host == "*" else f"{who.principal} from {who.host}"
