"""Topic: partitions, replication, configs and rules of one log of records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reconciler.resources.acls import TopicAcl
from reconciler.resources.address import Address, address_of, join_name
from reconciler.resources.base import Count, Flag, Many, Model
from reconciler.resources.configs import Configs
from reconciler.resources.metadata import InNamespace
from reconciler.resources.names import FullName, PlainName, check_full_name


class TopicSpec(Model):
    """What is declared of a topic."""

    partitions: Count | None = Field(
        default=None, description="Required, except with `recoverFrom`; only grows in place."
    )
    replication_factor: Count | None = Field(default=None, description="Copies of each partition.")
    configs: Configs = Field(
        default_factory=dict, description="Overrides, in Kafka's names.", examples=[{"retention.ms": "7d"}]
    )
    tiering_policy: PlainName | None = Field(default=None, description="Overrides the namespace's policy.")
    acls: Many[TopicAcl] = ()
    moved_from: FullName | None = Field(
        default=None, description="The full name it had before.", examples=["shop:us:orders"]
    )
    recover_from: str | None = Field(default=None, description="Location in object storage to create it from.")
    protect: Flag | None = Field(default=None, description="Held in state: only an earlier apply with false lifts it.")


class Topic(Model):
    """One log of records, in partitions."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["Topic"] = "Topic"
    metadata: InNamespace
    spec: TopicSpec = Field(default_factory=TopicSpec)

    @model_validator(mode="after")
    def _whole(self) -> Topic:
        check_full_name(self.full_name)
        if self.spec.partitions is None and self.spec.recover_from is None:
            message = "spec.partitions is required"
            raise ValueError(message)
        return self

    @property
    def full_name(self) -> str:
        """Namespace and name, as the platform's users see it."""
        return join_name(self.metadata.namespace, self.metadata.name)

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("topic", self.metadata.cluster, self.full_name)

    @property
    def cluster(self) -> str:
        """The cluster it lives on."""
        return self.metadata.cluster
