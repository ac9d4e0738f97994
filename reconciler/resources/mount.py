"""The Mounting kind, what can be mounted, and the configs that a mount pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from reconciler.errors import UserError
from reconciler.resources.acls import folded
from reconciler.resources.address import MAX_NAME, Address, address_of, join_name
from reconciler.resources.base import (
    UNLIMITED,
    Complaint,
    DurationMs,
    FullName,
    InNamespace,
    LocationOrName,
    Model,
    TopicName,
    refusal,
)
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.tiering_policy import (
    CLUSTER,
    Configs,
    Targets,
    disable_policy_in,
    lay_over,
    switches_in,
    targets_in,
)

if TYPE_CHECKING:
    from reconciler.resources.kafka_configs import ConfigKey


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
            raise refusal(Complaint("a timeout must be more than 0", hint=hint))
        return None if timeout == UNLIMITED else timeout  # jobs would take -1 for a time that is over


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


# What lies in object storage and a topic could be made from, so that a plan can say what that would bring.


@dataclass(frozen=True, slots=True)
class Recoverable:
    """A topic as object storage has it. Sizes are of what would be copied."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, its namespace included."""
    full_name: str
    """What it was called last."""
    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    """All that were set for it: by itself, its namespaces or its cluster."""
    bytes: int = 0
    records: int = 0
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: the first offset that is there, and the next to be uploaded. Absent: nothing was uploaded."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, bytes) of its segments, or of runs of them."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Of `configs`, those that it said itself."""
    initial: Mapping[str, str] = field(default_factory=dict)
    """Of `configs`, or hidden by them, what the defaults of its cluster gave it when it was made."""
    uploaded_ms: int | None = None
    """When a segment of it was uploaded last, by the clock of records; `None`: never."""
    groups: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Group → partition → the next offset it wants to read, as far as that was kept with the cluster that is lost."""
    groups_lost: UserError | None = None
    """Why that is no use."""

    def clamped(self) -> tuple[ClampedOffset, ...]:
        """Return the offsets that lie beyond what was uploaded: they are set back to its end."""
        ends = {number: end for number, (_, end) in self.ends.items()}
        return tuple(
            ClampedOffset(group, number, offset, ends.get(number, 0))
            for group, offsets in sorted(self.groups.items())
            for number, offset in sorted(offsets.items())
            if offset > ends.get(number, 0)
        )


@dataclass(frozen=True, slots=True)
class ClampedOffset:
    """A committed offset that what is restored does not reach."""

    group: str
    partition: int
    committed: int
    offset: int
    """What it is set back to: the end of what was uploaded."""


Recoveries: TypeAlias = Mapping[Address, Recoverable | UserError]
"""By the address of the topic that is to be made: what is there, or why that cannot be."""


# What lies detached in object storage, who has what was, and what a mounting of a plan would take from there.


MIGRATING: Final = "MIGRATING"
"""What a cluster says of a topic that is being mounted or unmounted."""


@dataclass(frozen=True, slots=True)
class Mountable:
    """A topic that was ever detached. Sizes are those it had when it was detached last."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`: for life, the namespace included."""
    full_name: str
    """The name it was made with: what it is mounted by. An alias is never kept."""
    state: Literal["detached", "claimed", "mounted"]
    owner: str | None
    """Id of the cluster that mounts it or has it mounted; of a detached one, that of the last."""
    name: str
    """What its owner calls it, or called it last."""
    partitions: int = 0
    records: int = 0
    """In object storage; what its owner had not uploaded is not there."""
    bytes: int = 0
    at_ms: int | None = None
    """Since when it is so."""


@dataclass(frozen=True, slots=True)
class MountSource:
    """What a mounting of a plan takes."""

    location: str
    found: Recoverable | None
    """What lies there; `None`: it is attached still, and this plan detaches it first."""
    unmounts: Address | None = None
    """The mounting of this plan that detaches it."""


@dataclass(frozen=True, slots=True)
class MountedElsewhere:
    """Where a topic is that a command mounted under another name, or on another cluster."""

    location: str
    topic: Address | None
    """What it is called now; `None`: on a cluster that was not read."""
    owner: str
    """Id of that cluster."""
    name: str
    """What its owner calls it."""

    def __str__(self) -> str:
        """Say where."""
        return self.topic or f"{self.name} on cluster {self.owner}"


Mounts: TypeAlias = Mapping[Address, MountSource | UserError]
"""By the address of a mounting whose topic is not there yet: what it takes, or why that cannot be."""


# A migration as a cluster has it: topics on their way into object storage, or out of it.


Direction: TypeAlias = Literal["inbound", "outbound"]
"""Onto the cluster (a mount), or from it (an unmount)."""


@dataclass(frozen=True, slots=True)
class Migrant:
    """A topic that is mounted or unmounted."""

    full_name: str
    """What it is called on the cluster."""
    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, for life."""
    mounting: str | None
    """The Mounting that asked for it. Null: it was asked for by hand."""
    partitions: int | None = None
    """Null: it is not on the cluster, yet or any more."""
    is_closed: bool = False
    """Whether it takes and gives no records there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A migration of one cluster, as it is now."""

    id: int
    """Of that cluster: another one counts its own."""
    direction: Direction
    """inbound: a mount; outbound: an unmount."""
    state: str
    """A `lifecycles.MigrationState`; its table says what may be asked for then."""
    topics: tuple[Migrant, ...]
    created_ms: int
    completed_ms: int | None = None
    """Null: it has not come to an end."""
    bytes_left: int | None = None
    """Stored bytes still to be uploaded. Null: nothing is, or nothing more than was."""
    is_automatic: bool = True
    """Whether it continues by itself from state to state."""
    by_jobs: bool = False
    """Whether jobs of an apply do it: nobody else brings it further."""
    waits: tuple[str, ...] = ()
    """What keeps it from going on, as far as a look tells."""


def way_to_free(release: str, *, is_mounted: bool) -> str:
    """Return the hint for a topic that another cluster has mounted, or is mounting; `release` is the last resort."""
    cancel = "Cancel that mount, with its ID there: reconciler mount status, reconciler mount cancel ID."
    return f"{'Unmount it there first.' if is_mounted else cancel} Where that cluster is gone for good: {release}"


Phase: TypeAlias = Literal["whole", "prepare", "finish"]
"""How far a migration goes by hand: to its end; until its topics are prepared, and served as before; from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMigration:
    """A migration that is asked for by hand, of several topics at once."""

    direction: Direction
    topics: Mapping[str, str]
    """By the full names that they have or get here, where they lie."""
    phase: Phase = "whole"


# Configs that become a topic's own when it is mounted: nothing of it changes by what its new surroundings say.


_ONLY_AT_CREATION: Final = "remote.recovery"
_NO_LIMIT: Final = "-1"
_NO_LIMIT_UNLESS_SET: Final = frozenset({"initial.retention.local.target.bytes", "initial.retention.local.target.ms"})
_NO_DEFAULT_IF_UNSET: Final = frozenset({"local.retention.bytes", "local.retention.ms", "retention.local.target.ms"})
"""Where these are said other rules hold than where they are not, whatever they say."""


def pinned(
    around: Configs,
    own: Mapping[str, str],
    effective: Mapping[str, str],
    known: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS,
) -> dict[str, str]:
    """Return the configs a topic has of its own, so that under those `around` it all that held for it holds.

    `own` are those it had, `effective` all that were set for it: what is missing there had its default, as
    `known`. What is the same here stays inherited. Of two words for one thing the nearest hides others: each round may
    ask for another.
    """
    pins = dict(own)
    while missing := {
        key: value
        for key, value in _missing_configs(_layer_configs(around, pins), effective, known)
        if pins.get(key) != value
    }:
        pins |= missing
    before = {key: (value, "topic") for key, value in effective.items()}
    while missing := _missing_tiering(_layer_configs(around, pins), before):
        pins |= missing
    return dict(sorted(pins.items()))


def _layer_configs(around: Configs, own: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    layered = dict(around)
    lay_over(layered, own, "topic")
    return layered


def _missing_configs(
    now: Configs, effective: Mapping[str, str], known: Mapping[str, ConfigKey]
) -> list[tuple[str, str]]:
    """Return what does not hold now, as it would be written down."""
    missing = []
    for key in sorted({*now, *effective} - {_ONLY_AT_CREATION}):
        default = _default(key, known)
        before, after = effective.get(key, default), now[key][0] if key in now else default
        if before is not None and before != after:
            missing.append((key, before))
    return missing


def _default(key: str, known: Mapping[str, ConfigKey]) -> str | None:
    if key in _NO_LIMIT_UNLESS_SET:
        return _NO_LIMIT
    return known[key].default if key in known and key not in _NO_DEFAULT_IF_UNSET else None


def _missing_tiering(now: Configs, before: Configs) -> dict[str, str]:
    """Return what it takes that the tiering is as it was: not being set is no value that could be written down."""
    pins: dict[str, str] = {}
    if (switches := switches_in(before)) != switches_in(now):
        pins |= {"remote.write": str(switches.write).lower(), "remote.read": str(switches.read).lower()}
    if (policy := disable_policy_in(before)) != disable_policy_in(now):
        pins["remote.log.disable.policy"] = policy
    limits, now_limits = _limits(targets_in(before)), _limits(targets_in(now))
    changed = {key: _limit_text(limit) for key, limit in limits.items() if limit != now_limits[key]}
    # A total that a local target raises comes with that.
    return pins | ({key: value for key, value in changed.items() if "local" in key} or changed)


def _limits(targets: Targets) -> dict[str, int | None]:
    return {
        "retention.ms": targets.total_ms,
        "retention.bytes": targets.total_bytes,
        "retention.local.target.ms": targets.local_ms,
        "retention.local.target.bytes": targets.local_bytes,
    }


def _limit_text(value: int | None) -> str:
    return _NO_LIMIT if value is None else str(value)


def told(configs: Configs) -> dict[str, str]:
    """Return configs without where each comes from, as they are told to who mounts the topic.

    A local target of the cluster's is told as it holds, no longer than the total: as a topic's own it would raise that.
    """
    values = {key: value for key, (value, _) in configs.items()}
    key = "retention.local.target.ms"
    if key in configs and configs[key][1] == CLUSTER:
        local_ms = targets_in(configs).local_ms
        values[key] = configs[key][0] if local_ms is None else str(local_ms)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopics:
    """What object storage has for a plan."""

    recoveries: Recoveries = field(default_factory=dict)
    """The new topics that are to be made from it."""
    mounts: Mounts = field(default_factory=dict)
    """What the mountings take whose topics are not there yet."""
    detached: Mapping[Address, str] = field(default_factory=dict)
    """Where recorded topics are stored that a command unmounted; for an order, also others whose names it takes."""
    mounted_elsewhere: Mapping[Address, MountedElsewhere] = field(default_factory=dict)
    """Recorded topics that are gone, and mounted under another name by a command."""
