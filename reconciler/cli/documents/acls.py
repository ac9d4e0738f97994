"""JSON of access rules as they act."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from reconciler.cli.documents.base import Part

if TYPE_CHECKING:
    from reconciler.workflow.looking.actingacls import AclRow


class AclPart(Part):
    """An access rule that acts."""

    principal: str
    permission: str
    operations: tuple[str, ...]
    host: str
    resources: tuple[str, ...]
    names: tuple[str, ...] = Field(description="Counted from below the namespace it comes from.")
    origin: str = Field(description="The address of what it lies on: the topic, or a tier above it.")

    @classmethod
    def of(cls, row: AclRow) -> AclPart:
        """Say one rule."""
        return cls(**row.rule.to_json(), origin=row.origin)
