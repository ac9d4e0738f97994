"""The Mounting kind, mountable topics, and the configs that a mount pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from reconciler.errors import UserError
from reconciler.resources.acls import fold_case
from reconciler.resources.address import MAX_NAME, Address, address_of, join_name
from reconciler.resources.base import (
    UNLIMITED,
    DurationMs,
    FieldProblem,
    FullName,
    InNamespace,
    LocationOrName,
    Model,
    TopicName,
    build_refusal_error,
)
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.tiering_policy import (
    CLUSTER,
    Configs,
    Targets,
    apply_layer,
    read_disable_policy,
    read_switches,
    read_targets,
)
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.resources.kafka_configs import ConfigKey


class MountingSpec(Model):
    """Declared settings of a mounting."""

    state: Annotated[Literal["mounted", "unmounted"], BeforeValidator(fold_case)] = Field(
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
    def _check_timeout(cls, timeout: int | None) -> int | None:
        if timeout == 0:
            hint = "Give it time, for example 10m; without a timeout it takes as long as it takes"
            raise build_refusal_error(FieldProblem("a timeout must be more than 0", hint=hint))
        return None if timeout == UNLIMITED else timeout  # Jobs would treat -1 as a timeout that has passed.


class Mounting(Model):
    """Declares whether a topic is attached to a cluster or detached in object storage."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["Mounting"] = Field(default="Mounting", description="What this document declares.")
    metadata: InNamespace = Field(description="Its name and cluster.")
    spec: MountingSpec = Field(description="Whether the topic is attached or detached.")

    @model_validator(mode="after")
    def _check_lengths(self) -> Mounting:
        if max(len(self.full_name), len(self.topic_name)) > MAX_NAME:
            raise build_refusal_error(
                FieldProblem(
                    f"namespace and topic together are longer than {MAX_NAME} characters",
                    hint="Shorten one of the names",
                    at=("metadata", "name") if len(self.full_name) > MAX_NAME else ("spec", "as"),
                )
            )
        return self

    @property
    def full_name(self) -> str:
        """Namespace and name of the Mounting."""
        return join_name(self.metadata.namespace, self.metadata.name)

    @property
    def topic_name(self) -> str:
        """Full name of the topic on this cluster: `as`, or the mounting's name."""
        return join_name(self.metadata.namespace, self.spec.as_ or self.metadata.name)

    @property
    def address(self) -> Address:
        """Address of the Mounting, by cluster and full name."""
        return address_of("mounting", self.metadata.cluster, self.full_name)

    @property
    def cluster(self) -> str:
        """Name of the Mounting's cluster."""
        return self.metadata.cluster


@dataclass(frozen=True, slots=True)
class RecoverableTopic:
    """Topic in object storage that can be recovered, with sizes of its uploaded records."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, including the namespace."""
    full_name: str
    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    """Effective configs, including inherited configs."""
    bytes: int = 0
    records: int = 0
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """(first offset, next offset to upload) by partition with uploads."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, size in bytes) of segments or runs of segments."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Configs in `configs` that the topic itself set."""
    initial: Mapping[str, str] = field(default_factory=dict)
    """Cluster defaults at the topic's creation, including overridden defaults."""
    uploaded_ms: int | None = None
    """Time of the last segment upload in ms, by record timestamps; `None` without uploads."""
    groups: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Next offset to read by group and partition, from the lost cluster's metadata."""
    groups_error: UserError | None = None
    """Why the group offsets are unusable."""
    is_content_unknown: bool = False
    """Whether only the platform can read the topic, so that it may not exist, and partitions and sizes are 0."""

    def list_clamped_offsets(self) -> tuple[ClampedOffset, ...]:
        """Return the committed offsets beyond the uploaded end, which are reset to that end."""
        ends = {number: end for number, (_, end) in self.ends.items()}
        return tuple(
            ClampedOffset(group, number, offset, ends.get(number, 0))
            for group, offsets in sorted(self.groups.items())
            for number, offset in sorted(offsets.items())
            if offset > ends.get(number, 0)
        )


@dataclass(frozen=True, slots=True)
class ClampedOffset:
    """Committed offset beyond the end of a restored partition."""

    group: str
    partition: int
    committed: int
    offset: int


Recoveries: TypeAlias = Mapping[Address, RecoverableTopic | UserError]
"""What object storage has for each new topic, or why the topic cannot be created."""


MIGRATING: Final = "MIGRATING"
"""Cluster status of a topic that is being mounted or unmounted."""


@dataclass(frozen=True, slots=True)
class MountableTopic:
    """Topic that was unmounted at least once, with sizes at its last unmount."""

    location: str
    """Permanent `<topic>/<cluster uuid>/<initial revision>`. The topic includes the namespace."""
    full_name: str
    """Name at creation, which is the default name of a mount."""
    state: Literal["detached", "claimed", "mounted"]
    owner: str | None
    """Id of the current or last cluster."""
    name: str
    """Current or last name on the owner's cluster."""
    partitions: int | None = 0
    """`None` if only the platform can read the topic, as for `records` and `bytes`."""
    records: int | None = 0
    """Number of uploaded records."""
    bytes: int | None = 0
    at_ms: int | None = None
    """Time in ms of entry into the state."""


@dataclass(frozen=True, slots=True)
class MountSource:
    """Topic that a planned Mounting mounts."""

    location: str
    recoverable: RecoverableTopic | None
    """Topic in object storage; `None` if still on a cluster, or only the platform can read it."""
    unmounts: Address | None = None
    """Mounting that first unmounts the topic in this plan, if any."""

    @property
    def is_content_unknown(self) -> bool:
        """Whether the topic is unmounted and only the platform can read it."""
        return self.recoverable is None and self.unmounts is None


@dataclass(frozen=True, slots=True)
class RemountedTopic:
    """Topic that a command mounted under another name or on another cluster."""

    location: str
    topic: Address | None
    """Current address; `None` if its cluster was not read."""
    owner: str
    name: str

    def __str__(self) -> str:
        return self.topic or f"{self.name} on cluster {self.owner}"


Mounts: TypeAlias = Mapping[Address, MountSource | UserError]
"""Topic to mount or error, by address of a Mounting whose topic is not on its cluster."""


Direction: TypeAlias = Literal["inbound", "outbound"]
"""`inbound` is a mount, `outbound` an unmount."""


@dataclass(frozen=True, slots=True)
class Migrant:
    """Topic in a migration."""

    full_name: str
    location: str
    mounting: str | None
    """Mounting that started the migration, or the declared one if its cluster does not know. Null if a command did."""
    partitions: int | None = None
    """Null if the topic is not on the cluster."""
    is_closed: bool = False
    """Whether the topic rejects reads and writes on the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A mount or unmount of topics on one cluster."""

    id: int
    """Unique within the cluster."""
    direction: Direction
    """`inbound` is a mount, `outbound` an unmount."""
    state: str
    """A `lifecycles.MigrationState`."""
    topics: tuple[Migrant, ...]
    created_ms: int
    completed_ms: int | None = None
    """Null until the migration has ended."""
    bytes_left: int | None = None
    """Bytes to upload. Null for a mount, or if all is uploaded."""
    is_automatic: bool = True
    """Whether the migration continues without commands."""
    by_jobs: bool = False
    """Whether jobs of an apply execute the migration, and no other process continues it."""
    by_cluster: bool = False
    """Whether the cluster alone continues the migration, and does not know the Mounting that started it."""
    waits: tuple[str, ...] = ()
    """Reasons why the migration waits."""


def explain_release(release: str, *, is_mounted: bool) -> str:
    """Return the hint for a topic that another cluster has or mounts. `release` is the command of last resort."""
    cancel = "Cancel that mount, with its ID there: reconciler mount status, reconciler mount cancel ID."
    return f"{'Unmount it there first.' if is_mounted else cancel} Where that cluster is lost permanently: {release}"


Phase: TypeAlias = Literal["whole", "prepare", "finish"]
"""Part of a migration that a command requests. After `prepare`, topics are still served; `finish` does the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMigration:
    """Migration of several topics that a command requests."""

    direction: Direction
    topics: Mapping[str, str]
    """Locations by full name on this cluster."""
    phase: Phase = "whole"


_ONLY_AT_CREATION: Final = "remote.recovery"
_NO_LIMIT: Final = "-1"
_NO_LIMIT_UNLESS_SET: Final = frozenset({"initial.retention.local.target.bytes", "initial.retention.local.target.ms"})
_NO_DEFAULT_IF_UNSET: Final = frozenset({"local.retention.bytes", "local.retention.ms", "retention.local.target.ms"})
"""Configs with an effect at any value, so no value is equivalent to unset."""


def pin_configs(
    around: Configs,
    own: Mapping[str, str],
    effective: Mapping[str, str],
    known: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS,
) -> dict[str, str]:
    """Return the configs that a topic must set to keep its effective configs under new parents.

    `around` are the parents' configs. The topic set `own`; `effective` applied; others had the defaults of `known`.
    Repeats until no config is missing, because a config can hide its synonyms.
    """
    pins = dict(own)
    while missing := {
        key: value
        for key, value in _find_missing_configs(_layer_configs(around, pins), effective, known)
        if pins.get(key) != value
    }:
        pins |= missing
    before = {key: (value, "topic") for key, value in effective.items()}
    while missing := _find_missing_tiering(_layer_configs(around, pins), before):
        pins |= missing
    return dict(sorted(pins.items()))


def _layer_configs(around: Configs, own: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    layered = dict(around)
    apply_layer(layered, own, "topic")
    return layered


def _find_missing_configs(
    now: Configs, effective: Mapping[str, str], known: Mapping[str, ConfigKey]
) -> list[tuple[str, str]]:
    missing = []
    for key in sorted({*now, *effective} - {_ONLY_AT_CREATION}):
        default = _find_default(key, known)
        before, after = effective.get(key, default), now[key][0] if key in now else default
        if before is not None and before != after:
            missing.append((key, before))
    return missing


def _find_default(key: str, known: Mapping[str, ConfigKey]) -> str | None:
    if key in _NO_LIMIT_UNLESS_SET:
        return _NO_LIMIT
    return known[key].default if key in known and key not in _NO_DEFAULT_IF_UNSET else None


def _find_missing_tiering(now: Configs, before: Configs) -> dict[str, str]:
    pins: dict[str, str] = {}
    if (switches := read_switches(before)) != read_switches(now):
        pins |= {"remote.write": str(switches.write).lower(), "remote.read": str(switches.read).lower()}
    if (policy := read_disable_policy(before)) != read_disable_policy(now):
        pins["remote.log.disable.policy"] = policy
    limits, now_limits = _list_limits(read_targets(before)), _list_limits(read_targets(now))
    changed = {key: _format_limit(limit) for key, limit in limits.items() if limit != now_limits[key]}
    # The local limit also raises the total limit, so the local limit is enough.
    return pins | ({key: value for key, value in changed.items() if "local" in key} or changed)


def _list_limits(targets: Targets) -> dict[str, int | None]:
    return {
        "retention.ms": targets.total_ms,
        "retention.bytes": targets.total_bytes,
        "retention.local.target.ms": targets.local_ms,
        "retention.local.target.bytes": targets.local_bytes,
    }


def _format_limit(value: int | None) -> str:
    return _NO_LIMIT if value is None else str(value)


def drop_origins(configs: Configs) -> dict[str, str]:
    """Return the values of configs, without origins. A default local limit is capped at the total limit."""
    values = {key: value for key, (value, _) in configs.items()}
    key = "retention.local.target.ms"
    if key in configs and configs[key][1] == CLUSTER:
        local_ms = read_targets(configs).local_ms
        values[key] = configs[key][0] if local_ms is None else str(local_ms)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopics:
    """Contents of object storage for a plan."""

    recoveries: Recoveries = field(default_factory=dict)
    """Topics to create from object storage."""
    mounts: Mounts = field(default_factory=dict)
    detached: Mapping[Address, str] = field(default_factory=dict)
    """Locations of recorded topics that a command unmounted, and of unmounted topics with an order's name."""
    mounted_elsewhere: Mapping[Address, RemountedTopic] = field(default_factory=dict)
    """Recorded topics that a command mounted under another name."""
