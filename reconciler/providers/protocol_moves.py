"""Protocols of mounts, unmounts and moves of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from reconciler.errors import ReconcilerError
from reconciler.lifecycles import MigrationState
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.archives.archive import ArchivedTopic
    from reconciler.archives.topic_manifest import TopicManifest
    from reconciler.errors import UserError
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import RekeySink, TransactionalSink
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.mount import Direction, HandMigration, Migration, MountableTopic


class Migrations(Protocol):
    """Mounts and unmounts of one cluster, and the owners of topics in its object storage."""

    @property
    def job_steps(self) -> MovesByJobs | None:
        """Steps of jobs that mount, unmount and move topics; `None` if the cluster itself does."""
        ...

    @property
    def run_migration(self) -> Callable[[HandMigration, Callable[[], None]], None] | None:
        """Run a command's migration up to its phase; `None` if jobs do it.

        A migration that cannot continue is undone, unless it was prepared earlier. The second argument is `may_go_on`.

        Raises:
            UserError: The migration is rejected, or a prepared migration cannot continue.
            RetryableError: A store does not respond; the migration's state does not change.
        """
        ...

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return the unfinished migrations by id. Read-only.

        Migrations of hidden topics are omitted. Without `is_measured`, remaining uploads are unknown.
        """
        ...

    def request_verb(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = skip_check) -> Migration:
        """Request a lifecycle verb, and return the resulting migration. A cancellation is complete on return.

        `may_go_on` is called before every write, from any thread, and may raise.

        Raises:
            UserError: The migration does not exist, or its state does not allow the verb.
            IncompleteError: The request is recorded but not complete; `run` continues it.
        """
        ...

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:
        """Return the errors for topics that cannot be mounted or unmounted now.

        `topics` maps full names on this cluster to locations.
        """
        ...

    def list_detached_topics(self) -> Iterator[tuple[str, MountableTopic | UserError]]:
        """Yield the location of each topic ever detached, with the topic or an error.

        The cluster need not exist.

        Raises:
            UserError: There is no object storage, or the caller is not the super user.
        """
        ...

    def read_releasable_topic(self, location: str, owner: str) -> MountableTopic:
        """Return the topic that a release would make mountable, in its current state.

        Raises:
            UserError: `owner` does not own such a topic, or the caller is not the super user.
        """
        ...

    def release_topic(self, location: str, owner: str) -> MountableTopic:
        """Release a topic of a lost cluster, and return it. Idempotent.

        Raises:
            UserError: `owner` does not own such a topic, or the caller is not the super user.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MountJob:
    """Progress of a mount or unmount by jobs, stored by its cluster."""

    direction: Direction
    mounting: str
    """Full name of the Mounting that requested it."""
    topic: str
    location: str
    claim: str
    """Id of this mount or unmount in object storage."""
    at_ms: int
    state: MigrationState = MigrationState.PREPARING
    topic_id: str | None = None
    by_hand: bool = False
    """Whether a command without a Mounting requested it; `mounting` is then the topic's full name."""
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For an unmount in `cut_over`: last stable offset and end by partition, at which the copy must end."""


@dataclass(frozen=True, slots=True)
class ArchivableTopic:
    """Topic id, and what an archive stores of the topic."""

    id: str
    archived: ArchivedTopic


@dataclass(frozen=True, slots=True)
class CopyMove:
    """Move of a topic by copying: full names and current ids of both topics."""

    old: str
    old_id: str
    new: str
    new_id: str
    is_keyed: bool
    """Whether records are repartitioned by key, because the number of partitions differs."""


class MovesByJobs(Protocol):
    """Steps of jobs for a cluster that cannot mount, unmount or rename topics itself.

    Each step of a mount or unmount is stored first, so the next run continues it.
    """

    @property
    def cluster_id(self) -> str:
        """UUID of the cluster in object storage."""
        ...

    @property
    def storage(self) -> ObjectStore:
        """Object storage of the cluster.

        Raises:
            UserError: The cluster has none.
        """
        ...

    def now_ms(self) -> int:
        """Return the caller's clock in ms."""
        ...

    def load_job(self, mounting: str) -> MountJob | None:
        """Return the stored mount or unmount of a Mounting, or `None`."""
        ...

    def store_job(self, move: MountJob) -> None:
        """Store the progress of a mount or unmount, durable on return."""
        ...

    def remove_job(self, move: MountJob) -> None:
        """Remove a finished mount or unmount and its offset maps. A mounted topic's location is kept."""
        ...

    def find_location(self, full_name: str) -> str:
        """Return a topic's location in object storage, which never changes.

        Raises:
            UserError: The topic does not exist.
        """
        ...

    def read_topic(self, full_name: str) -> ArchivableTopic | None:
        """Return a topic with its configs and group offsets; `None` if missing."""
        ...

    def create_topic(self, full_name: str, manifest: TopicManifest) -> str:
        """Create an empty topic without retention, and return its id.

        An existing empty topic with these configs is reused.

        Raises:
            UserError: Another topic has that name, or the cluster rejects its creation.
        """
        ...

    def restore_topic_configs(self, full_name: str, manifest: TopicManifest, retention: Mapping[str, str]) -> None:
        """Restore the configs of a filled topic.

        The longer of `retention`, from the topic's file, and the archived retention applies.
        """
        ...

    def open_fill_sink(self, move: MountJob, begins: Mapping[int, int]) -> TransactionalSink:
        """Return a sink that fills a mounted topic exactly once, from the start offsets `begins`."""
        ...

    def read_offset_maps(self, move: MountJob) -> Mapping[int, OffsetMap]:
        """Return the offset maps of a filled topic by partition."""
        ...

    def delete_topic(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id, and wait until brokers no longer list it. Missing topics are ignored."""
        ...

    def refuse_all_producers(self, full_name: str, topic_id: str, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Reject all producers of a topic, and return each partition's end. Idempotent.

        Raises:
            NotAuthorizedError: Some groups may be hidden, so their offsets would be lost.
            RetryableError: A producer cannot be rejected, or a transaction stays open.
            StalePlanError: The topic was recreated.
        """
        ...

    def is_refusing_producers(self, full_name: str, topic_id: str) -> bool:
        """Return whether all producers are rejected now."""
        ...

    def accept_producers(self, topic_id: str) -> None:
        """Undo `refuse_all_producers` and restore the topic's configs."""
        ...

    def find_copy_move(self, old: str, old_id: str | None, new: str, *, is_keyed: bool) -> CopyMove:
        """Return a move between existing topics.

        Raises:
            StalePlanError: A topic does not exist, or the old topic has another id.
        """
        ...

    def suspend_retention(self, move: CopyMove) -> None:
        """Disable the new topic's retention while it is filled, and store its configs. Idempotent.

        Raises:
            NotAuthorizedError: Some groups may be hidden, so their offsets would be lost.
        """
        ...

    def open_move_sink(self, move: CopyMove) -> TransactionalSink | RekeySink:
        """Return a sink that fills the new topic exactly once, by partition or by key."""
        ...

    def read_recorded_ends(self, move: CopyMove) -> Mapping[int, int] | None:
        """Return the old topic's ends that `finish_move` stored; `None` if missing, or records followed."""
        ...

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Commit each group's offsets of the old topic in the new topic; return the number of groups.

        After `finish_move`, offsets only move forward.

        Raises:
            UserError: A group is reading, so only its members may commit.
        """
        ...

    def finish_move(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Restore the new topic's configs, and store the old topic's ends.

        The old topic is not deleted if records follow these ends.
        """
        ...


def add_still_sealed_hint(error: Exception, also: ReconcilerError) -> None:
    """Add to an error's hint that, because of the error `also`, the topic still rejects producers."""
    if isinstance(error, ReconcilerError):
        error.hint = f"{error.hint} Until then its producers are refused: {also.message}."
