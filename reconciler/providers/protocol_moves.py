"""What a platform answers about mounts, unmounts and moves of its topics, and what jobs ask where it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from reconciler.errors import ReconcilerError
from reconciler.lifecycles import MigrationState
from reconciler.runtime.retry import go_on

if TYPE_CHECKING:
    from reconciler.archives.archive import ArchivedTopic
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.errors import UserError
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import RekeySink, TransactionalSink
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.mount import Direction, HandMigration, Migration, Mountable


class Migrations(Protocol):
    """The mounts and unmounts of one cluster, and who owns what lies in its object storage."""

    @property
    def by_jobs(self) -> MountsByJobs | None:
        """What jobs ask of the cluster to mount and unmount; `None`: it does so by itself."""
        ...

    @property
    def by_platform(self) -> MountsByPlatform | None:
        """What mounts and unmounts topics that a command names; `None`: jobs do so."""
        ...

    @property
    def copies(self) -> MovesByJobs | None:
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


class MountsByPlatform(Protocol):
    """What a cluster does that mounts and unmounts by itself."""

    def carry_out(self, request: HandMigration, *, may_go_on: Callable[[], None] = go_on) -> None:
        """Do a migration by hand, as far as its phase says.

        What cannot get there is undone, unless it was prepared before: then it stays where it is.

        Raises:
            UserError: It cannot be done, and nothing is under way; or it was prepared, and cannot go on.
            RetryableError: A store does not answer: it stays where it is.
        """
        ...


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


class MountsByJobs(Protocol):
    """What jobs ask of a cluster to mount and unmount its topics: it cannot detach them itself.

    Each step of a move is kept before it begins: the next run reads how far it is. Nothing here copies records.
    """

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

    def make(self, full_name: str, manifest: TopicManifest) -> str:
        """Make a topic, empty, from which nothing expires while it is filled, and return its id.

        Of the same name one that was made so and is empty is ours, made before.

        Raises:
            UserError: Another topic has that name, or the cluster refuses to make it.
        """
        ...

    def finish(self, full_name: str, manifest: TopicManifest, retention: Mapping[str, str]) -> None:
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


@dataclass(frozen=True, slots=True)
class CopyMove:
    """A topic that moves by being copied: full names, and the ids of both as they are now."""

    old: str
    old_id: str
    new: str
    new_id: str
    is_keyed: bool
    """Whether records find their partition by their key, since the new topic has another number of them."""


class MovesByJobs(Protocol):
    """What jobs ask of a cluster that cannot rename topics, to move them: copy, switch groups, delete.

    Nothing here copies records.
    """

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


def tell_still_sealed(error: Exception, also: ReconcilerError) -> None:
    """Add to the hint of an error that ended an unmount or a move that producers were not let in again, and why."""
    if isinstance(error, ReconcilerError):
        error.hint = f"{error.hint} Until then its producers are refused: {also.message}."
