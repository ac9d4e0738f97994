"""What every platform must do. Calls are idempotent, observing changes nothing, actions come in batches.

Each provider folder repeats the same file names: `provider.py` (this protocol), `client.py` (the wire),
`translate.py` (our words ↔ theirs, pure), `faults.py` (their errors → ours). A file may be missing, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from reconciler.errors import ReconcilerError, UserError
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from reconciler.planning.actions import ControlAction
    from reconciler.records.log import Bounds, Isolation, Lost, StagedSink, TopicLog, TopicProducer, TransactionalSink
    from reconciler.resources.capabilities import Capabilities, ClusterIdentity
    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.measures import Measures
    from reconciler.resources.migration import Migration
    from reconciler.resources.mountable import Mountable
    from reconciler.resources.overviews import Overview
    from reconciler.resources.recoverable import Recoverable, Recoveries
    from reconciler.resources.sourcetopic import SourceTopic
    from reconciler.resources.storages import TopicStorage
    from reconciler.resources.vitals import Vitals

TopicAddress: TypeAlias = Address
"""An address whose kind is `topic`; mirrors and mounted topics are read as topics too."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What only the edge of the program may read, handed down: nothing below reads clocks, ids or the environment."""

    folder: Path
    """The folder of `reconciler.yaml`: relative locations start here."""
    environ: Mapping[str, str]
    new_id: Callable[[], str]
    """Makes the ids of clusters and topics (UUID4)."""
    now_ms: Callable[[], int]
    principal: str | None = None
    """Who acts on an embedded cluster; `None` is the super user."""
    host: str = "*"
    """Where they act from; `*`: nobody knows, and only rules for all hosts are about them."""
    is_reader: bool = False
    """Nothing may be written: providers are opened so that they cannot."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What to observe: patterns over addresses; empty is everything."""

    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """An action that is complete and durable on the platform."""

    id: str
    incarnation: str | None = None
    physical_name: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An action the platform refused; the others of its batch stand for themselves."""

    id: str
    error: ReconcilerError


Outcome: TypeAlias = Done | Failed


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the partitions of a topic begin and end, and what they hold together; `None`: the platform does not say."""

    bounds: Mapping[int, Bounds]
    records: int | None
    bytes: int | None
    """Each record counted once, wherever it lies."""
    storage: TopicStorage | None = None
    """What lies in which tier; `None`: the platform has no tiers."""


def go_on() -> None:
    """Go on: whoever calls holds no lease that could be lost."""


class GroupsOfCluster(Protocol):
    """The consumer groups of one cluster. Offsets go by (full name of the topic, partition)."""

    def names(self) -> Sequence[str]:
        """Return the names of all groups, sorted, in one bulk call."""
        ...

    def describe(self, group: str) -> ConsumerGroup:
        """Return what a group has committed, its lag, and whether it is reading.

        Raises:
            UserError: There is no such group.
        """
        ...

    def of_topic(self, full_name: str) -> Sequence[ConsumerGroup] | None:
        """Return the groups that have offsets of a topic, each of that topic alone; `None`: too many to ask."""
        ...

    def reading(self) -> Mapping[str, Sequence[str]] | None:
        """Return the groups that are reading each topic; `None`: too many to ask. Bounded, for plans."""
        ...

    def committed(self, group: str, topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return where a group goes on reading; what it never committed is absent."""
        ...

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the next offsets a group wants to read.

        Raises:
            UserError: A namespace, topic or partition does not exist.
        """
        ...

    def moves(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> Sequence[OffsetMove]:
        """Return what a reset would set, what stays left out; changes nothing. Without `topic`: all the group has."""
        ...

    def move(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets.

        Raises:
            BlockedError: The group is reading one of the topics, and `force` is not set.
        """
        ...

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Forget a group, or what it has of one topic; say whether there was anything.

        Raises:
            BlockedError: It is reading, and `force` is not set.
        """
        ...


class MigrationsOfCluster(Protocol):
    """The mounts and unmounts of one cluster, and who owns what lies in its object storage."""

    def under_way(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return the migrations that there is a record of, by id; one that came to its end has none. Changes nothing.

        Left out are those of topics that whoever acts may not know of. Without `is_measured` nothing is said of what
        is left to upload, nor of what keeps one: the catalog alone is read.
        """
        ...

    def ask(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = go_on) -> Migration:
        """Ask for a verb of the table and return what the migration is then; what is cancelled is driven to its end.

        `may_go_on` is asked before every write, from any thread, and may raise.

        Raises:
            UserError: There is none, or that is not legal in its state: it says what is.
            IncompleteError: It was asked for, and did not come to its end: it goes on in `run`.
        """
        ...

    def detached(self) -> Iterator[tuple[str, Mountable | UserError]]:
        """Yield every topic that was ever detached in the object storage, by its place there; or why that is no use.

        The cluster itself need not be there.

        Raises:
            UserError: There is no object storage, or whoever acts is not the super user.
        """
        ...

    def releasable(self, location: str, owner: str) -> Mountable:
        """Return what a release would make mountable, as it is now; changes nothing.

        Raises:
            UserError: There is no such topic, it has another owner or none, or whoever acts is not the super user.
        """
        ...

    def release(self, location: str, owner: str) -> Mountable:
        """Take a topic from an owner that will not come back, and return it. Doing it twice does it once.

        Raises:
            UserError: As of `releasable`.
        """
        ...


W = TypeVar("W", bound="Costly")
R = TypeVar("R")


class Costly(Protocol):
    """A piece of work that says about how much it costs, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...


class Spread(Protocol):
    """Does much work on executors and yields what came of it in rounds: it takes seconds to begin."""

    def __call__(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Do all of it; `do` and the work are pickled, and what is asked for in between is published by the caller.

        Raises:
            ReconcilerError: It cannot go on; what was yielded stands.
        """
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What upkeep of a cluster is given beside the cluster."""

    spread: Spread
    is_wanted: Callable[[Address], bool]
    """Which topics and mirrors it may touch."""
    is_stopped: Callable[[], bool]
    is_asked: bool = True
    """Whether somebody waits for it; otherwise what is expensive to look for is looked for now and then."""
    is_named: bool = False
    """Whether somebody named the jobs to do: what is due once a day is done at once."""


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one job of upkeep did on one cluster. `done` counts `unit`s: partitions, topics, transactions, objects."""

    unit: str
    done: int = 0
    records: int = 0
    """Removed, or written anew where the job removes nothing; `bytes` likewise, stored bytes."""
    bytes: int = 0
    failed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    """Some of what failed; the rest was done."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What it did with object storage, by the names of `vitals.COUNTED`."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """What holds after it, by the names of `vitals.LEVELS`."""


class Provider(Protocol):
    """One cluster of one platform."""

    @property
    def capabilities(self) -> Capabilities:
        """The limits of this platform and version."""
        ...

    def identify(self) -> ClusterIdentity | None:
        """Return which cluster answers; `None` where there is none yet (embedded only).

        Raises:
            RetryableError: It cannot be reached.
        """
        ...

    def observe(self, scope: Scope) -> Inventory:
        """Return what is there, in a handful of bulk requests. Changes nothing."""
        ...

    def check_shown(self, address: Address) -> None:
        """Return if whoever acts may know whether a namespace or topic is there.

        Raises:
            NotAuthorizedError: They may not, be it there or not.
        """
        ...

    def overview(self) -> Overview:
        """Return names and shapes of what is there, as lightly as the platform can. Changes nothing."""
        ...

    def apply(self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = go_on) -> Iterator[Outcome]:
        """Do a batch of independent actions and yield one outcome each. Doing one twice does it once.

        `may_go_on` is asked before every attempt that changes something: a call may have waited, or tried before.

        Raises:
            LeaseError: By `may_go_on`; nothing was done since it was last asked.
        """
        ...

    def measure(self, addresses: Sequence[Address]) -> Measures:
        """Return sizes of topics, without Spark; what could not be measured is absent."""
        ...

    @property
    def groups(self) -> GroupsOfCluster:
        """The consumer groups of this cluster."""
        ...

    def recoverable(self, topics: Mapping[TopicAddress, str | None]) -> Recoveries:
        """Return what new topics could be made from: each by its location in object storage, `None`: by its name.

        Why one cannot be is returned, too; the cluster itself need not be there.

        Raises:
            RetryableError: The object storage cannot be reached.
        """
        ...

    def archived(self, cluster_id: str | None = None) -> Iterator[tuple[str, Recoverable | UserError]]:
        """Yield every topic that one cluster made and lies in object storage, by its place; or why it is no use.

        Looks at nothing else: the cluster may be gone. `None`: the one cluster that has topics there.

        Raises:
            UserError: There is no object storage, it may not be listed, has topics of several clusters, or of others.
        """
        ...

    def mountable(self) -> Sequence[Mountable]:
        """Return every topic that was ever detached in the object storage of this cluster, whoever has it now, sorted.

        Raises:
            UserError: There is no object storage, or what it says cannot be read.
            RetryableError: It cannot be reached.
        """
        ...

    @property
    def migrations(self) -> MigrationsOfCluster:
        """The mounts and unmounts of this cluster."""
        ...

    def standing(self, topic: TopicAddress) -> Standing:
        """Return what a topic holds, by one look at each partition.

        Raises:
            UserError: It does not exist.
        """
        ...

    def storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield what topics and mirrors take in each tier, in their order; reads no records.

        Raises:
            UserError: One does not exist.
        """
        ...

    def vitals(self) -> Vitals:
        """Return what the cluster's instruments say, bounded; reads no records."""
        ...

    def source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return what mirrors of a topic follow.

        Raises:
            UserError: It does not exist.
        """
        ...

    def follow_source(self, mirror: Address, source: SourceTopic) -> None:
        """Bring a mirror's partitions and synced configs to what its source has: before every catch-up, never planned.

        Raises:
            UserError: It is no mirror, or its source was deleted and made anew.
        """
        ...

    def log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[Lost], None] | None = None,
    ) -> TopicLog:
        """Return the records of a topic.

        `on_missing` is told of offsets that are lost, and reading goes on after them; without it, it fails there.
        """
        ...

    def producer(self, topic: TopicAddress) -> TopicProducer:
        """Return where new records of a topic go in.

        Raises:
            UserError: It does not exist, or it is a mirror: only its link writes to it.
        """
        ...

    def sink(self, topic: TopicAddress) -> StagedSink | TransactionalSink:
        """Return where records of a topic are written."""
        ...

    def upkeep(self, means: Means) -> Mapping[str, Callable[[], Upkept]]:
        """Return what the platform needs done now and then, by job, for one pass; nothing is done yet."""
        ...
