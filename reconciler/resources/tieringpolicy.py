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

    time: DurationMs | None = Field(default=None, description="How long records are kept.", examples=["30d"])
    bytes: SizeBytes | None = Field(default=None, description="How many bytes per partition.", examples=["500GiB"])


class LocalRetentionSpec(RetentionSpec):
    """What stays on local disk."""

    strict: Flag | None = Field(
        default=None, description="Expire by these targets at once, not only when space is needed.", examples=[False]
    )


class TieringPolicySpec(Model):
    """What is declared of a policy; what is absent is left to the platform."""

    remote_write: Flag | None = Field(default=None, description="Upload to object storage.", examples=[True])
    remote_read: Flag | None = Field(default=None, description="Read from object storage.", examples=[True])
    remote_delete: Flag | None = Field(
        default=None,
        description="Deleting the topic deletes its objects, where write and read are both on.",
        examples=[True],
    )
    retention: RetentionSpec | None = Field(
        default=None, description="In total, on object storage.", examples=[{"time": "30d", "bytes": "500GiB"}]
    )
    local_retention: LocalRetentionSpec | None = Field(
        default=None, description="What stays on local disk.", examples=[{"time": "6h", "bytes": "10GiB"}]
    )
    initial_local_retention: RetentionSpec | None = Field(
        default=None, description="What a moved or recovered replica fetches at first.", examples=[{"time": "1h"}]
    )
    on_disable: Annotated[Literal["retain", "delete"], BeforeValidator(folded)] = Field(
        default="retain",
        description="What switching remoteWrite and remoteRead off together does to remote data (KIP-950).",
        examples=["retain"],
    )
    segment_bytes: SizeBytes | None = Field(
        default=None, description="Size at which a segment closes and can be uploaded.", examples=["128MiB"]
    )


class TieringPolicy(Model):
    """How much of a topic lives where."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["TieringPolicy"] = Field(default="TieringPolicy", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: TieringPolicySpec = Field(description="What it says; what is absent is left to the platform.")

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return Address(f"policy/{self.metadata.name}")

    @property
    def cluster(self) -> None:
        """A policy lives on no cluster."""
        return
