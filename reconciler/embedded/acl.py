"""Access control of embedded clusters (KIP-37)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from reconciler.embedded.catalog.model import AclEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, check_not_replica, get_topic, unknown_namespace_error
from reconciler.errors import NotAuthorizedError, UserError
from reconciler.resources.acls import NamespaceAcl, TopicAcl, check_principal, parse_rule, to_rule_fields
from reconciler.resources.address import list_levels, split_name
from reconciler.runtime.dataclass import dataclass, replace


class Operation(StrEnum):
    """Operations of access rules, as in manifests."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"


class Kind(StrEnum):
    """Kinds of resources. A rule for everything in a namespace includes the namespace."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    NAMESPACE = "namespace"


EVERYONE: Final = "User:*"
ALLOW: Final = "allow"


_RESOURCES: Final[Mapping[Kind, str]] = {
    Kind.TOPIC: "topics",
    Kind.GROUP: "groups",
    Kind.TRANSACTIONAL_ID: "transactional-ids",
    Kind.NAMESPACE: "topics",
}

_IMPLIED_BY: Final[Mapping[str, frozenset[str]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}

_KAFKA_ERRORS: Final[Mapping[Kind, str]] = {
    Kind.TOPIC: "TopicAuthorizationException",
    Kind.GROUP: "GroupAuthorizationException",
    Kind.TRANSACTIONAL_ID: "TransactionalIdAuthorizationException",
    Kind.NAMESPACE: "TopicAuthorizationException",
}

_RULE_RESOURCES: Final[Mapping[Kind, str]] = {
    Kind.TOPIC: "",
    Kind.NAMESPACE: "",
    Kind.GROUP: ", resources: [groups]",
    Kind.TRANSACTIONAL_ID: ", resources: [transactional-ids]",
}


@dataclass(frozen=True, slots=True)
class RuleLevel:
    """A namespace or topic with rules for a resource; `name` is the resource's name inside it."""

    label: str
    rules: tuple[AclEntry, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an operation is allowed, and the rule that decides: number `position` (from 1) of `level`.

    Without a matching rule, `rule` is `None` and `level` names the namespaces or topic with rules.
    """

    is_allowed: bool
    level: str | None = None
    rule: AclEntry | None = None
    position: int = 0
    innermost_level: RuleLevel | None = None
    """Namespace or topic where a new rule for the resource belongs."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of one principal from one host, or of the super user.

    Rules of namespaces apply outermost first, then the topic's. A matching denial overrides every other rule. Without
    any rules, every principal is allowed (KIP-37).
    """

    principal: str | None = None
    host: str = "*"

    @classmethod
    def of(cls, principal: str | None, host: str = "*") -> Permissions:
        """Return a principal's permissions; `None` is the super user."""
        if principal is None:
            return SUPER_USER
        try:
            check_principal(principal)
        except ValueError as error:
            raise UserError(f"{principal!r} is {error}", hint="Write it as in the access rules.") from error
        if principal == EVERYONE:
            raise UserError(
                f"{principal} stands for every principal, but a single one is needed",
                hint="Name one principal, such as User:checkout.",
            )
        return cls(principal, host)

    @property
    def is_super_user(self) -> bool:
        """Whether every operation is allowed."""
        return self.principal is None

    def is_allowed(self, catalog: Catalog | Draft, operation: str, kind: Kind, name: str) -> bool:
        """Whether a principal may do an operation on a resource; `name` is its full name."""
        return self.principal is None or self.find_verdict(catalog, operation, kind, name).is_allowed

    def check_allowed(self, catalog: Catalog | Draft, operation: str, kind: Kind, name: str) -> None:
        """Reject an operation without permission, without revealing whether the resource exists."""
        if self.principal is None:
            return
        verdict = self.find_verdict(catalog, operation, kind, name)
        if verdict.is_allowed:
            return
        if not self.is_allowed(catalog, Operation.DESCRIBE, kind, name):
            verdict = self._find_outermost_refusal(catalog, operation, kind, name)
        raise refusal_error(self, operation, (kind, name), verdict)

    def check_super_user(self, what: str) -> None:
        """Reject all but the super user; `what` completes "may not" in the error."""
        if self.principal is not None:
            raise super_user_error(self, what)

    def find_verdict(self, catalog: Catalog | Draft, operation: str, kind: Kind, name: str) -> Verdict:
        """Return whether an operation is allowed, and the deciding rule."""
        return self._decide_by_levels(tuple(iter_rule_levels(catalog, kind, name)), operation, kind)

    def _find_outermost_refusal(self, catalog: Catalog | Draft, operation: str, kind: Kind, name: str) -> Verdict:
        levels = tuple(iter_rule_levels(catalog, kind, name))
        verdicts = (self._decide_by_levels(levels[:count], operation, kind) for count in range(1, len(levels) + 1))
        return next(verdict for verdict in verdicts if not verdict.is_allowed)

    def _decide_by_levels(self, levels: tuple[RuleLevel, ...], operation: str, kind: Kind) -> Verdict:
        allowed: Verdict | None = None
        closed: list[str] = []
        nearest: RuleLevel | None = None
        for level in levels:
            closed += [level.label] if level.rules else []
            nearest = level
            for position, rule in enumerate(level.rules, 1):
                if self._is_rule_about(rule, kind, level.name) and _covers_operation(rule, operation):
                    if rule.permission != ALLOW:
                        return Verdict(is_allowed=False, level=level.label, rule=rule, position=position)
                    allowed = allowed or Verdict(is_allowed=True, level=level.label, rule=rule, position=position)
        if allowed is not None:
            return allowed
        is_open = self.principal is None or not closed
        return Verdict(is_allowed=is_open, level=" and ".join(closed) or None, innermost_level=nearest)

    def _is_rule_about(self, rule: AclEntry, kind: Kind, name: str) -> bool:
        return (
            rule.principal in {self.principal, EVERYONE}
            and rule.host in {self.host, "*"}
            and _RESOURCES[kind] in rule.resources
            and any(_matches_name(pattern, name) for pattern in rule.names)
        )


SUPER_USER: Final = Permissions()


def check_namespace_deletion(who: Permissions, draft: Draft, namespace: str) -> None:
    """Reject the deletion of a namespace if the principal may not delete its contents."""
    if who.is_super_user:
        return
    below = f"{namespace}:"
    who.check_allowed(draft, Operation.DELETE, Kind.NAMESPACE, namespace)
    for kind, table in ((Kind.NAMESPACE, draft.namespaces), (Kind.TOPIC, draft.topics)):
        for name in sorted(table):
            if name.startswith(below):
                who.check_allowed(draft, Operation.DELETE, kind, name)


def check_may_append(who: Permissions, catalog: Catalog, full_name: str) -> None:
    """Reject a principal that may not append to a topic. Links append as the super user."""
    who.check_allowed(catalog, Operation.WRITE, Kind.TOPIC, full_name)
    topic = catalog.topics.get(full_name)
    if topic is not None:
        check_not_replica(full_name, topic, "to write to it")
    if who.is_super_user:
        return
    if topic is not None and topic.active_mirror is not None:
        who.check_super_user(f"write to mirror {full_name}")


def iter_rule_levels(catalog: Catalog | Draft, kind: Kind, name: str) -> Iterator[RuleLevel]:
    """Yield the namespaces (outermost first) and the topic whose rules apply to a resource."""
    full = f"{name}:" if kind is Kind.NAMESPACE else name
    for tier in list_levels(name if kind is Kind.NAMESPACE else split_name(name)[0]):
        entry = catalog.namespaces.get(tier)
        if entry is not None:
            yield RuleLevel(f"namespace {tier}", entry.acls, full[len(tier) + 1 :])
    if kind is Kind.TOPIC and (topic := catalog.topics.get(name)) is not None:
        yield RuleLevel(f"topic {name}", topic.acls, name)


def _covers_operation(rule: AclEntry, operation: str) -> bool:
    if operation in rule.operations or Operation.ALL in rule.operations:
        return True
    return rule.permission == ALLOW and not _IMPLIED_BY.get(operation, frozenset()).isdisjoint(rule.operations)


def _matches_name(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def refusal_error(who: Permissions, operation: str, what: tuple[Kind, str], verdict: Verdict) -> NotAuthorizedError:
    """Return the error for a refused operation."""
    kind, name = what
    start = f"{_format_principal(who)} may not {operation} {kind} {name}: "
    end = f" ({_KAFKA_ERRORS[kind]})"
    if verdict.rule is not None:
        message = f"{start}rule {verdict.position} of {verdict.level} denies it: {describe_rule(verdict.rule)}{end}"
        hint = f"Remove or narrow that rule in the acls of {verdict.level}; no rule below it lifts a denial."
        return NotAuthorizedError(message, hint=hint)
    has = "have" if " and " in (verdict.level or "") else "has"
    return NotAuthorizedError(
        f"{start}{verdict.level} {has} access rules, and none allows it{end}",
        hint=_suggest_rule(who, operation, kind, verdict.innermost_level),
    )


def _suggest_rule(who: Permissions, operation: str, kind: Kind, nearest: RuleLevel | None) -> str:
    if nearest is None:
        return ""
    is_tier = kind is not Kind.NAMESPACE and nearest.label.startswith("namespace ")
    names = f', names: ["{nearest.name}"]' if is_tier else ""
    rule = f'{{principal: "{who.principal}", operations: [{operation}]{_RULE_RESOURCES[kind]}{names}}}'
    return f"Add to the acls of {nearest.label}: {rule}"


def super_user_error(who: Permissions, what: str) -> NotAuthorizedError:
    """Return the error for an operation reserved to the super user."""
    return NotAuthorizedError(
        f"{_format_principal(who)} may not {what}: that needs rights on the whole cluster "
        "(ClusterAuthorizationException)",
        hint="Only the super user may do it: leave --principal out.",
    )


def hidden_topics_error(who: Permissions, group: str) -> NotAuthorizedError:
    """Return the error for a group with offsets of topics that the principal may not read."""
    return NotAuthorizedError(
        f"{_format_principal(who)} may not read every topic that group {group} has offsets of "
        "(TopicAuthorizationException)",
        hint="Name one topic that may be read (--topic), or use a principal that may read all of them.",
    )


def describe_rule(rule: AclEntry) -> str:
    """Format a rule as one line, without default values."""
    parts = [rule.permission, rule.principal, ", ".join(rule.operations)]
    if rule.resources != ("topics",):
        parts.append(f"on {', '.join(rule.resources)}")
    if rule.names != ("*",):
        parts.append(f"named {', '.join(rule.names)}")
    if rule.host != "*":
        parts.append(f"from {rule.host}")
    return " ".join(parts)


def _format_principal(who: Permissions) -> str:
    return who.principal or "the super user" if who.host == "*" else f"{who.principal} from {who.host}"


_OF_TOPICS: Final = ("principal", "permission", "operations", "host")


def to_acl_entries(rules: Iterable[TopicAcl]) -> tuple[AclEntry, ...]:
    """Convert manifest rules to catalog entries, merged by operation and sorted."""
    return _parse_rules(to_rule_fields(rules))


def to_topic_acls(entries: Iterable[AclEntry]) -> tuple[TopicAcl, ...]:
    """Convert a topic's catalog entries to manifest rules."""
    return tuple(TopicAcl.model_construct(**_select_fields(entry, *_OF_TOPICS)) for entry in entries)


def to_namespace_acls(entries: Iterable[AclEntry]) -> tuple[NamespaceAcl, ...]:
    """Convert a namespace's catalog entries to manifest rules."""
    return tuple(
        NamespaceAcl.model_construct(**_select_fields(entry, *_OF_TOPICS, "resources", "names")) for entry in entries
    )


def merge_rules(entries: Iterable[AclEntry], changes: Mapping[str, tuple[str, ...] | None]) -> tuple[AclEntry, ...]:
    """Apply changes, keyed by rule path, to rules; `None` removes a rule."""
    merged: dict[str, tuple[str, ...] | None] = {**to_rule_fields(to_namespace_acls(entries)), **changes}
    return _parse_rules({path: operations for path, operations in merged.items() if operations is not None})


def set_topic_acls(draft: Draft, full_name: str, entries: Iterable[AclEntry]) -> None:
    """Replace a topic's rules."""
    topic = get_topic(draft, full_name)
    checked = [_validate_entry(f"topic {full_name}", entry) for entry in entries]
    for rule in checked:
        if (rule.resources, rule.names) != (("topics",), ("*",)):
            message = (
                f"topic {full_name}: an access rule of a topic covers that topic alone, not {', '.join(rule.names)}"
            )
            raise UserError(message, hint="Leave out resources and names, or set the rule on its namespace.")
    draft.put_topic(full_name, replace(topic, acls=to_acl_entries(checked)))


def set_namespace_acls(draft: Draft, name: str, entries: Iterable[AclEntry]) -> None:
    """Replace a namespace's rules."""
    namespace = draft.namespaces.get(name)
    if namespace is None:
        raise unknown_namespace_error(name)
    checked = [_validate_entry(f"namespace {name}", entry) for entry in entries]
    draft.put_namespace(name, replace(namespace, acls=to_acl_entries(checked)))


def _select_fields(entry: AclEntry, *names: str) -> dict[str, Any]:
    # Fields need no checks: the catalog holds only validated rules.
    return {name: getattr(entry, name) for name in names}


def _validate_entry(where: str, entry: AclEntry) -> NamespaceAcl:
    try:
        return NamespaceAcl.model_validate(entry.to_json())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        message = f"{where}: access rule of {entry.principal}: {field}: {first['msg']}"
        raise UserError(message, hint="Correct the rule; nothing was changed.") from error


def _parse_rules(fields: Mapping[str, tuple[str, ...]]) -> tuple[AclEntry, ...]:
    rules = (parse_rule(path, fields[path]) for path in sorted(fields))
    return tuple(
        AclEntry(rule.principal, rule.permission, rule.operations, rule.host, rule.resources, rule.names)
        for rule in rules
    )


def find_visible_topic(who: Permissions, catalog: Catalog | Draft, full_name: str) -> TopicEntry:
    """Return a topic that the principal may describe."""
    if full_name in catalog.topics or who.is_super_user:
        return get_topic(catalog, full_name)
    known = [name for name in catalog.topics if who.is_allowed(catalog, Operation.DESCRIBE, Kind.TOPIC, name)]
    return get_topic(catalog, full_name, known=known)
