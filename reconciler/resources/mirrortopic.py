"""MirrorTopic: a read-only copy of a topic, made by a link; derived, never a manifest of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, address_of
from reconciler.resources.base import Count, Model
from reconciler.resources.configs import Configs
from reconciler.resources.names import FullName, PlainName

MirrorState = Annotated[Literal["mirroring", "paused", "promoted", "failed-over", "reversed"], BeforeValidator(folded)]


class MirrorTopic(Model):
    """A read-only copy of a topic, made by a link; derived, never a manifest of its own."""

    kind: Literal["MirrorTopic"] = "MirrorTopic"
    cluster: PlainName = Field(description="The destination cluster, on which it lives.")
    link: PlainName = Field(description="The link that makes it.")
    source_cluster: PlainName = Field(description="The cluster its records come from.")
    source: FullName = Field(description="Full name on the source cluster.")
    name: FullName = Field(description="Full name on the destination, prefix included.")
    state: MirrorState = Field(default="mirroring", description="The role wanted of it.")
    configs: Configs = Field(default_factory=dict, description="Its own configs, none of which is synced.")
    partitions: Count | None = Field(
        default=None, description="The source's, told to the destination when the mirror is made; never declared."
    )

    @property
    def full_name(self) -> str:
        """Full name on the destination."""
        return self.name

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("mirror", self.cluster, self.name)
