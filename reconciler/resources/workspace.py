"""Workspace: one set of manifests with one state, its guards and where its jobs run (`reconciler.yaml`)."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from reconciler.resources.base import Complaint, Many, Model, refusal
from reconciler.resources.configs import Properties
from reconciler.resources.guards import Allowance, Between, Guards, IgnoredDrift, Requirement, Rule
from reconciler.resources.locations import Location, LocationSpec
from reconciler.resources.metadata import NameOnly

__all__ = [
    "Allowance",
    "Between",
    "Guards",
    "IgnoredDrift",
    "ReferencesSpec",
    "Requirement",
    "Rule",
    "SparkSpec",
    "Workspace",
    "WorkspaceSpec",
]


_ALLOWED: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*\*?|\*)|file:.+")


class SparkSpec(Model):
    """Where data jobs run: a master URL, or a Spark Connect server."""

    master: str = Field(
        default="local[*]", description="Any Spark master.", examples=["local[*]", "k8s://https://host"]
    )
    remote: str | None = Field(
        default=None, description="A Spark Connect server, instead of a master.", examples=["sc://host:15002"]
    )
    conf: Properties = Field(
        default_factory=dict, description="Spark's own settings.", examples=[{"spark.executor.memory": "4g"}]
    )


def _check_allowed(allow: tuple[str, ...]) -> tuple[str, ...]:
    for position, each in enumerate(allow):
        if not _ALLOWED.fullmatch(each):
            hint = "Write env:NAME, env:PREFIX_*, file:/path, or file:/folder/ for all below it"
            raise refusal(Complaint(f"{each!r} allows no reference", hint, (position,)))
    return allow


class ReferencesSpec(Model):
    """Which secrets manifests may refer to."""

    allow: Annotated[Many[str], AfterValidator(_check_allowed)] = Field(
        default=("env:RECONCILER_*",),
        description="Variables and files that manifests may name; what was sent to the same address before is allowed.",
        examples=[["env:KAFKA_*", "file:/run/secrets/"]],
    )


class WorkspaceSpec(Model):
    """What is declared of a workspace."""

    state: Location = Field(
        default_factory=lambda: LocationSpec(url="file://.reconciler"),
        description="Where the state lives: who is applying, what we own.",
        examples=["file://.reconciler", {"url": "s3://bucket/prefix", "region": "eu-west-1"}],
    )
    manifests: Many[str] = Field(
        default=("manifests",),
        min_length=1,
        description="Files and folders of manifests, relative to this file.",
        examples=[["manifests"]],
    )
    spark: SparkSpec = Field(
        default_factory=SparkSpec, description="Where data jobs run.", examples=[{"master": "local[*]"}]
    )
    values: Many[str] = Field(
        default=(), description="Files of variables, relative to this one; later wins.", examples=[["values.yaml"]]
    )
    references: ReferencesSpec = Field(
        default_factory=ReferencesSpec,
        description="Which secrets manifests may refer to.",
        examples=[{"allow": ["env:KAFKA_*"]}],
    )
    guards: Guards = Field(
        default_factory=Guards, description="Rules that can refuse a plan.", examples=[{"maxDeletes": 5}]
    )


class Workspace(Model):
    """One set of manifests with one state."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Workspace"] = Field(default="Workspace", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: WorkspaceSpec = Field(default_factory=WorkspaceSpec, description="Its parts.")
