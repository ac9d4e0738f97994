"""Access rules as namespaces and topics carry them (KIP-37: inherited by everything below)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from reconciler.resources.base import Many, Model


def folded(value: object) -> object:
    """Lower an enum value: they are accepted in any case."""
    return value.lower().replace("_", "-") if isinstance(value, str) else value


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
AclResource = Annotated[Literal["topics", "groups", "transactional-ids"], BeforeValidator(folded)]


class TopicAcl(Model):
    """Who may, or may not, do what with one topic."""

    principal: str = Field(pattern=r"^[A-Za-z]+:.+$", description="Type and name.", examples=["User:checkout"])
    permission: Permission = Field(default="allow", description="`allow` or `deny`; a denial always wins.")
    operations: Many[Operation] = Field(min_length=1, description="What it is about.", examples=[["read", "write"]])
    host: str = Field(default="*", description="The host it holds for; `*` for all.")

    @field_validator("operations", mode="after")
    @classmethod
    def _sorted(cls, operations: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(operations)))


class NamespaceAcl(TopicAcl):
    """Who may, or may not, do what with everything in a namespace."""

    resources: Many[AclResource] = Field(
        default=("topics",), min_length=1, description="Which kinds of things in the namespace it covers."
    )

    @field_validator("resources", mode="after")
    @classmethod
    def _sorted_resources(cls, resources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(resources)))
