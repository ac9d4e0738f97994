"""TieringPolicy: how much of a topic lives where; bound to no cluster, compiled to each platform's words."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from reconciler.resources.acls import folded
from reconciler.resources.address import Address
from reconciler.resources.base import DurationMs, Flag, Model, SizeBytes
from reconciler.resources.metadata import NameOnly


class RetentionSpec(Model):
    """By time and by size at once, whichever removes more. Bytes are per partition."""

    time: DurationMs | None = Field(default=None, examples=["30d"])
    bytes: SizeBytes | None = Field(default=None, examples=["500GiB"])


class LocalRetentionSpec(RetentionSpec):
    """What stays on local disk."""

    strict: Flag | None = Field(default=None, description="Expire by these targets, or only when space is needed.")


class TieringPolicySpec(Model):
    """What is declared of a policy; what is absent is left to the platform."""

    remote_write: Flag | None = Field(default=None, description="Upload to object storage.")
    remote_read: Flag | None = Field(default=None, description="Read from object storage.")
    remote_delete: Flag | None = Field(default=None, description="Deleting the topic deletes its objects.")
    retention: RetentionSpec | None = Field(default=None, description="In total, on object storage.")
    local_retention: LocalRetentionSpec | None = None
    initial_local_retention: RetentionSpec | None = Field(
        default=None, description="What a moved replica fetches first."
    )
    on_disable: Annotated[Literal["retain", "delete"], BeforeValidator(folded)] = Field(
        default="retain", description="What switching tiering off does to remote data (KIP-950)."
    )
    segment_bytes: SizeBytes | None = None


class TieringPolicy(Model):
    """How much of a topic lives where."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["TieringPolicy"] = "TieringPolicy"
    metadata: NameOnly
    spec: TieringPolicySpec

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return Address(f"policy/{self.metadata.name}")

    @property
    def cluster(self) -> None:
        """A policy lives on no cluster."""
        return
