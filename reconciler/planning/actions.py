"""The closed union of plan actions, and the estimates they carry.

Every consumer is a `match` that ends in `assert_never`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler.lifecycles import MOUNT, UNMOUNT
from reconciler.resources.address import Address, address_of, cluster_of
from reconciler.resources.inventory import Resource
from reconciler.resources.mirrors import Stretch, length_of
from reconciler.resources.owners import ResourceOwner

# What an action is expected to cost, and why a guard refuses it.


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets of one partition, `start` to before `stop`, that nobody could read any more, and their stored bytes."""

    topic: Address
    partition: int
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RoleCost:
    """What another role of a mirror costs, as both of its sides were when they were looked at."""

    lost: tuple[Stretch, ...] = ()
    """What nobody can read any more: by a failover what its source alone has, by a restore what is cut off."""
    behind: tuple[Stretch, ...] = ()
    """What a promotion or a reversal copies first."""
    lost_ms: int | None = None
    """For a failover that loses records: how much older its newest record is than that of its source."""
    unknown: str | None = None
    """Why neither can be told."""
    fetched: tuple[tuple[int, int], ...] = ()
    """(partition, the last offset that was copied of it), where nothing else is known; -1: none ever was."""
    groups_set_back: tuple[str, ...] | None = ()
    """Consumer groups that have read beyond where a restore cuts; `None`: we cannot tell."""
    timeout_ms: int | None = None
    """A promotion is given up where what is behind does not shrink for so long."""
    records: int | None = None
    """How many records are lost or kept by a restore, where they were counted; `None`: offsets say it."""
    since_ms: int | None = None
    """The earliest time of one of them; `None`: we cannot tell."""
    kept: tuple[Stretch, ...] = ()
    """What only this topic has and a restore keeps."""
    kept_in: str | None = None
    """The full name of the topic that keeps it."""
    copied_afresh: tuple[int, ...] = ()
    """The partitions that a restore empties and copies anew, as no broker cuts the end of a log."""

    @property
    def lost_offsets(self) -> int | None:
        """How much is lost; `None`: we cannot tell."""
        return None if self.unknown is not None else length_of(self.lost)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an action is expected to move or remove."""

    bytes: int = 0
    records: int = 0
    seconds: int = 1
    groups: tuple[str, ...] | None = ()
    """Consumer groups that are reading it; `None`: we cannot tell."""
    uploads: int = 0
    """Stored bytes that `run` would copy to object storage."""
    unreadable: tuple[Unreadable, ...] = ()
    """What lies in object storage alone, and would be deleted there."""
    location: str | None = None
    """Where the remote objects of a topic lie that is deleted, mounted or unmounted, or forgotten while unmounted."""
    partitions: int = 0
    """Of a topic that is mounted or unmounted, or whose replicas move."""
    no_writes_seconds: int = 0
    """For about so long nobody can write to a topic that is unmounted and exists still; a rough guess."""
    role: RoleCost | None = None
    """Of a mirror that gets another role; `None`: that neither loses nor copies anything."""
    replicated: int = 0
    """Stored bytes that brokers copy to each other for another replication factor, where that was measured."""
    engine: str = ""
    """Where a job will run by what was measured: `in process`, `Spark local[*]`; empty where that cannot be told."""


NO_COST: Final = Estimate()
"""That of an action that moves and removes nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why a guard refuses an action, and the `VERB:ADDR` that would allow it (`None`: nothing does)."""

    guard: str
    message: str
    allow: str | None
    instead: str | None = None
    """The document to declare in place of it, as one line of YAML, where that loses nothing."""


Scalar: TypeAlias = str | int | bool | None
"""A leaf of a resource: config values are the string the platform stores."""

Value: TypeAlias = Scalar | tuple[object, ...] | Mapping[str, object]


class Risk(StrEnum):
    """What an action may cost, mildest first."""

    NONE = "none"
    DISRUPTIVE = "disruptive"
    IRREVERSIBLE = "irreversible"
    DATA_LOSS = "data-loss"


class Reason(StrEnum):
    """Why an action is planned, or why it carries its risk."""

    DECLARED = "declared"
    CHANGED = "changed"
    DRIFTED = "drifted"
    NO_LONGER_DECLARED = "no_longer_declared"
    ADOPTED_DIFFERS = "adopted_differs"
    ALREADY_EXISTS = "already_exists"
    ALREADY_GONE = "already_gone"
    IMPLIED_BY_TIER = "implied_by_tier"
    MOVED = "moved"
    READDRESSED = "readdressed"
    DESTROYED = "destroyed"
    CLUSTER_REMOVED = "cluster_removed"
    PARTITIONS_INCREASE = "partitions_increase"
    RETENTION_LOWERED = "retention_lowered"
    DELETE_ADDED = "delete_added"
    COMPACT_ADDED = "compact_added"
    """Records go that later ones of their keys supersede."""
    HOLDS_DATA = "holds_data"
    UNMEASURED = "unmeasured"
    FIRST_COPY = "first_copy"
    MISSING = "missing"
    RECREATED = "recreated"
    RECORD_ONLY = "record_only"
    """Nothing is done on the platform: what we remember of it changes."""
    ROLE_WANTED = "role_wanted"
    FIRST_RULE = "first_rule"
    """Everyone may until now; from the first access rule on only who is allowed."""
    LAST_RULE = "last_rule"
    """Only who is allowed may until now; without any access rule everyone may."""
    BECOMES_UNREADABLE = "becomes_unreadable"
    """What lies in object storage alone is deleted there."""
    REMOTE_DELETED = "remote_deleted"
    """What it has in object storage goes with it."""
    REMOTE_KEPT = "remote_kept"
    """What it has in object storage stays, and can be recovered."""
    REPLACED = "replaced"
    """What it is never changes in place: it is deleted and made again, as something else."""
    SOURCE_KEPT = "source_kept"
    """It only reads another topic, which keeps every record."""
    UPLOADS = "uploads"
    """What is there already is copied to object storage."""
    REPLICAS_MOVE = "replicas_move"
    """Brokers copy it to each other, or drop their copies: for another replication factor."""
    ONLY_A_PREFIX = "only_a_prefix"
    """Others' topics begin as it does, and nothing else of it is there: it is ours from the start."""
    RECOVERED = "recovered"
    """Made from what object storage has of it."""
    BY_COMMAND = "by_command"
    """A command asked for it: the record stays as it was, so that the next plan finds what differs."""
    LAST_ALLOWANCE = "last_allowance"
    """What is left of the access rules only denies: nobody may any more."""


SEALED: Final = "sealed"
"""The path of a change that takes the seal off a topic: its brokers refuse every record while it is on."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that moves. `drift`: the cluster moved away from what we last applied, not the files."""

    path: str
    before: Value
    after: Value
    drift: bool = False
    origin: str | None = None
    """The address or file the new value comes from, where that is not the resource itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What every action carries."""

    address: Address
    risk: Risk = Risk.NONE
    reasons: tuple[Reason, ...] = ()
    depends_on: tuple[str, ...] = ()
    wave: int = 1
    estimate: Estimate = NO_COST
    source: str | None = None
    """Where it was declared: `manifests/topics.yaml:88`."""
    precondition: str = ""
    """`sha256:…` of the live fields the decision rests on; empty where it rests on absence."""
    blocked: Block | None = None
    granted_by: str | None = None
    """The `--allow` or the reviewed allowance that lifted a block."""
    owner: ResourceOwner | None = None
    """Another workspace that owns it; `None`: it is free, or ours."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Field path of `after` → where its value comes from, where that is not the resource itself; kept in the record."""

    @property
    def cluster(self) -> str | None:
        """The cluster it acts on."""
        return cluster_of(self.address)

    @property
    def verb(self) -> str:
        """The word before its address."""
        return type(self).__name__.lower()

    @property
    def id(self) -> str:
        """Verb and address: never a position."""
        return f"{self.verb}:{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(_Step):
    """Make what does not exist.

    `parameters` of a mirror are what it takes from its source: `partitions`, `configs`, `incarnation` (of the source).
    """

    after: Resource
    parameters: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(_Step):
    """Change in place, field by field.

    Providers act on `changes` alone (`after=None` resets a key): what `after` does not name is left alone.
    """

    before: Resource
    after: Resource
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(_Step):
    """Remove what we own; bound to the incarnation where the platform can."""

    before: Resource
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(_Step):
    """Own what already exists; no platform is called.

    `after` is what the record will say: the declared fields, as they are observed. `moved_from`: its record, where it
    was ours under another name. `changes`: what of the record changes, where it is ours already (`protect` …).
    """

    observed: Resource
    after: Resource
    changes: tuple[Change, ...] = ()
    incarnation: str | None = None
    physical_name: str | None = None
    moved_from: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(_Step):
    """Stop owning, leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition(_Step):
    """A legal move of a lifecycle: mount, promote, failover …, or a topic's move between namespaces.

    `parameters` of a mirror's are there where it is asked of the mirror on the other cluster, which no entry names:
    `entry`, the address of the entry it is for, and `role`, what that says. `changes` are the fields that move with
    it: where the tiering of a topic is switched off or on again.
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
    """A Spark job over topic logs: `source` and `sink` are topic addresses; `declared_at` is its place in the files.

    A topic that moves where none can be renamed is moved by two jobs, one after the other, and then deleted. Both have
    the `parameters` `incarnation`, of the source: another one of its name is never copied; and `partitioning`: `same`,
    partition by partition and in order, or `by-key`, where the sink has another number of partitions: order is kept by
    key. `move` copies to the end and compares; it finds what an earlier run copied. `switch-groups` copies what came
    since, fails where somebody writes to the source still, and gives each group its place in the sink: by the exact
    offset map, or, by key, the earliest record of each partition that the group has not read.

    `mount` and `unmount` are migrations that a command asks for: of `topics`, full names here with where they lie, as
    far as `phase` says. Address, source and sink are the first of them.
    """

    job: str
    source: Address
    sink: Address
    parameters: Mapping[str, Value] = field(default_factory=dict)
    declared_at: str | None = None

    @property
    def is_migration(self) -> bool:
        """Whether it is a mount or unmount that a command asks for."""
        return self.job in {MOUNT.name, UNMOUNT.name}

    @property
    def verb(self) -> str:
        """The word before its address."""
        return self.job


Action: TypeAlias = Create | Update | Delete | Adopt | Forget | Transition | RunJob


def is_dangerous(action: Action) -> bool:
    """Tell whether a reader must look at an action before agreeing."""
    return action.risk is not Risk.NONE or action.blocked is not None or Reason.ADOPTED_DIFFERS in action.reasons


def addresses_of(action: Action) -> tuple[Address, ...]:
    """Return the resources that an action changes: of topics that are mounted or unmounted together, all."""
    topics = action.parameters["topics"] if isinstance(action, RunJob) and action.is_migration else None
    if not isinstance(topics, Mapping):
        return (action.address,)
    return tuple(address_of("topic", action.cluster or "", name) for name in topics)


ControlAction: TypeAlias = Create | Update | Delete | Transition
"""What a provider is asked to do; `Adopt` and `Forget` change only the state, `RunJob` goes to the jobs."""

ACTIONS: Final[Mapping[str, type[Action]]] = {
    "create": Create,
    "update": Update,
    "delete": Delete,
    "adopt": Adopt,
    "forget": Forget,
    "transition": Transition,
    "job": RunJob,
}
"""What `action` may be in JSON, and the kinds a summary counts."""
