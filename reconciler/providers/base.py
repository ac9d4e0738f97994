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

    from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.copymoves import CopyMoves
    from reconciler.providers.groups import GroupsOfCluster
    from reconciler.providers.hibernating import Hibernation
    from reconciler.providers.keeping import Means, Upkept
    from reconciler.providers.syncing import SyncsOfCluster
    from reconciler.records.log import Bounds, Isolation, Lost, StagedSink, TopicLog, TopicProducer, TransactionalSink
    from reconciler.resources.bindings import Binding
    from reconciler.resources.capabilities import Capabilities, ClusterIdentity
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.measures import Measures
    from reconciler.resources.migration import Migration
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen, Position, Trouble, Truncated
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


class LinksOfCluster(Protocol):
    """The links whose destination is one cluster, their mirrors, and topics that become mirrors of others.

    Each call is about its own side only: whoever drives a transition reads both sides. It is one durable step and may
    be done again; `operation` is the id that tells one transition from the next.
    """

    @property
    def syncs(self) -> SyncsOfCluster:
        """What links keep in step beside records, this cluster's side of it."""
        ...

    def links(self) -> Sequence[LinkSeen]:
        """Return the links, by name."""
        ...

    def mirrors(self, link: str | None = None) -> Sequence[MirrorSeen]:
        """Return the mirrors, stopped ones too, by full name: of one link, or of all."""
        ...

    def mirror(self, full_name: str) -> MirrorSeen:
        """Return one mirror.

        Raises:
            UserError: There is no such topic, or it is not mirrored.
        """
        ...

    def positions(self, full_name: str) -> Mapping[int, Position]:
        """Return where the partitions of a topic stand, one look at each head."""
        ...

    def ask(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Ask for a verb of the table on this side, and return what the mirror is then.

        Ends here for `pause`, `resume` and `failover` (heads handed over, groups clamped); `promote`, `reverse-…`
        only begin, under the id `operation`.

        Raises:
            UserError: That is not legal in its state: it says what is.
        """
        ...

    def join(
        self,
        full_name: str,
        of: MirrorSeen,
        *,
        operation: str,
        verb: str,
        may_go_on: Callable[[], None] = go_on,
    ) -> MirrorSeen:
        """Let an ordinary topic become the mirror of `of`, its own mirror on the peer: it takes no records any more.

        `verb` is that of the operation: a reversal leaves it PENDING_MIRROR, a restore PENDING_SETUP_FOR_RESTORE. What
        is open of transactions is aborted.

        Raises:
            UserError: There is no link half of that name here, or the topic is a mirror already.
        """
        ...

    def aim(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> MirrorSeen:
        """Write down where an operation is to end: the source's ends, or where to cut. The first ones count."""
        ...

    def advance(
        self, full_name: str, to: MirrorStatus, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Let a mirror go to the next state of its operation; STOPPED hands its heads to producers.

        Raises:
            UserError: The operation is not that one any more, or the table has no such move.
        """
        ...

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> Mapping[int, Truncated]:
        """Cut what a restore has to cut (`operation.ends`), and return what was cut, by partition."""
        ...

    def stand(self, full_name: str, source_topic_id: str, bounds: Mapping[int, Bounds], *, operation: str) -> None:
        """Note that a new mirror equals its source up to its own ends: roles were swapped, or all else was cut.

        Raises:
            UserError: That operation is not under way.
        """
        ...

    def begin(self, full_name: str, offsets: Mapping[int, int]) -> MirrorSeen:
        """Note where a new mirror begins, and let partitions without records begin there. The first ones count."""
        ...

    def follow_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Let go of what lies below the log starts of the source, where retention is synced."""
        ...

    def trouble(
        self, full_name: str, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Note why a mirror cannot fetch or go on, or that it can again; `fails`: it is FAILED for good.

        What kept an `operation` from going on is not noted where it is over.
        """
        ...

    def link_trouble(self, link: str, status: LinkStatus, trouble: Trouble | None) -> None:
        """Note whether the link reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
        ...

    def task_trouble(self, link: str, task: str, trouble: Trouble | None) -> None:
        """Note what is wrong with a task of a link, or that nothing is any more."""
        ...


class MigrationsOfCluster(Protocol):
    """The mounts and unmounts of one cluster, and who owns what lies in its object storage."""

    @property
    def by_jobs(self) -> Hibernation | None:
        """What jobs ask of the cluster to mount and unmount; `None`: it does so by itself."""
        ...

    @property
    def copies(self) -> CopyMoves | None:
        """What jobs ask of the cluster to move a topic by copying it; `None`: it renames topics by itself."""
        ...

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
