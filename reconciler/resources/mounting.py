"""Mounting: whether a topic is attached to a cluster or lies detached in object storage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, address_of, join_name
from reconciler.resources.base import Complaint, DurationMs, Model, refusal
from reconciler.resources.metadata import InNamespace
from reconciler.resources.names import MAX_NAME, FullName, LocationOrName, TopicName


class MountingSpec(Model):
    """What is declared of a mounting."""

    state: Annotated[Literal["mounted", "unmounted"], BeforeValidator(folded)] = Field(
        description="Attached to this cluster, or detached in object storage.", examples=["mounted"]
    )
    source: LocationOrName | None = Field(
        default=None,
        description="A location `name/cluster-uuid/revision`, or a name that is unique in this namespace; "
        "default: metadata.name.",
        examples=["clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"],
    )
    as_: TopicName | None = Field(
        default=None,
        alias="as",
        description="Alias on this cluster; never written back to object storage.",
        examples=["clicks-2025"],
    )
    timeout: DurationMs | None = Field(default=None, description="Bound of a migration.", examples=["10m"])
    moved_from: FullName | None = Field(
        default=None, description="The full name it had before; may stay for ever.", examples=["shop:us:clicks"]
    )

    @field_validator("timeout")
    @classmethod
    def _leaves_time(cls, timeout: int | None) -> int | None:
        if timeout == 0:
            hint = "Give it time, for example 10m; without a timeout it takes as long as it takes"
            raise refusal(Complaint("a migration that may take no time is always too late", hint=hint))
        return timeout


class Mounting(Model):
    """Whether a topic is attached to a cluster or lies detached in object storage."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Mounting"] = Field(default="Mounting", description="What this document declares.")
    metadata: InNamespace = Field(description="Its name and where it lives.")
    spec: MountingSpec = Field(description="Where the topic shall be.")

    @model_validator(mode="after")
    def _short_enough(self) -> Mounting:
        if max(len(self.full_name), len(self.topic_name)) > MAX_NAME:
            raise refusal(
                Complaint(
                    f"namespace and topic together are longer than {MAX_NAME} characters",
                    hint="Shorten one of the names",
                    at=("metadata", "name") if len(self.full_name) > MAX_NAME else ("spec", "as"),
                )
            )
        return self

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
