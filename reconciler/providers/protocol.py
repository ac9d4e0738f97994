"""The protocol of every platform: observe, act, links, mounts, groups, maintenance.

Each provider folder repeats the same file names: `provider.py` (this protocol), `client.py` (the wire),
`translate.py` (our words ↔ theirs, pure), `faults.py` (their errors → ours). A file may be missing, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import LinkStatus, MigrationState, MirrorStatus
from reconciler.resources.address import Address, matches
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage, Vitals
from reconciler.resources.mount import Direction, HandMigration, Migration, Mountable, Recoverable, Recoveries

if TYPE_CHECKING:
    from reconciler.embedded.mounts.archive import ArchivedTopic
    from reconciler.embedded.tiered.topic_manifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.planning.actions import ControlAction
    from reconciler.records.log import (
        AppendSink,
        Bounds,
        Isolation,
        LostOffsets,
        RekeySink,
        StagedSink,
        TopicLog,
        TopicProducer,
        TransactionalSink,
    )
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.acls import Binding
    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset
    from reconciler.resources.inventory import Capabilities, ClusterIdentity, ClusterMetadata, Inventory, Overview
    from reconciler.resources.mirrors import (
        AccessRules,
        Diverged,
        ForeignRecords,
        GroupOffsets,
        GroupOffsetsResult,
        LinkSeen,
        MirrorSeen,
        Offered,
        Operation,
        Position,
        SourceTopic,
        Trouble,
        Truncated,
    )
    from reconciler.resources.owners import OwnerChange, ResourceOwner


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

    def replicable(self, topics: Mapping[TopicAddress, str]) -> Recoveries:
        """Return what new read replicas would follow, each by its location in object storage, or why one cannot be.

        Asked only of platforms that have read replicas. Sizes are not looked at.

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

    def metadata(self, cluster_id: str | None = None) -> ClusterMetadata | None:
        """Return what object storage keeps of one cluster beside segments; `None`: nothing, or nobody knows of which.

        Looks at nothing else, and chooses as `archived` does. Parts that are damaged are told, and the others returned.

        Raises:
            RetryableError: The object storage cannot be reached.
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

    def learn(self, addresses: Iterable[Address]) -> None:
        """Take note of topics that others speak of, such as the sources of mirrors of another workspace.

        Where a platform has no namespaces, it reads its flat names by what it knows of them.
        """
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
            UserError: It is no mirror, or its source was deleted and created again.
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

    def appends(self, topic: TopicAddress) -> AppendSink:
        """Return where many tasks stage new records of a topic, which one publication makes readable.

        Raises:
            UserError: It does not exist, it is a mirror, or its platform cannot do that.
        """
        ...

    def sink(self, topic: TopicAddress) -> StagedSink | TransactionalSink:
        """Return where records of a topic are written."""
        ...

    def upkeep(self, means: MaintenancePorts) -> Mapping[str, Callable[[], Upkept]]:
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

    def mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[MirrorSeen]:
        """Return the mirrors, stopped ones too, by full name: all, or those of a link, a full name, or a source."""
        ...

    def lost(self, link: str) -> Sequence[str]:
        """Return mirrors of a link whose topics were deleted behind it, or made anew by others, by full name.

        Nothing where a mirror ends with its topic.
        """
        ...

    def hidden(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return the mirrors that are to be copied, are not among `shown` and may not be described, by full name."""
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

    def positions_of(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return where the partitions of many topics stand, those that are there, by as few requests as can be."""
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
        self, full_name: str, of: MirrorSeen, operation: Operation, *, may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Let an ordinary topic become the mirror of `of`, its own mirror on the peer: it takes no records any more.

        A reversal leaves it PENDING_MIRROR, a restore PENDING_SETUP_FOR_RESTORE. What is open of transactions is
        aborted. What the operation says of records that `of` never got counts when it begins.

        Raises:
            UserError: There is no link half of that name here, or the topic is a mirror already.
        """
        ...

    def aim(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> MirrorSeen:
        """Write down where an operation is to end: the source's ends, or where to cut. The first ones count."""
        ...

    def shut(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on) -> None:
        """Refuse the records of all producers until an operation of a mirror is over; open transactions end first.

        Does nothing where the platform refuses them by itself.

        Raises:
            UserError: The operation is over.
            RetryableError: A transaction stays open, or a broker does not answer.
        """
        ...

    def advance(
        self,
        full_name: str,
        to: MirrorStatus,
        *,
        operation: str,
        is_given_up: bool = False,
        may_go_on: Callable[[], None] = go_on,
    ) -> MirrorSeen:
        """Let a mirror go to the next state of its operation; STOPPED hands its heads to producers.

        `is_given_up`: the source of a reversal takes records again, so that its mirror may be ACTIVE.

        Raises:
            UserError: The operation is not that one any more, or the table has no such move.
        """
        ...

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> Mapping[int, Truncated]:
        """Cut what a restore has to cut (`operation.ends`), and return what was cut, by partition."""
        ...

    def diverged(self, full_name: str, cuts: Mapping[int, int]) -> Sequence[Diverged] | None:
        """Return what a topic has from where its mirror agrees with it last, by records; `None`: its offsets say it."""
        ...

    def offset_maps(self, full_name: str) -> Mapping[int, OffsetMap] | None:
        """Return where records of its source lie in a mirror, stopped or not; `None`: at the same offsets."""
        ...

    def stand(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Note that a new mirror equals its source up to its own ends: roles were swapped, or all else was cut.

        `maps`: where the source's records lie that it has from here, if their offsets are others.

        Raises:
            UserError: That operation is not under way.
        """
        ...

    def begin(self, full_name: str, offsets: Mapping[int, int]) -> MirrorSeen:
        """Note where a new mirror begins, and let partitions without records begin there. The first ones count."""
        ...

    def foreign(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return the records in mirrors that their links did not copy, by full name; those without any are absent.

        `is_stopped`: of stopped mirrors, too, those that lie before the last record that was copied.
        `on_unknown`: takes each mirror of which it is not known, and why; without it that error is raised.

        Nothing where the platform refuses all other producers.
        """
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
    def by_jobs(self) -> StorageMoves | None:
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

    def unfit(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return why topics cannot be mounted or unmounted by hand, as things are now; changes nothing.

        By the full names that they have or get here, `topics` has where they lie.
        """
        ...

    def carry_out(self, asked: HandMigration, *, may_go_on: Callable[[], None] = go_on) -> None:
        """Do a migration by hand, as far as its phase says; where jobs do it, there is nothing to call.

        What cannot get there is undone, unless it was prepared before: then it stays where it is.

        Raises:
            UserError: It cannot be done, and nothing is under way; or it was prepared, and cannot go on.
            RetryableError: A store does not answer: it stays where it is.
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


# What every platform must do with consumer groups.


class GroupsOfCluster(Protocol):
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


# What a platform must do so that jobs can mount and unmount its topics: it cannot detach them itself.
#
# Each step of a move is kept before it begins, so whoever comes next finds how far it is. Nothing here copies records.


@dataclass(frozen=True, slots=True, kw_only=True)
class MountJob:
    """A mount or unmount by jobs that has begun, as its cluster keeps it."""

    direction: Direction
    mounting: str
    """Full name of the Mounting that asked for it."""
    topic: str
    """Full name of the topic here."""
    location: str
    claim: str
    """The mark of this very move in object storage."""
    at_ms: int
    state: MigrationState = MigrationState.PREPARING
    topic_id: str | None = None
    """Of the topic here, once there is one."""
    by_hand: bool = False
    """Whether a command asked for it, and no Mounting: `mounting` is the full name of its topic then."""
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Of an unmount in `cut_over`: last stable offset and end of each partition, up to which it was compared."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic that is there now, and what an archive keeps of it."""

    id: str
    archived: ArchivedTopic


class StorageMoves(Protocol):
    """The moves of one cluster between its brokers and its object storage."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster as object storage has it: a UUID."""
        ...

    @property
    def storage(self) -> ObjectStore:
        """The object storage of the cluster.

        Raises:
            UserError: It has none.
        """
        ...

    def now_ms(self) -> int:
        """Return what time it is, by the clock of whoever acts."""
        ...

    def kept(self, mounting: str) -> MountJob | None:
        """Return the move that a mounting has begun."""
        ...

    def keep(self, move: MountJob) -> None:
        """Keep how far a move is; durable when it returns."""
        ...

    def end(self, move: MountJob) -> None:
        """Forget a move that has come to its end, with its offset maps; of a mount is kept where its topic lies."""
        ...

    def place(self, full_name: str) -> str:
        """Return the location of a topic that is there: the one it was mounted from, else one for life.

        Raises:
            UserError: There is no such topic.
        """
        ...

    def topic(self, full_name: str) -> LiveTopic | None:
        """Return a topic as it is now, the offsets of its groups included."""
        ...

    def make(self, full_name: str, found: TopicManifest) -> str:
        """Make a topic, empty, from which nothing expires while it is filled, and return its id.

        Of the same name one that was made so and is empty is ours, made before.

        Raises:
            UserError: Another topic has that name, or the cluster refuses to make it.
        """
        ...

    def finish(self, full_name: str, found: TopicManifest, retention: Mapping[str, str]) -> None:
        """Give a topic that is filled the configs it had: from now on records expire.

        `retention` is what its manifest says of that: the longer one counts, or records expired before it is changed.
        """
        ...

    def filler(self, move: MountJob, begins: Mapping[int, int]) -> TransactionalSink:
        """Return what fills the topic of a mount, exactly once; its partitions begin at `begins` in object storage."""
        ...

    def maps(self, move: MountJob) -> Mapping[int, OffsetMap]:
        """Return where the records of each partition of a mount went that is filled."""
        ...

    def shut_out(self, move: MountJob, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Keep everybody from writing to the topic of an unmount, and return where each partition ends.

        That it is so is kept before it is done. May be repeated.

        Raises:
            RetryableError: Somebody cannot be shut out, or a transaction stays open.
            StalePlanError: It is another topic by now.
        """
        ...

    def is_shut_out(self, move: MountJob) -> bool:
        """Tell whether everybody is kept from writing now."""
        ...

    def let_in(self, move: MountJob) -> None:
        """Take back `shut_out`; the topic says what it said before."""
        ...

    def remove(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id and return once it does not show any more; gone already is good."""
        ...


# What a platform that cannot rename topics must do so that jobs can move them: copy, switch groups, delete.


@dataclass(frozen=True, slots=True)
class CopyMove:
    """A topic that moves by being copied: full names, and the ids of both as they are now."""

    old: str
    old_id: str
    new: str
    new_id: str
    is_keyed: bool
    """Whether records find their partition by their key, since the new topic has another number of them."""


def tell_still_sealed(error: Exception, also: ReconcilerError) -> None:
    """Add to the hint of an error that ended an unmount or a move that producers were not let in again, and why."""
    if isinstance(error, ReconcilerError):
        error.hint = f"{error.hint} Until then its producers are refused: {also.message}."


class CopyMoves(Protocol):
    """The moves of one cluster. Nothing here copies records."""

    def move(self, old: str, old_id: str | None, new: str, *, is_keyed: bool) -> CopyMove:
        """Return a move of topics that are there.

        Raises:
            StalePlanError: One is gone, or the old one is another than when it was looked at.
        """
        ...

    def begin(self, move: CopyMove) -> None:
        """Let nothing expire from the new topic while it is filled; what it said itself is kept. May be repeated."""
        ...

    def sink(self, move: CopyMove) -> TransactionalSink | RekeySink:
        """Return what fills the new topic, exactly once: partition by partition, or by key."""
        ...

    def shut_out(self, move: CopyMove, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Keep everybody from writing to the old topic, and return where each of its partitions ends. May be repeated.

        Raises:
            RetryableError: Somebody cannot be shut out, or a transaction stays open.
        """
        ...

    def let_in(self, move: CopyMove) -> None:
        """Take back `shut_out`."""
        ...

    def left(self, move: CopyMove) -> Mapping[int, int] | None:
        """Return where the old topic ended, if `end` was done and nothing was written to it since; else `None`."""
        ...

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Give every group of the old topic its place in the new one; return how many there are.

        Once `end` was done, a group that is further there keeps its place.

        Raises:
            UserError: A group is reading: only its members commit then.
        """
        ...

    def end(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Give the new topic its configs, and keep where the old one ended: it is deleted only where it still does."""
        ...


# What a platform must do for what links keep in step beside records: its own side only, each call whole or not at all.
#
# The first half is asked of the source of a link, the second of its destination. Every call takes everything at once,
# so that a link with ten thousand topics costs what a link with one does.


class SyncsOfCluster(Protocol):
    """One cluster, as the source or the destination of links."""

    def version(self) -> str:
        """Return a word that changes whenever anything does but records and groups: while it stays, so does the rest.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def offered(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, Offered]:
        """Return every topic by full name, or of `only` some, as a link that reads as `principal` sees it: one look.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return the wanted groups, and a word that changes whenever each commits anything, or why it may not be read.

        That is one listing.
        """
        ...

    def group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return where groups go on reading, as they said it, of topics that are there; those that are gone are absent.

        What a link brought counts, too, so that chains of links pass it on.
        """
        ...

    def rules(self) -> AccessRules:
        """Return the access rules of all topics and namespaces, in one look."""
        ...

    def meet(self, link: str, source_cluster_id: str) -> None:
        """Write down which cluster a link was made to; the first one counts."""
        ...

    def follow(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Bring partitions and synced configs of mirrors, by full name, to what their sources have.

        Return why some could not. Nothing is written where nothing differs.
        """
        ...

    def note(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Note what is wrong with mirrors, by full name, or (`None`) that it is over; those of `failed` are FAILED."""
        ...

    def make_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Make mirrors of sources, by full name, as auto-create does, and return those made, and why others were not.

        Left out are names that are taken here, and what the filters of the link, as they are now, do not take.
        """
        ...

    def bring_offsets(self, groups: Mapping[str, GroupOffsets]) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Set where groups go on reading mirrors, never beyond their ends; what a group committed here itself wins.

        A group that reads one of the mirrors here (it committed within 24 hours) is left alone.
        """
        ...

    def bring_rules(self, link: str, rules: AccessRules) -> int:
        """Give mirrors, by the full names of their sources, and namespaces that are here the access rules of a source.

        Those that the link brought before and that are not among them go; all others stay. Return how many places
        changed.
        """
        ...

    def protect(self, link: str) -> int:
        """Keep writers out of the mirrors of a link, as it says (`protect`), and return how many mirrors changed.

        Nothing is done where the platform refuses producers itself.

        Raises:
            UserError: It is not possible there, or not with these access rules.
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
