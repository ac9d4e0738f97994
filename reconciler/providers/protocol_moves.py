"""Protocols of mounts, unmounts and moves of topics: of the cluster itself, and the steps of jobs that replace them."""

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
    from reconciler.resources.mount import Direction, HandMigration, Migration, MountableTopic


class Migrations(Protocol):
    """The mounts and unmounts of one cluster, and the owners of topics in its object storage."""

    @property
    def by_jobs(self) -> MovesByJobs | None:
        """What jobs need to mount, unmount and move topics; `None`: the cluster does it itself."""
        ...

    @property
    def carry_out(self) -> Callable[[HandMigration, Callable[[], None]], None] | None:
        """Run a command's migration up to its phase; `None`: jobs do it.

        A migration that cannot continue is undone, unless it was prepared earlier. The second argument is called before
        each write and may raise.

        Raises:
            UserError: The migration is refused, or a prepared migration cannot continue.
            RetryableError: A store does not answer; the migration keeps its state.
        """
        ...

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return the unfinished migrations by id. Read-only.

        Migrations of topics that are hidden from the caller are left out. Without `is_measured` only the catalog is
        read: remaining uploads, and what blocks them, are unknown.
        """
        ...

    def ask(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = go_on) -> Migration:
        """Request a verb of the lifecycle, and return the resulting migration; a cancellation is completed at once.

        `may_go_on` is called before every write, from any thread, and may raise.

        Raises:
            UserError: The migration does not exist, or the verb is not legal in its state; the message lists the legal
                ones.
            IncompleteError: The request is recorded but not complete; `run` continues it.
        """
        ...

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return why topics cannot be mounted or unmounted by a command now. Read-only.

        `topics`: full name on this cluster → location.
        """
        ...

    def detached(self) -> Iterator[tuple[str, MountableTopic | UserError]]:
        """Yield the location of each topic ever detached in the object storage, and the topic, or why it is unusable.

        The cluster itself need not exist.

        Raises:
            UserError: There is no object storage, or the caller is not the super user.
        """
        ...

    def read_releasable(self, location: str, owner: str) -> MountableTopic:
        """Return the topic that a release would make mountable, in its current state. Read-only.

        Raises:
            UserError: The topic does not exist, has another owner or none, or the caller is not the super user.
        """
        ...

    def release(self, location: str, owner: str) -> MountableTopic:
        """Remove the ownership of a cluster that will not return, and return the topic. Idempotent.

        Raises:
            UserError: See `read_releasable`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MountJob:
    """Progress of a mount or unmount by jobs, as stored by its cluster."""

    direction: Direction
    mounting: str
    """Full name of the Mounting that requested it."""
    topic: str
    """Full name of the topic on this cluster."""
    location: str
    claim: str
    """The id of this mount or unmount in object storage."""
    at_ms: int
    state: MigrationState = MigrationState.PREPARING
    topic_id: str | None = None
    """Id of the topic on this cluster, if it exists."""
    by_hand: bool = False
    """Whether a command requested it, without a Mounting: `mounting` is then the topic's full name."""
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Unmount in `cut_over`: last stable offset and end of each partition, up to which the copy was compared."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """An existing topic, and the parts of it that an archive stores."""

    id: str
    archived: ArchivedTopic


@dataclass(frozen=True, slots=True)
class CopyMove:
    """A move of a topic by copying: full names and current ids of both topics."""

    old: str
    old_id: str
    new: str
    new_id: str
    is_keyed: bool
    """Whether records are partitioned again by key, as the new topic has another number of partitions."""


class MovesByJobs(Protocol):
    """What jobs need from a cluster that cannot mount, unmount or rename topics itself.

    Each step of a mount or unmount is stored before it begins, so that the next run continues it. No method copies
    records.
    """

    @property
    def cluster_id(self) -> str:
        """The cluster's id in object storage, a UUID."""
        ...

    @property
    def storage(self) -> ObjectStore:
        """The object storage of the cluster.

        Raises:
            UserError: It has none.
        """
        ...

    def now_ms(self) -> int:
        """Return the current time by the caller's clock."""
        ...

    def load_job(self, mounting: str) -> MountJob | None:
        """Return the stored mount or unmount of a mounting."""
        ...

    def keep(self, move: MountJob) -> None:
        """Store the progress of a mount or unmount; durable when it returns."""
        ...

    def forget(self, move: MountJob) -> None:
        """Remove a finished mount or unmount with its offset maps; a mounted topic's location stays stored."""
        ...

    def place(self, full_name: str) -> str:
        """Return the location of an existing topic: where it was mounted from, or a permanent one of its own.

        Raises:
            UserError: The topic does not exist.
        """
        ...

    def topic(self, full_name: str) -> LiveTopic | None:
        """Return a topic with its configs and group offsets."""
        ...

    def make(self, full_name: str, manifest: TopicManifest) -> str:
        """Create an empty topic whose records do not expire while it is filled, and return its id.

        An empty topic of that name with the same configs is from an earlier call.

        Raises:
            UserError: Another topic has that name, or the cluster refuses to create it.
        """
        ...

    def finish(self, full_name: str, manifest: TopicManifest, retention: Mapping[str, str]) -> None:
        """Restore the configs of a filled topic; records expire from now on.

        Of `retention`, from the topic's file, and the archived retention, the longer applies.
        """
        ...

    def filler(self, move: MountJob, begins: Mapping[int, int]) -> TransactionalSink:
        """Return a sink that fills a mounted topic exactly once, from the archive's start offsets `begins`."""
        ...

    def maps(self, move: MountJob) -> Mapping[int, OffsetMap]:
        """Return the offset maps of a filled topic by partition."""
        ...

    def remove(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id, and return once brokers no longer show it; a missing topic is accepted."""
        ...

    def refuse_all_producers(self, full_name: str, topic_id: str, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Refuse all producers of a topic, and return the end of each partition. May be repeated.

        The seal is stored before it is set.

        Raises:
            NotAuthorizedError: Some groups may be hidden: their offsets would be lost.
            RetryableError: A producer cannot be refused, or a transaction stays open.
            StalePlanError: The topic was deleted and created again.
        """
        ...

    def is_refusing_producers(self, full_name: str, topic_id: str) -> bool:
        """Return whether all producers are refused now."""
        ...

    def accept_producers(self, topic_id: str) -> None:
        """Undo `refuse_all_producers` and restore the topic's configs."""
        ...

    def move(self, old: str, old_id: str | None, new: str, *, is_keyed: bool) -> CopyMove:
        """Return a move between existing topics.

        Raises:
            StalePlanError: A topic is gone, or the old topic has another id.
        """
        ...

    def begin(self, move: CopyMove) -> None:
        """Stop records of the new topic from expiring while it is filled, and store its own configs. May be repeated.

        Raises:
            NotAuthorizedError: Some groups may be hidden: their offsets would be lost.
        """
        ...

    def sink(self, move: CopyMove) -> TransactionalSink | RekeySink:
        """Return a sink that fills the new topic exactly once, by partition or by key."""
        ...

    def read_recorded_ends(self, move: CopyMove) -> Mapping[int, int] | None:
        """Return the old topic's ends that `end` stored; `None` before `end`, or if records followed."""
        ...

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Commit each group's offsets of the old topic in the new one, and return the number of groups.

        After `end`, a group that is further ahead in the new topic keeps its offsets.

        Raises:
            UserError: A group is reading: only its members may commit.
        """
        ...

    def end(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Restore the new topic's configs, and store the old topic's ends: with more records it is not deleted."""
        ...


def add_still_sealed_hint(error: Exception, also: ReconcilerError) -> None:
    """Add to the hint of an error that ended an unmount or a move that the topic is still sealed, and why."""
    if isinstance(error, ReconcilerError):
        error.hint = f"{error.hint} Until then its producers are refused: {also.message}."
