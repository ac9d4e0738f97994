"""Actions of a plan, with reasons, estimates and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler.lifecycles import MOUNT, UNMOUNT
from reconciler.resources.address import Address, address_of, cluster_of
from reconciler.resources.inventory import Resource
from reconciler.resources.mirrors import OffsetStretch, count_offsets
from reconciler.resources.owners import ResourceOwner
from reconciler.runtime.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets `start` to `stop` - 1 of a partition that an action makes unreadable, and their size in bytes."""

    topic: Address
    partition: int
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RoleCost:
    """Cost of a mirror's role change."""

    lost: tuple[OffsetStretch, ...] = ()
    """Lost offsets: those that only the source has for a failover, truncated offsets for a restore."""
    behind: tuple[OffsetStretch, ...] = ()
    """Offsets that a promotion or reversal copies."""
    lost_ms: int | None = None
    """For a failover with losses, time in ms by which the mirror's newest record is older than the source's."""
    unknown: str | None = None
    fetched: tuple[tuple[int, int], ...] = ()
    """(partition, last copied offset or -1) if the source cannot be read."""
    groups_set_back: tuple[str, ...] | None = ()
    """Consumer groups that read truncated records, or `None` if unknown."""
    timeout_ms: int | None = None
    """Time in ms without a shrinking lag after which a promotion fails, if any."""
    records: int | None = None
    """Number of records that a restore loses or keeps, if known."""
    since_ms: int | None = None
    """Earliest timestamp in ms of these records, if known."""
    kept: tuple[OffsetStretch, ...] = ()
    """Offsets of records only in this topic that a restore keeps."""
    kept_in: str | None = None
    """Full name of the topic to which a restore copies these records."""
    copied_afresh: tuple[int, ...] = ()
    """Partitions that a restore empties and copies again."""

    @property
    def lost_offsets(self) -> int | None:
        """Number of lost offsets; `None` if unknown."""
        return None if self.unknown is not None else count_offsets(self.lost)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected amounts that an action moves or removes."""

    bytes: int = 0
    records: int = 0
    seconds: int = 1
    groups: tuple[str, ...] | None = ()
    """Groups that read the topic, or `None` if unknown."""
    uploads: int = 0
    """Bytes that the next `reconciler run` copies to object storage."""
    unreadable: tuple[Unreadable, ...] = ()
    """Deleted offsets that only object storage has."""
    location: str | None = None
    partitions: int = 0
    """Number of mounted or unmounted partitions, or partitions whose replicas move."""
    no_writes_seconds: int = 0
    """Approximate time without writes during an unmount."""
    role: RoleCost | None = None
    replicated: int = 0
    """Bytes that brokers copy for a new replication factor."""
    engine: str = ""
    """Where a job runs, such as `Spark local[*]`; empty if unknown."""


NO_COST: Final = Estimate()


@dataclass(frozen=True, slots=True)
class Block:
    """Why a guard blocks an action. `allow` is the allowance `VERB:ADDR` that lifts the block, if any."""

    guard: str
    message: str
    allow: str | None
    instead: str | None = None
    """Alternative manifest that loses nothing, as one line of YAML."""


Scalar: TypeAlias = str | int | bool | None
"""A value of a resource. Config values are strings."""

Value: TypeAlias = Scalar | tuple[object, ...] | Mapping[str, object]


class Risk(StrEnum):
    """Possible cost of an action, mildest first."""

    NONE = "none"
    DISRUPTIVE = "disruptive"
    IRREVERSIBLE = "irreversible"
    DATA_LOSS = "data-loss"


class Reason(StrEnum):
    """Why an action is planned or has its risk."""

    DECLARED = "declared"
    CHANGED = "changed"
    DRIFTED = "drifted"
    NO_LONGER_DECLARED = "no_longer_declared"
    ADOPTED_DIFFERS = "adopted_differs"
    ALREADY_EXISTS = "already_exists"
    ALREADY_GONE = "already_gone"
    FORCED = "forced"
    """A link is deleted with the mirrors that it made itself, because an allowance names it."""
    IMPLIED_BY_TIER = "implied_by_tier"
    MOVED = "moved"
    READDRESSED = "readdressed"
    DESTROYED = "destroyed"
    CLUSTER_REMOVED = "cluster_removed"
    PARTITIONS_INCREASE = "partitions_increase"
    RETENTION_LOWERED = "retention_lowered"
    DELETE_ADDED = "delete_added"
    COMPACT_ADDED = "compact_added"
    HOLDS_DATA = "holds_data"
    UNMEASURED = "unmeasured"
    FIRST_COPY = "first_copy"
    MISSING = "missing"
    RECREATED = "recreated"
    RECORD_ONLY = "record_only"
    ROLE_WANTED = "role_wanted"
    FIRST_RULE = "first_rule"
    """The first access rule ends access for all other principals."""
    LAST_RULE = "last_rule"
    """Without access rules, every principal has access."""
    BECOMES_UNREADABLE = "becomes_unreadable"
    """Records that only object storage has are deleted."""
    REMOTE_DELETED = "remote_deleted"
    REMOTE_KEPT = "remote_kept"
    REPLACED = "replaced"
    SOURCE_KEPT = "source_kept"
    UPLOADS = "uploads"
    REPLICAS_MOVE = "replicas_move"
    ONLY_A_PREFIX = "only_a_prefix"
    """The namespace exists only as a prefix of topic names."""
    RECOVERED = "recovered"
    BY_COMMAND = "by_command"
    """A command requested the action. The record stays unchanged."""
    LAST_ALLOWANCE = "last_allowance"
    """Only rules that deny access remain, so no principal has access."""


START_OFFSETS: Final = "startOffsets."
"""Prefix of the paths of a trim's changes; a partition number follows."""

SEALED: Final = "sealed"
"""Path of a seal, which closes a topic to producers during a move or unmount."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed field. `drift`: the cluster changed since the last apply, but the files did not."""

    path: str
    before: Value
    after: Value
    drift: bool = False
    origin: str | None = None
    """Address or file that declares the new value, if not the resource itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    address: Address
    risk: Risk = Risk.NONE
    reasons: tuple[Reason, ...] = ()
    depends_on: tuple[str, ...] = ()
    wave: int = 1
    estimate: Estimate = NO_COST
    source: str | None = None
    """Position of the declaration: `manifests/topics.yaml:88`."""
    precondition: str = ""
    """`sha256:…` of the observed fields that the action depends on; empty for a missing resource."""
    blocked: Block | None = None
    granted_by: str | None = None
    """The `--allow` or reviewed allowance that lifted a block."""
    owner: ResourceOwner | None = None
    """Another workspace that owns the resource, if any."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Origins of values in `after` by field path, if not the resource itself."""

    @property
    def cluster(self) -> str | None:
        return cluster_of(self.address)

    @property
    def verb(self) -> str:
        return type(self).__name__.lower()

    @property
    def id(self) -> str:
        return f"{self.verb}:{self.address}"


HALF: Final = "half"
"""Parameter of the creation of a link's half that a platform makes otherwise: that of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(_Step):
    """Create a resource.

    A mirror's `parameters` come from its source: `partitions`, `configs` and the source's `incarnation`.
    A link's have `HALF`.
    """

    after: Resource
    parameters: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(_Step):
    """Change fields in place. Providers apply only `changes`. A change with `after=None` resets the key."""

    before: Resource
    after: Resource
    changes: tuple[Change, ...]

    @property
    def start_offsets(self) -> dict[int, int]:
        """New first offsets of a trim, by partition."""
        return {
            int(change.path.removeprefix(START_OFFSETS)): change.after
            for change in self.changes
            if change.path.startswith(START_OFFSETS) and isinstance(change.after, int)
        }

    @property
    def is_trim(self) -> bool:
        """Whether it only deletes a topic's first records: all paths have `START_OFFSETS`."""
        return self.changes != () and self.changes[0].path.startswith(START_OFFSETS)

    @property
    def verb(self) -> str:
        """First part of the action's id, before the address."""
        return "trim" if self.is_trim else "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(_Step):
    """Delete an owned resource, if it still has the `incarnation`."""

    before: Resource
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(_Step):
    """Record an existing resource as owned, without changing the resource.

    `after` has the declared fields with observed values. `moved_from` is the previous recorded address.
    """

    observed: Resource
    after: Resource
    changes: tuple[Change, ...] = ()
    incarnation: str | None = None
    physical_name: str | None = None
    moved_from: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(_Step):
    """Remove a resource from the record without changing the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition(_Step):
    """A lifecycle transition such as mount or promote, or a topic's move between namespaces.

    For a verb on the other cluster's mirror, `parameters` have the declared mirror as `entry`, and its `role`.
    """

    machine: str
    verb: str = field()
    from_state: str
    to_state: str
    after: Resource
    parameters: Mapping[str, Value] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob(_Step):
    """A job over topic logs. `source` and `sink` are topic addresses.

    Two jobs move a topic that cannot be renamed. `move` copies and compares all records. `switch-groups` copies later
    records, sets consumer offsets, and fails if producers still write to the source. With `by-key` partitioning, the
    sink has another number of partitions.

    `mount` and `unmount` are migrations that a command requests. `parameters["topics"]` maps full names to locations.
    """

    job: str
    source: Address
    sink: Address
    parameters: Mapping[str, Value] = field(default_factory=dict)
    declared_at: str | None = None

    @property
    def is_migration(self) -> bool:
        """Whether the job is a mount or unmount that a command requested."""
        return self.job in {MOUNT.name, UNMOUNT.name}

    @property
    def verb(self) -> str:
        """First part of the action's id, before the address."""
        return self.job


Action: TypeAlias = Create | Update | Delete | Adopt | Forget | Transition | RunJob


def is_dangerous(action: Action) -> bool:
    """Return whether a reviewer must check an action before approval."""
    return action.risk is not Risk.NONE or action.blocked is not None or Reason.ADOPTED_DIFFERS in action.reasons


def list_changed_addresses(action: Action) -> tuple[Address, ...]:
    """Return the resources that an action changes."""
    topics = action.parameters["topics"] if isinstance(action, RunJob) and action.is_migration else None
    if not isinstance(topics, Mapping):
        return (action.address,)
    return tuple(address_of("topic", action.cluster or "", name) for name in topics)


ControlAction: TypeAlias = Create | Update | Delete | Transition
"""Actions that providers execute."""

ACTIONS: Final[Mapping[str, type[Action]]] = {
    "create": Create,
    "update": Update,
    "delete": Delete,
    "adopt": Adopt,
    "forget": Forget,
    "transition": Transition,
    "job": RunJob,
}
"""Action class by the name of its kind."""
