"""The Namespace kind (KIP-37)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reconciler.resources.acls import NamespaceAcls
from reconciler.resources.address import Address, address_of
from reconciler.resources.base import (
    Count,
    FieldProblem,
    Model,
    NamespaceName,
    OfNamespace,
    PlainName,
    SizeBytes,
    build_refusal_error,
)
from reconciler.resources.configs import Configs


class Quotas(Model):
    """Limits of a namespace, including nested namespaces. Plans reject growth beyond them."""

    topics: Count | None = Field(default=None, description="Most topics, nested tiers included.", examples=[100])
    partitions: Count | None = Field(default=None, description="Most partitions, all topics together.", examples=[2000])
    bytes: SizeBytes | None = Field(
        default=None, description="Beyond it new topics and growth are refused.", examples=["1TiB"]
    )


class Encryption(Model):
    """Key that encrypts objects of a namespace."""

    kms_key_id: str = Field(
        min_length=1,
        description="Key of the store's key management (SSE-KMS).",
        examples=["arn:aws:kms:eu-west-1:111122223333:key/1234abcd"],
    )


class NamespaceSpec(Model):
    """Settings that all namespaces and topics in a namespace inherit."""

    configs: Configs = Field(
        default_factory=dict,
        description="Inherited by every topic below; the nearest tier wins, a topic's own configs win over all.",
        examples=[{"min.insync.replicas": 2}],
    )
    tiering_policy: PlainName | None = Field(
        default=None, description="A TieringPolicy for every topic below.", examples=["standard"]
    )
    acls: NamespaceAcls = Field(
        default=(),
        description="Who may do what with everything below; checked before a topic's own.",
        examples=[[{"principal": "User:checkout", "operations": ["read", "write"], "resources": ["topics", "groups"]}]],
    )
    quotas: Quotas | None = Field(default=None, description="Limits of everything below.", examples=[{"topics": 100}])
    encryption: Encryption | None = Field(
        default=None,
        description="Objects of this namespace are written under this key.",
        examples=[{"kmsKeyId": "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"}],
    )
    moved_from: NamespaceName | None = Field(
        default=None, description="The name it had before; may stay for ever.", examples=["shop:us"]
    )


class Namespace(Model):
    """Hierarchical group of topics. A declared namespace also creates its parents."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Namespace"] = Field(default="Namespace", description="What this document declares.")
    metadata: OfNamespace = Field(description="Its name and cluster.")
    spec: NamespaceSpec = Field(default_factory=NamespaceSpec, description="What everything in it inherits.")

    @model_validator(mode="after")
    def _check_not_default(self) -> Namespace:
        if not self.metadata.name:
            raise build_refusal_error(
                FieldProblem(
                    "the default namespace '' always exists and is not declared",
                    hint="Name a namespace, such as shop:eu; topics without one are in the default namespace",
                    at=("metadata", "name"),
                )
            )
        return self

    @property
    def address(self) -> Address:
        """Address of the namespace, by cluster and name."""
        return address_of("namespace", self.metadata.cluster, self.metadata.name)

    @property
    def cluster(self) -> str:
        """Name of the namespace's cluster."""
        return self.metadata.cluster
