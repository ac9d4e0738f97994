"""The Workspace kind: state, guards, secrets and Spark of a set of manifests."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from reconciler.resources.base import (
    DurationMs,
    FieldProblem,
    Many,
    Model,
    NameOnly,
    SizeBytes,
    build_refusal_error,
)
from reconciler.resources.cluster import Location, LocationSpec
from reconciler.resources.configs import Properties, canonicalize_value

_ACTION: Final = re.compile(r"[a-z-]+:.+")
_PERCENTAGE: Final = re.compile(r"(\d|[1-9]\d|100)%")


def _parse_day(value: object) -> object:
    if isinstance(value, date):
        return value
    try:
        # pydantic would read a number as seconds since 1970.
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError as error:
        message = "not a date such as 2026-12-01"
        raise ValueError(message) from error


Day = Annotated[
    date,
    BeforeValidator(_parse_day),
    WithJsonSchema({"type": "string", "format": "date", "pattern": r"^\d{4}-\d\d-\d\d$"}),
]


def _check_action(action: str) -> str:
    if not _ACTION.fullmatch(action):
        message = "not VERB:ADDRESS, such as delete:topic/west/shop:eu:orders"
        raise ValueError(message)
    return action


class Allowance(Model):
    """A reviewed action that guards do not block until a day."""

    action: Annotated[str, AfterValidator(_check_action)] = Field(
        description="VERB:ADDRESS; `*` in the address matches any characters.",
        examples=["delete:topic/west/shop:eu:orders"],
        json_schema_extra={"pattern": f"^{_ACTION.pattern}$"},
    )
    until: Day = Field(description="The last day it holds; expired it is an error.", examples=["2026-12-01"])
    reason: str = Field(description="Why, or the ticket that says so.", examples=["OPS-12"])


class IgnoredDrift(Model):
    """Field that may differ from the files until a day. Plans report the difference, but do not change it."""

    match: str = Field(description="Pattern over addresses.", examples=["topic/west/shop:*"])
    field: str = Field(description="Path of the field.", examples=["configs.retention.ms"])
    until: Day = Field(description="The last day it holds.", examples=["2026-12-01"])
    reason: str = Field(description="Why, or the ticket that says so.", examples=["OPS-13"])


Number = Annotated[int, Field(strict=True)]


class Between(Model):
    """Inclusive bounds of a number."""

    min: Number | None = Field(default=None, description="The least.", examples=[3])
    max: Number | None = Field(default=None, description="The most.", examples=[60])

    @model_validator(mode="after")
    def _check_order(self) -> Between:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise build_refusal_error(FieldProblem(f"{self.min} is more than max", hint="Swap them", at=("min",)))
        return self


def _canonicalize_choices(configs: object) -> object:
    if type(configs) is not dict:
        return configs
    wrong: list[FieldProblem] = []
    done: dict[object, list[str]] = {}
    for key, values in configs.items():
        name = str(key)
        if type(values) not in {list, tuple}:
            wrong.append(FieldProblem("not a list of values", f"Write `{name}: [{values}]`", (name,)))
            continue
        done[key] = []
        for position, value in enumerate(values):
            try:
                done[key].append(canonicalize_value(name, value))
            except ValueError as error:
                wrong.append(FieldProblem(str(error), hint="", at=(name, position)))
    if wrong:
        raise build_refusal_error(*wrong)
    return done


class Requirement(Model):
    """Conditions that matching resources must fulfil."""

    name: str | None = Field(
        default=None, description="Regular expression the own name must match whole.", examples=["^[a-z-]+$"]
    )
    partitions: Between | None = Field(
        default=None, description="How many partitions.", examples=[{"min": 3, "max": 60}]
    )
    replication_factor: Between | None = Field(default=None, description="How many copies.", examples=[{"min": 3}])
    labels: Many[str] = Field(default=(), description="Labels that must be there.", examples=[["team"]])
    configs: Annotated[
        dict[str, Many[str]],
        BeforeValidator(_canonicalize_choices),
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": ["string", "number", "boolean", "array"], "items": {"type": "string"}},
                },
            },
            mode="validation",
        ),
    ] = Field(
        default_factory=dict,
        description="Config key → the values it may have.",
        examples=[{"min.insync.replicas": [2, 3]}],
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                re.compile(name)
            except (re.error, RecursionError, OverflowError) as error:
                message = f"not a regular expression: {error}"
                raise ValueError(message) from error
        return name


class Rule(Model):
    """A convention, with the message for violations."""

    match: str = Field(description="Pattern over addresses.", examples=["topic/*/shop:*"])
    require: Requirement = Field(
        description="What resources that match must look like.", examples=[{"partitions": {"min": 3}}]
    )
    message: str = Field(description="What to tell who breaks it.", examples=["Topics of the shop have an owner"])


def _check_limit(value: object) -> object:
    match value:
        case bool():
            pass
        case int() if value >= 0:
            return value
        case str() if _PERCENTAGE.fullmatch(value):
            return value
    message = "not a number or a percentage such as 10%"
    raise ValueError(message)


Limit = Annotated[
    int | str,
    BeforeValidator(_check_limit),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_PERCENTAGE.pattern}$"}]}
    ),
]


class Guards(Model):
    """Rules that can reject a plan."""

    max_deletes: Limit = Field(
        default=5,
        description="Deletes not allowed by name beyond which a plan is blocked; a number or a percentage.",
        examples=[5, "10%"],
    )
    only: Many[str] = Field(
        default=(), description="Patterns; anything outside is refused.", examples=[["*/west/shop:*"]]
    )
    allow: Many[Allowance] = Field(
        default=(),
        description="Reviewed exceptions; unmatched ones are warned about.",
        examples=[[{"action": "delete:topic/west/shop:eu:orders", "until": "2026-12-01", "reason": "OPS-12"}]],
    )
    ignore_drift: Many[IgnoredDrift] = Field(
        default=(),
        description="Fields that may differ for a while.",
        examples=[
            [{"match": "topic/west/shop:*", "field": "configs.retention.ms", "until": "2026-12-01", "reason": "OPS-13"}]
        ],
    )
    approvals: dict[Literal["disruptive", "irreversible", "data-loss"], Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict,
        description="Risk → how many people must have approved a plan with such an action, or a graver one; they are "
        "named by `apply --approved-by`.",
        examples=[{"data-loss": 2}],
    )
    rules: Many[Rule] = Field(
        default=(),
        description="Conventions.",
        examples=[[{"match": "topic/*", "require": {"labels": ["team"]}, "message": "Every topic names its team"}]],
    )


_REFERENCE_PATTERN: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*\*?|\*)|file:.+")


IN_PROCESS: Final = "in process"
"""Engine of jobs that run in threads of this process."""
SPARK_START_S: Final = 6
IN_PROCESS_BELOW: Final = 64 << 20
"""Size in bytes that threads of one process copy faster than a JVM starts."""


_LOCAL: Final = "local[*]"
_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|[a-z][a-z0-9+.-]*://.+")
_SPARK_CONNECT_PORT: Final = 15002


def parse_spark_connect_address(url: str) -> tuple[str, int]:
    """Return host and port of a Spark Connect server.

    Raises:
        ValueError: The URL has no host or port.
    """
    parts = urlsplit(url)
    if parts.scheme != "sc" or not parts.hostname:
        message = "not sc://host"
        raise ValueError(message)
    parts.hostname.encode("idna")  # Raises for names such as `spark..local`.
    return parts.hostname, parts.port or _SPARK_CONNECT_PORT


class SparkSpec(Model):
    """Where data jobs run: in this process, on a Spark master, or on a Spark Connect server."""

    engine: Literal["auto", "spark"] = Field(
        default="auto",
        description="`auto`: what is smaller than `inProcessBelow` runs in threads of this process; `spark`: all jobs "
        "run on Spark.",
        examples=["spark"],
    )
    in_process_below: SizeBytes = Field(
        default=IN_PROCESS_BELOW,
        ge=0,
        description="With `auto`: jobs that read fewer stored bytes than this need neither PySpark nor Java.",
        examples=["64MiB", 0],
    )
    master: str = Field(default=_LOCAL, description="Any Spark master.", examples=["local[*]", "k8s://https://host"])
    remote: str | None = Field(
        default=None, description="A Spark Connect server, instead of a master.", examples=["sc://host:15002"]
    )
    conf: Properties = Field(
        default_factory=dict, description="Spark's own settings.", examples=[{"spark.executor.memory": "4g"}]
    )

    @field_validator("master")
    @classmethod
    def _check_master(cls, master: str) -> str:
        if not _MASTER.fullmatch(master):
            what = f"{master!r} is not a Spark master"
            raise build_refusal_error(
                FieldProblem(what, "Write local[*], spark://host:7077, yarn or k8s://https://host:port")
            )
        return master

    @field_validator("remote")
    @classmethod
    def _check_remote(cls, remote: str | None) -> str | None:
        if remote is not None:
            try:
                parse_spark_connect_address(remote)
            except ValueError as error:  # Also raised for a port that is not a number.
                raise build_refusal_error(
                    FieldProblem("names no Spark Connect server", "Write sc://host:15002")
                ) from error
        return remote

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        if self.engine == "spark" and "in_process_below" in self.model_fields_set:
            what, hint = "engine: spark runs every job on Spark", "Leave inProcessBelow out, or write engine: auto"
            raise build_refusal_error(FieldProblem(what, hint, ("inProcessBelow",)))
        return self

    @model_validator(mode="after")
    def _check_one_place(self) -> Self:
        if self.remote is not None and self.master != _LOCAL:
            what = "Spark runs at a master, or behind the Spark Connect server of `remote`"
            raise build_refusal_error(
                FieldProblem(
                    what, "Leave one of them out; in an overlay `master: null` drops that of the base", ("master",)
                )
            )
        named = next((name for name in ("spark.master", "spark.remote") if name in self.conf), None)
        if named is not None:
            field = named.removeprefix("spark.")
            raise build_refusal_error(
                FieldProblem(f"is set by spec.spark.{field}", f"Write {field}: there", ("conf", named))
            )
        return self

    @property
    def in_process_limit(self) -> int:
        """Size in bytes below which a job runs in this process; 0 means never."""
        return 0 if self.engine == "spark" else self.in_process_below

    @property
    def name(self) -> str:
        """Name for messages, such as `Spark local[*]`, without URL parameters, which may contain a token."""
        return f"Spark {self.master if self.remote is None else self.remote.partition(';')[0].rstrip('/')}"

    def choose_engine(self, stored_bytes: int) -> str:
        """Return the name of the engine for a job that reads this many bytes."""
        return IN_PROCESS if stored_bytes < self.in_process_limit else self.name


def _check_allowed(allow: tuple[str, ...]) -> tuple[str, ...]:
    for position, reference in enumerate(allow):
        if not _REFERENCE_PATTERN.fullmatch(reference):
            hint = "Write env:NAME, env:PREFIX_*, file:/path, or file:/folder/ for all below it"
            raise build_refusal_error(FieldProblem(f"{reference!r} allows no reference", hint, (position,)))
    return allow


class ReferencesSpec(Model):
    """Secrets to which manifests may refer."""

    allow: Annotated[Many[str], AfterValidator(_check_allowed)] = Field(
        default=("env:RECONCILER_*",),
        description="Variables and files that manifests may name; what was sent to the same address before is allowed.",
        examples=[["env:KAFKA_*", "file:/run/secrets/"]],
    )


class ClustersSpec(Model):
    """How a workspace reads its clusters."""

    parallel: int = Field(default=16, ge=1, le=256, description="How many clusters are read at once.", examples=[4])
    timeout: DurationMs = Field(
        default=300_000,
        gt=0,
        description="How long one cluster is read before a plan leaves it out. Requests to it have shorter limits of "
        "their own.",
        examples=["30s"],
    )


class WorkspaceSpec(Model):
    """Declared settings of a workspace."""

    state: Location = Field(
        default_factory=lambda: LocationSpec(url="file://.reconciler"),
        description="Where the state is stored: the lease, and what the workspace owns.",
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
    clusters: ClustersSpec = Field(
        default_factory=ClustersSpec, description="How clusters are read.", examples=[{"parallel": 4, "timeout": "30s"}]
    )
    guards: Guards = Field(
        default_factory=Guards, description="Rules that can refuse a plan.", examples=[{"maxDeletes": 5}]
    )


class Workspace(Model):
    """Set of manifests with one state."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Workspace"] = Field(default="Workspace", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: WorkspaceSpec = Field(default_factory=WorkspaceSpec, description="Its parts.")
