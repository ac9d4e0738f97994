"""The Topic kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from pydantic import ConfigDict, Field, model_validator

from reconciler.resources.acls import TopicAcls
from reconciler.resources.address import MAX_NAME, Address, address_of, join_name
from reconciler.resources.base import (
    Count,
    FieldProblem,
    Flag,
    FullName,
    InNamespace,
    Model,
    PlainName,
    TopicLocation,
    build_refusal_error,
)
from reconciler.resources.configs import Configs

FOLLOWING: Final = "FOLLOWING"
"""Status of a read replica whose source exists."""
REPLICAS: Final = "replicas"
"""Job that updates read replicas. Its last runs are stored under this name."""
SOURCE_GONE: Final = "SOURCE_GONE"
"""Status of a read replica whose source was deleted, so no record is readable."""


class TopicSpec(Model):
    """Declared settings of a topic."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": ["partitions"]}, {"required": ["recoverFrom"]}, {"required": ["readReplicaOf"]}]
        }
    )

    partitions: Count | None = Field(
        default=None,
        description="Required, except with `recoverFrom` and `readReplicaOf`; only grows in place.",
        examples=[12],
    )
    replication_factor: Count | None = Field(default=None, description="Copies of each partition.", examples=[3])
    configs: Configs = Field(
        default_factory=dict,
        description="Overrides, in Kafka's names; quantities such as 7d and 10GiB are accepted.",
        examples=[{"cleanup.policy": "delete", "retention.ms": "7d"}],
    )
    tiering_policy: PlainName | None = Field(
        default=None, description="A TieringPolicy; overrides the namespace's.", examples=["archive"]
    )
    acls: TopicAcls = Field(
        default=(),
        description="Who may do what with this topic.",
        examples=[[{"principal": "User:checkout", "operations": ["read"]}]],
    )
    moved_from: FullName | None = Field(
        default=None, description="The full name it had before; may stay for ever.", examples=["shop:us:orders"]
    )
    recover_from: TopicLocation | None = Field(
        default=None,
        description="Location in object storage to create it from.",
        examples=["orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"],
    )
    read_replica_of: TopicLocation | None = Field(
        default=None,
        description="Location in object storage of a topic that this one follows and only reads; another one replaces "
        "the topic.",
        examples=["orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"],
    )
    protect: Flag | None = Field(
        default=None,
        description="Blocks its deletion, unmount and trim. Held in state: only an earlier apply with false lifts it.",
        examples=[True],
    )

    def find_replica_conflicts(self) -> Iterator[str]:
        """Yield declared fields that a read replica may not have."""
        if self.read_replica_of is not None:
            declared = {
                "partitions": self.partitions,
                "replicationFactor": self.replication_factor,
                "configs": self.configs,
                "tieringPolicy": self.tiering_policy,
                "recoverFrom": self.recover_from,
            }
            yield from (name for name, value in declared.items() if value)


class Topic(Model):
    """A log of records, in partitions."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Topic"] = Field(default="Topic", description="What this document declares.")
    metadata: InNamespace = Field(description="Its name and cluster.")
    spec: TopicSpec = Field(description="What it shall be.")

    @model_validator(mode="after")
    def _check_complete(self) -> Topic:
        if len(self.full_name) > MAX_NAME:
            raise build_refusal_error(
                FieldProblem(
                    f"namespace and topic together are longer than {MAX_NAME} characters",
                    hint="Shorten one of the names",
                    at=("metadata", "name"),
                )
            )
        if self.spec.partitions is None and self.spec.recover_from is None and self.spec.read_replica_of is None:
            raise build_refusal_error(
                FieldProblem(
                    "is required, except with recoverFrom and readReplicaOf",
                    hint="Add it, for example `partitions: 12`",
                    at=("spec", "partitions"),
                )
            )
        return self

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return join_name(self.metadata.namespace, self.metadata.name)

    @property
    def address(self) -> Address:
        """Address such as `topic/west/shop:orders`."""
        return address_of("topic", self.metadata.cluster, self.full_name)

    @property
    def cluster(self) -> str:
        """Name of the topic's cluster."""
        return self.metadata.cluster
