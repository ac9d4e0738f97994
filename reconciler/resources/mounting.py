"""Mounting: whether a topic is attached to a cluster or lies detached in object storage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, address_of, join_name
from reconciler.resources.base import DurationMs, Model
from reconciler.resources.metadata import InNamespace
from reconciler.resources.names import FullName, TopicName


class MountingSpec(Model):
    """What is declared of a mounting."""

    state: Annotated[Literal["mounted", "unmounted"], BeforeValidator(folded)]
    source: str | None = Field(
        default=None,
        description="A location `name/cluster-uuid/revision`, or a name that is unique; default: metadata.name.",
        examples=["clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"],
    )
    as_: TopicName | None = Field(default=None, alias="as", description="Alias on this cluster; never written back.")
    timeout: DurationMs | None = Field(default=None, description="Bound of a migration.", examples=["10m"])
    moved_from: FullName | None = Field(default=None, description="The full name it had before.")


class Mounting(Model):
    """Whether a topic is attached here."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["Mounting"] = "Mounting"
    metadata: InNamespace
    spec: MountingSpec

    @property
    def full_name(self) -> str:
        """Namespace and name of the mounting."""
        return join_name(self.metadata.namespace, self.metadata.name)

    @property
    def topic_name(self) -> str:
        """Full name of the topic here: `as`, else the mounting's own."""
        return join_name(self.metadata.namespace, self.spec.as_ or self.metadata.name)

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("mounting", self.metadata.cluster, self.full_name)

    @property
    def cluster(self) -> str:
        """The cluster it lives on."""
        return self.metadata.cluster
