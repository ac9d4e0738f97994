"""Cluster: one streaming platform, how it is reached, and what belongs to it as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, cluster_address
from reconciler.resources.base import Count, DurationMs, Flag, Many, Model, SizeBytes
from reconciler.resources.configs import Configs
from reconciler.resources.locations import Location
from reconciler.resources.metadata import NameOnly
from reconciler.resources.secret import SecretReference

Provider = Annotated[Literal["embedded", "kafka", "redpanda", "confluent"], BeforeValidator(folded)]
Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class UploadSpec(Model):
    """When closed and open segments are uploaded."""

    max_interval: DurationMs | None = Field(default=None, description="Upload the open segment after this long.")


class MergeSpec(Model):
    """Merging of small adjacent remote segments."""

    enabled: Flag = True
    target_bytes: SizeBytes | None = Field(default=None, description="Size of a merged object.", examples=["128MiB"])
    min_bytes: SizeBytes | None = Field(default=None, description="Objects below it are merged.", examples=["64MiB"])


class ManifestsSpec(Model):
    """Partition manifests of the remote tier."""

    spillover_bytes: SizeBytes | None = Field(
        default=None, description="Beyond it a manifest spills.", examples=["64KiB"]
    )


class CacheSpec(Model):
    """The chunk cache in front of remote reads."""

    directory: str | None = None
    bytes: SizeBytes | None = None
    percent: Percent | None = None
    max_objects: Count | None = None
    chunk_bytes: SizeBytes | None = None
    eviction: Annotated[Literal["eager", "capped", "predictive"], BeforeValidator(folded)] | None = None
    trim_size_percent: Percent | None = None
    trim_objects_percent: Percent | None = None


class SpaceSpec(Model):
    """How much local disk the platform may use."""

    target_bytes: SizeBytes | None = None
    target_percent: Percent | None = None
    reservation_percent: Percent | None = None


class MachineryTiering(Model):
    """What of tiering belongs to the cluster's machinery, not to a topic; compiled to its properties."""

    upload: UploadSpec | None = None
    merge: MergeSpec | None = None
    manifests: ManifestsSpec | None = None
    cache: CacheSpec | None = None
    space: SpaceSpec | None = None


class EmbeddedConnection(Model):
    """Where an embedded cluster lives."""

    root: Location = Field(description="The folder or bucket that is the cluster.", examples=["file://.clusters/west"])


class SecuritySpec(Model):
    """How to authenticate to a Kafka listener."""

    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
    ] = "PLAINTEXT"
    mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
            BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
        ]
        | None
    ) = None
    username: str | None = None
    password: SecretReference | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: SecretReference | None = None
    scope: str | None = None


class KafkaConnection(Model):
    """How an Apache Kafka cluster is reached."""

    bootstrap_servers: Many[str] = Field(min_length=1, examples=[["broker-1:9092"]])
    security: SecuritySpec | None = None
    namespace_separator: str = Field(default=".", pattern=r"^[._-]$", description="What ':' becomes in topic names.")


class RedpandaConnection(Model):
    """How a Redpanda cluster is reached."""

    bootstrap_servers: Many[str] = Field(min_length=1)
    admin_urls: Many[str] = Field(min_length=1)
    security: SecuritySpec | None = None


class ConfluentConnection(Model):
    """How a Confluent cluster is reached."""

    rest_endpoint: str
    cluster_id: str = Field(examples=["lkc-abc123"])
    api_key: SecretReference
    api_secret: SecretReference
    bootstrap_servers: Many[str] = ()


class ClusterSpec(Model):
    """What is declared of a cluster."""

    provider: Provider = Field(default="embedded", description="Which platform it is.")
    cluster_id: str | None = Field(default=None, description="Refuse to touch any other cluster.")
    deletion_protection: Flag = Field(default=True, description="Deletes of data-bearing resources need `--allow`.")
    properties: Configs = Field(default_factory=dict, description="Cluster-level properties, in the platform's names.")
    object_storage: Location | None = Field(default=None, description="What tiering, archives and mountings use.")
    tiering: MachineryTiering | None = None
    embedded: EmbeddedConnection | None = None
    kafka: KafkaConnection | None = None
    redpanda: RedpandaConnection | None = None
    confluent: ConfluentConnection | None = None

    @model_validator(mode="after")
    def _connection_of_its_provider(self) -> ClusterSpec:
        given = [name for name in ("embedded", "kafka", "redpanda", "confluent") if getattr(self, name) is not None]
        if given != [self.provider]:
            message = f"provider {self.provider} needs exactly the block '{self.provider}', found {given or 'none'}"
            raise ValueError(message)
        return self


class Cluster(Model):
    """One streaming platform."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["Cluster"] = "Cluster"
    metadata: NameOnly
    spec: ClusterSpec

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return cluster_address(self.metadata.name)

    @property
    def cluster(self) -> str:
        """The cluster this is."""
        return self.metadata.name
