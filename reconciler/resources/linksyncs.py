"""What a mirror link keeps in step beside records: mirrors themselves, groups, ACLs and configs."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from reconciler.resources.acls import folded
from reconciler.resources.base import Complaint, DurationMs, Flag, Many, Model, refusal
from reconciler.resources.syncedconfigs import ALWAYS_SYNCED, SYNCED_BY_DEFAULT, is_never_synced

KEPT: Final = "kept"
"""The context in which what a cluster keeps of a link is read: it may hold what no manifest may declare."""


class NameFilter(Model):
    """Which names a link takes or leaves; exclude wins."""

    name: str = Field(min_length=1, description="A name, a prefix, or `*` for all.", examples=["*", "shop:eu:"])
    pattern_type: Annotated[Literal["literal", "prefixed"], BeforeValidator(folded)] = Field(
        default="literal", description="Whether `name` is the whole name or its beginning.", examples=["prefixed"]
    )
    filter_type: Annotated[Literal["include", "exclude"], BeforeValidator(folded)] = Field(
        default="include", description="Take these names, or leave them; exclude wins.", examples=["include"]
    )


class AutoCreateSpec(Model):
    """Mirrors made by the link itself."""

    enabled: Flag = Field(default=False, description="Make mirrors of topics that the filters take.", examples=[True])
    filters: Many[NameFilter] = Field(
        default=(), description="Which topics; required when enabled.", examples=[[{"name": "*"}]]
    )

    @model_validator(mode="after")
    def _filtered(self) -> AutoCreateSpec:
        _require_filters(is_enabled=self.enabled, filters=self.filters)
        return _without_filters(self)


class ConsumerOffsetSyncSpec(Model):
    """Consumer groups that follow their topics."""

    enabled: Flag = Field(default=False, description="Copy committed offsets to the mirrors.", examples=[True])
    interval: DurationMs = Field(default=30_000, description="How often.", examples=["30s"])
    filters: Many[NameFilter] = Field(
        default=(), description="Which groups; required when enabled.", examples=[[{"name": "*"}]]
    )
    prefix_groups: Flag = Field(
        default=False, description="Put the link's prefix before group names, too.", examples=[False]
    )

    @model_validator(mode="after")
    def _filtered(self) -> ConsumerOffsetSyncSpec:
        _require_filters(is_enabled=self.enabled, filters=self.filters)
        return _without_filters(self)


class AclFilter(Model):
    """Which ACLs a link copies; what is not written matches anything."""

    resource_type: str = Field(default="any", description="Kind of resource.", examples=["topic"])
    resource_name: str = Field(default="*", description="Its name.", examples=["shop:eu:orders"])
    pattern_type: str = Field(default="any", description="How the ACL names it.", examples=["literal"])
    principal: str = Field(default="*", description="Whom it is about.", examples=["User:checkout"])
    host: str = Field(default="*", description="The host it holds for.", examples=["*"])
    operation: str = Field(default="any", description="What it is about.", examples=["read"])
    permission: str = Field(default="any", description="Whether it allows or denies.", examples=["allow"])


class AclSyncSpec(Model):
    """ACLs that follow their topics."""

    enabled: Flag = Field(default=False, description="Copy ACLs to this cluster.", examples=[True])
    filters: Many[AclFilter] = Field(
        default=(), description="Which ACLs; required when enabled.", examples=[[{"resourceType": "topic"}]]
    )

    @model_validator(mode="after")
    def _filtered(self, info: ValidationInfo) -> AclSyncSpec:
        # A cluster may have it so: there the task says MISCONFIGURATION_ERROR, and whoever lists links must see it.
        if info.context != KEPT:
            _require_filters(is_enabled=self.enabled, filters=self.filters, everything="{resourceType: any}")
        return self


class TopicConfigSyncSpec(Model):
    """The complete list of synced configs; absent: the platform's default list."""

    include: Many[str] = Field(
        description="Every config that follows the source: what is left out is not synced.",
        examples=[list(SYNCED_BY_DEFAULT)],
    )

    @field_validator("include", mode="after")
    @classmethod
    def _complete(cls, include: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        missing = [key for key in ALWAYS_SYNCED if key not in include]
        never = [key for key in include if is_never_synced(key)]
        if missing:
            raise refusal(
                Complaint(
                    f"leaves out what is always synced: {', '.join(missing)}",
                    hint="The list is complete: add them, or leave topicConfigSync out for the default list",
                )
            )
        if never and info.context != KEPT:
            raise refusal(
                Complaint(f"names what is never synced: {', '.join(never)}", hint="Set it on the mirror's own configs")
            )
        return tuple(sorted(set(include)))


S = TypeVar("S", AutoCreateSpec, ConsumerOffsetSyncSpec)


def _without_filters(spec: S) -> S:
    """Let what is disabled have no filters: disabling clears them, so that nothing is planned about them."""
    if not spec.enabled and spec.filters:
        object.__setattr__(spec, "filters", ())  # It is frozen from here on.
    return spec


def _require_filters(*, is_enabled: bool, filters: tuple[object, ...], everything: str = '{name: "*"}') -> None:
    if is_enabled and not filters:
        raise refusal(
            Complaint(
                "are required where enabled is true",
                hint=f"To take everything, write `filters: [{everything}]`",
                at=("filters",),
            )
        )
