"""What every platform must do. Calls are idempotent, observing changes nothing, actions come in batches.

Each provider folder repeats the same file names: `provider.py` (this protocol), `client.py` (the wire),
`translate.py` (our words ↔ theirs, pure), `faults.py` (their errors → ours). A file may be missing, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reconciler.errors import ReconcilerError, UserError
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from reconciler.planning.actions import ControlAction
    from reconciler.providers.groups import GroupsOfCluster
    from reconciler.providers.keeping import Means, Upkept
    from reconciler.providers.links import LinksOfCluster
    from reconciler.providers.migrations import MigrationsOfCluster
    from reconciler.records.log import Bounds, Isolation, Lost, StagedSink, TopicLog, TopicProducer, TransactionalSink
    from reconciler.resources.bindings import Binding
    from reconciler.resources.capabilities import Capabilities, ClusterIdentity
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.measures import Measures
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
    declared: frozenset[Address] = frozenset()
    """What the files name. Platforms without namespaces find ours by it: a flat name belongs to the longest namespace
    that is declared or recorded and whose prefix it has."""
    is_reader: bool = False
    """Nothing may be written: providers are opened so that they cannot."""


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


@dataclass(frozen=True, slots=True)
class Marked:
    """A topic as one bulk look has it. A partition that was never written has no mark."""

    topic: SourceTopic
    partitions: Mapping[int, str]
    """What changes whenever a partition does; it says nothing else."""


def go_on() -> None:
    """Go on: whoever calls holds no lease that could be lost."""


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

    @property
    def links(self) -> LinksOfCluster:
        """The links whose destination is this cluster, and their mirrors."""
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

    def marks(self) -> Mapping[str, Marked]:
        """Return every topic and mirror by full name, and what changes whenever one of its partitions does.

        One bulk listing, whatever their number.
        """
        ...

    def remembered(self, job: str) -> Mapping[str, list[Any]]:
        """Return what a job of `run` kept for its next pass; nothing where that is lost."""
        ...

    def remember(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Keep rows that JSON can hold for the next pass of a job."""
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
