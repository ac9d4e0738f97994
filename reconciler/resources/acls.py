"""Access rules of namespaces and topics, as declared, as fields of a resource, and as bindings of brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from reconciler.resources.base import KEPT, Many, Model
from reconciler.runtime.dataclass import dataclass


def fold_case(value: object) -> object:
    """Normalize an enum value, which may be in any case."""
    return value.lower().replace("_", "-") if isinstance(value, str) else value


_PRINCIPAL: Final = re.compile(r"^[A-Za-z]+:.+$")

Permission = Annotated[Literal["allow", "deny"], BeforeValidator(fold_case)]
Operation = Annotated[
    Literal[
        "all",
        "read",
        "write",
        "create",
        "delete",
        "alter",
        "describe",
        "cluster-action",
        "describe-configs",
        "alter-configs",
        "idempotent-write",
    ],
    BeforeValidator(fold_case),
]
_PATTERN: Final = re.compile(r"^(\*|[^*\n]+\*?)$")

AclResource = Annotated[Literal["topics", "groups", "transactional-ids"], BeforeValidator(fold_case)]


def check_principal(principal: str) -> str:
    """Return `principal`. Raise `ValueError` unless it has a type and a name."""
    if not _PRINCIPAL.fullmatch(principal):
        message = "not a principal: a type and a name, such as User:checkout"
        raise ValueError(message)
    return principal


def check_pattern(pattern: str) -> str:
    """Return `pattern`. Raise `ValueError` unless it is a name, or a prefix that ends in `*`."""
    if not _PATTERN.fullmatch(pattern):
        message = "not a pattern: a name, or the beginning of one and a * at the end"
        raise ValueError(message)
    return pattern


NamePattern = Annotated[str, AfterValidator(check_pattern), Field(json_schema_extra={"pattern": _PATTERN.pattern})]

Principal = Annotated[str, AfterValidator(check_principal), Field(json_schema_extra={"pattern": _PRINCIPAL.pattern})]


class TopicAcl(Model):
    """Rule that allows or denies a principal operations on one topic."""

    principal: Principal = Field(description="Who: a type and a name.", examples=["User:checkout", "User:*"])
    permission: Permission = Field(
        default="allow", description="`allow` or `deny`; a denial always wins.", examples=["allow"]
    )
    operations: Many[Operation] = Field(min_length=1, description="What it is about.", examples=[["read", "write"]])
    host: str = Field(default="*", min_length=1, description="The host it holds for; `*` for all.", examples=["*"])

    @field_validator("operations", mode="after")
    @classmethod
    def _sort_operations(cls, operations: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(operations)))


class NamespaceAcl(TopicAcl):
    """Rule that allows or denies a principal operations on everything in a namespace."""

    resources: Many[AclResource] = Field(
        default=("topics",),
        min_length=1,
        description="Which kinds of things in the namespace it covers.",
        examples=[["topics", "groups"]],
    )

    names: Many[NamePattern] = Field(
        default=("*",),
        min_length=1,
        description="Which of them, counted from below the namespace: names, or beginnings that end in `*`.",
        examples=[["orders", "pay-*"]],
    )

    @field_validator("resources", "names", mode="after")
    @classmethod
    def _sort_resources(cls, resources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(resources)))


def _drop_unknown_operations(rules: Any, info: ValidationInfo) -> Any:
    """Drop unknown operations, which earlier versions stored."""
    if info.context != KEPT or not rules:
        return rules
    words = get_args(get_args(Operation)[0])
    known_rules = [
        rule | {"operations": [operation for operation in rule["operations"] if operation in words]} for rule in rules
    ]
    return [rule for rule in known_rules if rule["operations"]]


TopicAcls = Annotated[Many[TopicAcl], BeforeValidator(_drop_unknown_operations)]
NamespaceAcls = Annotated[Many[NamespaceAcl], BeforeValidator(_drop_unknown_operations)]


# Access rules as fields of a resource. The path is the rule without its operations; the operations are the value:
# `acls.allow User:checkout from 10.0.0.7 on groups,topics named pay-*`. Defaults are omitted.


ACLS: Final = "acls."
ALLOWS: Final = f"{ACLS}allow "
"""Path prefix of rules that allow."""

_PLAIN: Final = re.compile(r'[^\s,"]+')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,"]+')
_LIST: Final = re.compile(rf"(?:{_TOKEN.pattern})(?:,(?:{_TOKEN.pattern}))*")


def to_rule_fields(rules: Iterable[TopicAcl]) -> dict[str, tuple[str, ...]]:
    """Return operations by path. Rules with the same path are merged."""
    fields: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        path = build_rule_path(rule)
        fields[path] = tuple(sorted({*fields.get(path, ()), *rule.operations}))
    return fields


def build_rule_path(rule: TopicAcl) -> str:
    """Return the field path of a rule: permission, principal, host, resources and names."""
    parts = [rule.permission, _quote(rule.principal)]
    if rule.host != "*":
        parts += ["from", _quote(rule.host)]
    if isinstance(rule, NamespaceAcl):
        if rule.resources != ("topics",):
            parts += ["on", ",".join(rule.resources)]
        if rule.names != ("*",):
            parts += ["named", ",".join(map(_quote, rule.names))]
    return ACLS + " ".join(parts)


DENIED: Final = ("write",)
"""Operations that a protected mirror denies to producers."""
EVERYONE: Final = "User:*"


def build_denial_path(principal: str) -> str:
    """Return the field path of the rule that denies a principal writes to a mirror."""
    return f"{ACLS}deny {_quote(principal)}"


def parse_rule(path: str, operations: Iterable[object]) -> NamespaceAcl:
    """Parse a rule from a field path, such as `acls.allow User:app on topics`, and its operations."""
    words = _split_words(path.removeprefix(ACLS))
    shape: dict[str, object] = {"permission": next(words)[0], "principal": next(words)[0]}
    for [word] in words:
        values = next(words)
        match word:
            case "from":
                shape["host"] = values[0]
            case "on":
                shape["resources"] = values
            case _:
                shape["names"] = values
    return NamespaceAcl.model_validate({**shape, "operations": tuple(operations)})


def _quote(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _split_words(text: str) -> Iterator[list[str]]:
    for match in _LIST.finditer(text):
        tokens = _TOKEN.findall(match.group())
        yield [json.loads(token) if token.startswith('"') else token for token in tokens]


TOPICS: Final = "topics"


def split_namespace_rules(
    rules: Iterable[NamespaceAcl], operations: Mapping[str, frozenset[str]]
) -> tuple[NamespaceAcl, ...]:
    """Split rules into parts: one resource kind and one name each, with the operations of that kind."""
    single_rules: list[NamespaceAcl] = []
    for rule in rules:
        for resource in rule.resources:
            meant = tuple(operation for operation in rule.operations if operation in operations[resource])
            for name in rule.names if meant else ():
                apart = {"resources": (resource,), "names": (name,), "operations": meant}
                single_rules.append(rule.model_copy(update=apart))
    return tuple(single_rules)


def subtract_rule(
    rule: NamespaceAcl, part: NamespaceAcl, operations: Mapping[str, frozenset[str]]
) -> tuple[NamespaceAcl, ...]:
    """Return what remains of a rule without `part`, as at most two rules."""
    others = tuple(resource for resource in rule.resources if resource not in part.resources)
    names = tuple(name for name in rule.names if name not in part.names)
    rest_rules: list[NamespaceAcl] = []
    for shape in ({"resources": others}, {"resources": part.resources, "names": names}):
        rest = rule.model_copy(update=shape)
        meant = tuple(
            operation for operation in rule.operations if any(operation in operations[kind] for kind in rest.resources)
        )
        if meant and rest.names:
            rest_rules.append(rest.model_copy(update={"operations": meant}))
    return tuple(rest_rules)


def find_refused_rules(
    rules: Iterable[TopicAcl], operations: Mapping[str, frozenset[str]]
) -> Iterator[tuple[int, str, str, str]]:
    """Yield rules that a platform with these operations cannot store, as index, field, problem and hint."""
    for place, rule in enumerate(rules):
        resources = rule.resources if isinstance(rule, NamespaceAcl) else (TOPICS,)
        for operation in rule.operations:
            if not any(operation in operations[resource] for resource in resources):
                what = f"{operation} says nothing of {' and '.join(resources)}"
                legal = ", ".join(sorted({operation for resource in resources for operation in operations[resource]}))
                yield place, "operations", what, f"There is: {legal}."
        if isinstance(rule, NamespaceAcl) and TOPICS in resources:
            exact = [name for name in rule.names if not name.endswith("*")]
            if exact:
                what = f"{exact[0]} is one topic: a rule of a namespace is about names that begin alike here"
                yield place, "names", what, "Set it in the `acls` of that Topic, or end the name with *."


@dataclass(frozen=True, slots=True, order=True)
class AccessBinding:
    """Access rule of a broker: one principal, one operation, and one name or prefix."""

    resource: str
    """`topics`, `groups`, `transactional-ids`, or a kind that files cannot declare: `cluster`, `user`, `unknown-8`."""
    name: str
    is_prefix: bool
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        where = "" if self.host == "*" else f" from {self.host}"
        name = f"{self.name}*" if self.is_prefix else self.name
        return f"{self.permission} {self.principal}{where} {self.operation} on {self.resource} {name}"


_ALL: Final = frozenset({"all", "describe"})
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    TOPICS: _ALL | {"read", "write", "create", "delete", "alter", "describe-configs", "alter-configs"},
    "groups": _ALL | {"read", "delete"},
    "transactional-ids": _ALL | {"write"},
}


def can_be_declared(binding: AccessBinding) -> bool:
    """Return whether a manifest can declare this binding. Other bindings are never changed."""
    is_known = binding.operation in OPERATIONS.get(binding.resource, ()) and binding.permission in {"allow", "deny"}
    is_named = _PATTERN.fullmatch(binding.name or "*") and "*" not in binding.name
    return is_known and bool(is_named and _PRINCIPAL.fullmatch(binding.principal) and binding.host)


def expand_namespace_rules(prefix: str, rules: Iterable[NamespaceAcl]) -> Iterator[AccessBinding]:
    """Yield the bindings for a namespace's rules, without operations that a resource kind does not support."""
    for rule in split_namespace_rules(rules, OPERATIONS):
        (resource,), (name,) = rule.resources, rule.names
        place = resource, prefix + name.removesuffix("*"), name.endswith("*"), rule.principal, rule.host
        for operation in rule.operations:
            yield AccessBinding(*place, operation, rule.permission)


_WRITE_OPERATIONS: Final = frozenset({"all", "write"})


def build_denial(topic: str, principal: str) -> AccessBinding:
    """Return the binding that denies a principal writes to a topic."""
    return AccessBinding(
        "topics", topic, is_prefix=False, principal=principal, host="*", operation="write", permission="deny"
    )


def find_write_allowances(bindings: Iterable[AccessBinding], topic: str) -> Iterator[AccessBinding]:
    """Yield the bindings that allow writes to a topic, by flat name, by prefix, or for all topics."""
    for binding in bindings:
        is_about = topic.startswith(binding.name) if binding.is_prefix else binding.name in {"*", topic}
        if (
            is_about
            and binding.resource == "topics"
            and binding.permission == "allow"
            and binding.operation in _WRITE_OPERATIONS
        ):
            yield binding


def is_about_writing(binding: AccessBinding) -> bool:
    """Return whether a binding allows or denies writes to topics."""
    return binding.resource == "topics" and binding.operation in _WRITE_OPERATIONS


def find_denied_writers(
    bindings: Collection[AccessBinding], topic: str, *, own: str, denied: Collection[str]
) -> tuple[str, ...]:
    """Return the principals to which a protected mirror denies writes, sorted.

    `own` is the principal of the mirror's link. `denied` are those already denied.
    """
    principals = {binding.principal for binding in find_write_allowances(bindings, topic)} - {own}
    return tuple(
        sorted(
            principal
            for principal in principals
            if principal in denied or build_denial(topic, principal) not in bindings
        )
    )
