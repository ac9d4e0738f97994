"""Workspace: one set of manifests with one state, its guards and where its jobs run (`reconciler.yaml`)."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from reconciler.resources.base import Many, Model
from reconciler.resources.locations import Location, LocationSpec
from reconciler.resources.metadata import NameOnly


def _date(value: object) -> object:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            message = "not a date such as 2026-12-01"
            raise ValueError(message) from error
    return value


Day = Annotated[date, BeforeValidator(_date)]


class Allowance(Model):
    """A blocked action that was reviewed and is allowed, until a day."""

    action: str = Field(pattern=r"^[a-z-]+:.+$", examples=["delete:topic/west/shop:eu:orders"])
    until: Day
    reason: str


class IgnoredDrift(Model):
    """A field that may differ from the files, until a day; it is left as observed and listed."""

    match: str
    field: str
    until: Day
    reason: str


class Between(Model):
    """Bounds of a number, both included."""

    min: int | None = None
    max: int | None = None


class Requirement(Model):
    """What resources that match must look like."""

    name: str | None = Field(default=None, description="Regular expression the own name must match whole.")
    partitions: Between | None = None
    replication_factor: Between | None = None
    labels: Many[str] = ()
    configs: dict[str, Many[str | int | bool]] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _compiles(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                re.compile(name)
            except re.error as error:
                message = f"not a regular expression: {error}"
                raise ValueError(message) from error
        return name


class Rule(Model):
    """A convention, and what to say to who breaks it."""

    match: str
    require: Requirement
    message: str


def _limit(value: object) -> object:
    if isinstance(value, bool):
        message = "not a number or percentage"
        raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError with its place
    if isinstance(value, str) and not re.fullmatch(r"\d{1,3}%", value):
        message = "not a number or a percentage such as 10%"
        raise ValueError(message)
    return value


class Guards(Model):
    """Rules that can refuse a plan."""

    max_deletes: Annotated[Annotated[int, Field(ge=0)] | str, BeforeValidator(_limit)] = Field(
        default=5, description="Deletes not allowed by name beyond which a plan is blocked; a number or a percentage."
    )
    only: Many[str] = Field(default=(), description="Patterns; anything outside is refused.")
    allow: Many[Allowance] = ()
    ignore_drift: Many[IgnoredDrift] = ()
    rules: Many[Rule] = ()


class SparkSpec(Model):
    """Where data jobs run: a master URL, or a Spark Connect server."""

    master: str = "local[*]"
    remote: str | None = Field(default=None, examples=["sc://host:15002"])
    conf: dict[str, str | int | bool] = Field(default_factory=dict)


class WorkspaceSpec(Model):
    """What is declared of a workspace."""

    state: Location = Field(default_factory=lambda: LocationSpec(url="file://.reconciler"))
    manifests: Many[str] = Field(default=("manifests",), min_length=1)
    spark: SparkSpec = Field(default_factory=SparkSpec)
    values: Many[str] = ()
    guards: Guards = Field(default_factory=Guards)


class Workspace(Model):
    """One set of manifests with one state."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["Workspace"] = "Workspace"
    metadata: NameOnly
    spec: WorkspaceSpec = Field(default_factory=WorkspaceSpec)
