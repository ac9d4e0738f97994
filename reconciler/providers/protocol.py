"""The protocol of every platform: observe, act, links, mounts, groups, maintenance.

Each provider folder repeats the same file names: `provider.py` (this protocol), `client.py` (the wire),
`translate.py` (our words ↔ theirs, pure), `faults.py` (their errors → ours). A file may be missing, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from reconciler.errors import ReconcilerError, UserError
from reconciler.resources.address import Address, matches
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage, Vitals
from reconciler.resources.mount import Mountable, Recoverable, Recoveries
from reconciler.runtime.retry import go_on

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.protocol_links import Links, LinksByJobs
    from reconciler.providers.protocol_moves import Migrations
    from reconciler.records.log import (
        AppendSink,
        Bounds,
        Isolation,
        LostOffsets,
        StagedSink,
        TopicLog,
        TopicProducer,
        TransactionalSink,
    )
    from reconciler.resources.acls import Binding
    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset
    from reconciler.resources.inventory import Capabilities, ClusterIdentity, ClusterMetadata, Inventory, Overview
    from reconciler.resources.mirrors import SourceTopic
    from reconciler.resources.owners import OwnerChange, ResourceOwner


NO_REPLICAS: Mapping[Address, str] = MappingProxyType({})
TopicAddress: TypeAlias = Address
"""An address whose kind is `topic`; mirrors and mounted topics are read as topics too."""


def silent(_text: str) -> None:
    """Print nothing."""


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
    declared: frozenset[Address] = frozenset()
    """What the files name. Platforms without namespaces find ours by it: a flat name belongs to the longest namespace
    that is declared or recorded and whose prefix it has."""
    is_reader: bool = False
    """Nothing may be written: providers are opened so that they cannot."""
    warn: Callable[[str], None] = silent
    """Takes one line for people: what a call waits for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What to observe: patterns over addresses; empty is everything."""

    patterns: tuple[str, ...] = ()
    recorded: frozenset[Address] = frozenset()
    """What we have applied: a namespace of it is there even where nothing is in it."""


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
    made: Done | None = None
    """What a `Create` made before its access rules were refused: it is ours, and lacks them."""


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

    def unplaced(self) -> Sequence[Binding]:
        """Return the access rules of no topic and no known namespace: `observe` has them nowhere."""
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

    def own(self, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        """Write who owns what, and return what of `change.take` another owns: then nothing was written.

        Of two that take the same at once, one wins. Who owns what is observed with the cluster (`Observed.owners`).

        Raises:
            NotAuthorizedError: Whoever acts may not write it.
            UnansweredError: It may have been written.
            RetryableError: The cluster does not answer; nothing was written.
        """
        ...

    def measure(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Return sizes of topics, without Spark; what could not be measured is absent."""
        ...

    @property
    def groups(self) -> Groups | None:
        """The consumer groups of this cluster; `None`: its platform has none."""
        ...

    @property
    def archives(self) -> Archives | None:
        """The topics in the object storage of this cluster; `None`: its platform can make none from there."""
        ...

    @property
    def migrations(self) -> Migrations | None:
        """The mounts and unmounts of this cluster; `None`: its topics are not mounted."""
        ...

    @property
    def links(self) -> Links | None:
        """The links whose destination is this cluster, and their mirrors; `None`: its platform has none."""
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

    def learn(self, addresses: Iterable[Address]) -> None:
        """Take note of topics that others speak of, such as the sources of mirrors of another workspace.

        Where a platform has no namespaces, it reads its flat names by what it knows of them.
        """
        ...

    def source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return what mirrors of a topic follow.

        Raises:
            UserError: It does not exist.
        """
        ...

    def log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[LostOffsets], None] | None = None,
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

    def appends(self, topic: TopicAddress) -> AppendSink | None:
        """Return where many tasks stage new records of a topic, which one publication makes readable.

        `None`: its platform publishes only what one producer wrote.

        Raises:
            UserError: It does not exist, or it is a mirror.
        """
        ...

    def sink(self, topic: TopicAddress) -> StagedSink | TransactionalSink:
        """Return where records of a topic are written."""
        ...

    @property
    def maintenance(self) -> Callable[[MaintenancePorts], Mapping[str, Callable[[], Upkept]]] | None:
        """What the platform needs done now and then, by job, for one pass, begun by a call; `None`: nothing."""
        ...


Part = TypeVar("Part")


def part_of(provider: Provider, part: Part | None, what: str) -> Part:
    """Return a part of a cluster.

    Raises:
        UserError: Its platform has none.
    """
    if part is None:
        message = f"a {provider.capabilities.platform} cluster has no {what}"
        raise UserError(message, hint="Name a cluster of another platform.")
    return part


def groups_of(provider: Provider) -> Groups:
    """Return the consumer groups of a cluster, as `part_of` does."""
    return part_of(provider, provider.groups, "consumer groups")


def links_of(provider: Provider) -> Links:
    """Return the links of a cluster, as `part_of` does."""
    return part_of(provider, provider.links, "links")


def links_by_jobs(provider: Provider) -> LinksByJobs:
    """Return the links of a cluster as jobs need them, as `part_of` does."""
    return part_of(provider, links_of(provider).by_jobs, "links that jobs copy")


def migrations_of(provider: Provider) -> Migrations:
    """Return the mounts and unmounts of a cluster, as `part_of` does."""
    return part_of(provider, provider.migrations, "mounts")


# What every platform must do with consumer groups.


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """What object storage has of one cluster, which may be gone."""

    topics: Iterator[tuple[str, Recoverable | UserError]]
    """Every topic that it made, by its place; or why it is no use."""
    metadata: ClusterMetadata | None
    """What is kept besides segments, parts that are damaged among it; `None`: nothing, or of an unknown cluster."""


class Archives(Protocol):
    """Topics in the object storage of one cluster. Methods raise `RetryableError` if it cannot be reached."""

    def recoverable(
        self, topics: Mapping[TopicAddress, str | None], replicas: Mapping[TopicAddress, str] = NO_REPLICAS
    ) -> Recoveries:
        """Return what new topics could be made from: each by its location in object storage, `None`: by its name.

        Why one cannot be is returned, too; the cluster itself need not be there. `replicas` are new read replicas, each
        with the location that it would follow; platforms without them are not asked. Their sizes are not looked at.
        """
        ...

    def cluster(self, cluster_id: str | None = None) -> StoredCluster | None:
        """Return what object storage has of a whole cluster; `None`: this platform keeps none there.

        An id of `None` stands for the one cluster that has topics there. Nothing else is read.

        Raises:
            UserError: There is no object storage, it may not be listed, has topics of several clusters, or of others.
        """
        ...

    def mountable(self) -> Sequence[Mountable]:
        """Return every topic that was ever detached in the object storage of this cluster, whoever has it now, sorted.

        Raises:
            UserError: There is no object storage, or what it says cannot be read.
        """
        ...


def archives_of(provider: Provider) -> Archives:
    """Return the archives of a cluster.

    Raises:
        UserError: Its platform has none.
    """
    if provider.archives is None:
        message = f"a {provider.capabilities.platform} cluster makes no topics from object storage"
        raise UserError(message, hint="Take the topics from their source: mirror them, or copy their records.")
    return provider.archives


class Groups(Protocol):
    """The consumer groups of one cluster. Offsets go by (full name of the topic, partition)."""

    def names(self) -> Sequence[str]:
        """Return the names of all groups, sorted, in one bulk call."""
        ...

    def called(self, group: str) -> str:
        """Return what the platform calls a group that a person names; a new one, too."""
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


# Upkeep of a platform: what a pass is given, and what it says it did.


W = TypeVar("W", bound="Costly")
R = TypeVar("R")


class Costly(Protocol):
    """A piece of work that says about how much it costs, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...

    @property
    def bytes(self) -> int:
        """Return how many stored bytes it reads."""
        ...


class Spread(Protocol):
    """Does work, in threads of this process or on executors, and yields what came of it in rounds."""

    def __call__(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Do all of it; `do` and the work are pickled, and what is asked for in between is published by the caller.

        Raises:
            ReconcilerError: It cannot go on; what was yielded stands.
        """
        ...


@dataclass(frozen=True, slots=True)
class MaintenancePorts:
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
    notes: tuple[str, ...] = ()
    """What it did that numbers do not say: told once each."""


# What of a cluster is asked for, told by address.


def wanted_in(scope: Scope) -> Callable[[str], bool] | None:
    """Return what tells whether an address is in scope; `None`: everything is. A name without `*` is compared."""
    if not scope.patterns:
        return None
    names = frozenset(pattern for pattern in scope.patterns if "*" not in pattern)
    patterns = [pattern for pattern in scope.patterns if "*" in pattern]
    return lambda address: address in names or any(matches(pattern, address) for pattern in patterns)
