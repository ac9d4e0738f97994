"""Access rules as namespaces and topics carry them (KIP-37: inherited by everything below)."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from reconciler.resources.base import Many, Model


def folded(value: object) -> object:
    """Lower an enum value: they are accepted in any case."""
    return value.lower().replace("_", "-") if isinstance(value, str) else value


_PRINCIPAL: Final = re.compile(r"^[A-Za-z]+:.+$")

Permission = Annotated[Literal["allow", "deny"], BeforeValidator(folded)]
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
    BeforeValidator(folded),
]
_PATTERN: Final = re.compile(r"^(\*|[^*\n]+\*?)$")

AclResource = Annotated[Literal["topics", "groups", "transactional-ids"], BeforeValidator(folded)]


def check_principal(principal: str) -> str:
    """Return `principal` if it has a type and a name. Raises ValueError saying what is legal."""
    if not _PRINCIPAL.fullmatch(principal):
        message = "not a principal: a type and a name, such as User:checkout"
        raise ValueError(message)
    return principal


def check_pattern(pattern: str) -> str:
    """Return `pattern` if it is a name, or a prefix that ends in `*`. Raises ValueError saying so."""
    if not _PATTERN.fullmatch(pattern):
        message = "not a pattern: a name, or the beginning of one and a * at the end"
        raise ValueError(message)
    return pattern


NamePattern = Annotated[str, AfterValidator(check_pattern), Field(json_schema_extra={"pattern": _PATTERN.pattern})]

Principal = Annotated[str, AfterValidator(check_principal), Field(json_schema_extra={"pattern": _PRINCIPAL.pattern})]


class TopicAcl(Model):
    """Who may, or may not, do what with one topic."""

    principal: Principal = Field(description="Who: a type and a name.", examples=["User:checkout", "User:*"])
    permission: Permission = Field(
        default="allow", description="`allow` or `deny`; a denial always wins.", examples=["allow"]
    )
    operations: Many[Operation] = Field(min_length=1, description="What it is about.", examples=[["read", "write"]])
    host: str = Field(default="*", min_length=1, description="The host it holds for; `*` for all.", examples=["*"])

    @field_validator("operations", mode="after")
    @classmethod
    def _sorted(cls, operations: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(operations)))


class NamespaceAcl(TopicAcl):
    """Who may, or may not, do what with everything in a namespace."""

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
    def _sorted_resources(cls, resources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(resources)))
