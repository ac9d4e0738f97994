"""Workspace: one set of manifests with one state, its guards and where its jobs run (`reconciler.yaml`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from reconciler.resources.base import Many, Model
from reconciler.resources.configs import Properties
from reconciler.resources.guards import Allowance, Between, Guards, IgnoredDrift, Requirement, Rule
from reconciler.resources.locations import Location, LocationSpec
from reconciler.resources.metadata import NameOnly

__all__ = [
    "Allowance",
    "Between",
    "Guards",
    "IgnoredDrift",
    "Requirement",
    "Rule",
    "SparkSpec",
    "Workspace",
    "WorkspaceSpec",
]


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
    guards: Guards = Field(
        default_factory=Guards, description="Rules that can refuse a plan.", examples=[{"maxDeletes": 5}]
    )


class Workspace(Model):
    """One set of manifests with one state."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Workspace"] = Field(default="Workspace", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: WorkspaceSpec = Field(default_factory=WorkspaceSpec, description="Its parts.")
