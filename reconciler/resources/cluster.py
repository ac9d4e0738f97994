"""Cluster: one streaming platform, how it is reached, and what belongs to it as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, cluster_address
from reconciler.resources.base import Complaint, Flag, Model, refusal
from reconciler.resources.clustertiering import MachineryTiering
from reconciler.resources.configs import Properties
from reconciler.resources.connections import (
    ConfluentConnection,
    EmbeddedConnection,
    KafkaConnection,
    RedpandaConnection,
)
from reconciler.resources.locations import Location
from reconciler.resources.metadata import NameOnly

Provider = Annotated[Literal["embedded", "kafka", "redpanda", "confluent"], BeforeValidator(folded)]


class ClusterSpec(Model):
    """What is declared of a cluster."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("embedded", "kafka", "redpanda", "confluent")]}
    )

    provider: Provider = Field(default="embedded", description="Which platform it is.", examples=["embedded"])
    cluster_id: str | None = Field(
        default=None,
        description="Refuse to touch any other cluster.",
        examples=["67f5505a-32f3-4677-bcad-3c75a1a702a6"],
    )
    deletion_protection: Flag = Field(
        default=True, description="Deletes of data-bearing resources need `--allow`.", examples=[True]
    )
    properties: Properties = Field(
        default_factory=dict,
        description="Cluster-level properties, in the platform's names.",
        examples=[{"log.retention.hours": "72"}],
    )
    object_storage: Location | None = Field(
        default=None,
        description="The bucket that tiering, archives and mountings use; may be shared between clusters.",
        examples=["s3://topics"],
    )
    tiering: MachineryTiering | None = Field(
        default=None, description="Tiering as far as it is the cluster's.", examples=[{"upload": {"maxInterval": "1h"}}]
    )
    embedded: EmbeddedConnection | None = Field(
        default=None, description="With provider embedded.", examples=[{"root": "file://.clusters/west"}]
    )
    kafka: KafkaConnection | None = Field(
        default=None, description="With provider kafka.", examples=[{"bootstrapServers": ["broker-1:9092"]}]
    )
    redpanda: RedpandaConnection | None = Field(
        default=None,
        description="With provider redpanda.",
        examples=[{"bootstrapServers": ["broker-1:9092"], "adminUrls": ["http://broker-1:9644"]}],
    )
    confluent: ConfluentConnection | None = Field(
        default=None,
        description="With provider confluent.",
        examples=[
            {
                "restEndpoint": "https://pkc-abc12.eu-west-1.aws.confluent.cloud:443",
                "clusterId": "lkc-abc123",
                "apiKey": "${env:CONFLUENT_KEY}",
                "apiSecret": "${env:CONFLUENT_SECRET}",
            }
        ],
    )

    @model_validator(mode="after")
    def _connection_of_its_provider(self) -> ClusterSpec:
        blocks = {
            "embedded": self.embedded,
            "kafka": self.kafka,
            "redpanda": self.redpanda,
            "confluent": self.confluent,
        }
        wrong = [
            Complaint(
                f"does not go with provider {self.provider}", hint="Leave it out, or name its provider", at=(name,)
            )
            for name, block in blocks.items()
            if block is not None and name != self.provider
        ]
        if blocks[self.provider] is None:
            example = ClusterSpec.model_fields[self.provider].examples or [{}]
            hint = f"Say how to reach it, for example `{self.provider}: {_flow(example[0])}`"
            wrong.append(Complaint(f"is required with provider {self.provider}", hint=hint, at=(self.provider,)))
        if wrong:
            raise refusal(*wrong)
        return self


class Cluster(Model):
    """One streaming platform."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Cluster"] = Field(default="Cluster", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: ClusterSpec = Field(description="Which platform it is, and how it is reached.")

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return cluster_address(self.metadata.name)

    @property
    def cluster(self) -> str:
        """The cluster this is."""
        return self.metadata.name


def _flow(value: object) -> str:
    """Return an example as YAML on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_flow(item) for item in value) + "]"
        case _:
            return str(value)
