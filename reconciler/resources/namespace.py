"""Namespace: a hierarchical home of topics, with what they inherit (KIP-37)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reconciler.resources.acls import NamespaceAcl
from reconciler.resources.address import Address, address_of
from reconciler.resources.base import Count, Many, Model, SizeBytes
from reconciler.resources.configs import Configs
from reconciler.resources.metadata import OfNamespace
from reconciler.resources.names import NamespaceName, PlainName


class Quotas(Model):
    """Limits of a namespace and all below it, checked at plan."""

    topics: Count | None = None
    partitions: Count | None = None
    bytes: SizeBytes | None = None


class Encryption(Model):
    """The key under which the objects of a namespace are written."""

    kms_key_id: str = Field(examples=["arn:aws:kms:eu-west-1:111122223333:key/…"])


class NamespaceSpec(Model):
    """What everything in a namespace inherits."""

    configs: Configs = Field(default_factory=dict, description="Inherited by every topic below; nearest tier wins.")
    tiering_policy: PlainName | None = Field(default=None, description="A TieringPolicy for every topic below.")
    acls: Many[NamespaceAcl] = ()
    quotas: Quotas | None = None
    encryption: Encryption | None = None
    moved_from: NamespaceName | None = Field(default=None, description="The name it had before.")


class Namespace(Model):
    """A hierarchical home of topics. Declaring one creates every tier above it."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["Namespace"] = "Namespace"
    metadata: OfNamespace
    spec: NamespaceSpec = Field(default_factory=NamespaceSpec)

    @model_validator(mode="after")
    def _not_the_default_one(self) -> Namespace:
        if not self.metadata.name:
            message = "the default namespace '' always exists and is not declared"
            raise ValueError(message)
        return self

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("namespace", self.metadata.cluster, self.metadata.name)

    @property
    def cluster(self) -> str:
        """The cluster it lives on."""
        return self.metadata.cluster
