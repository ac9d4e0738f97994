"""What a platform must do so that jobs can mount and unmount its topics: it cannot detach them itself.

Each step of a move is kept before it begins, so whoever comes next finds how far it is. Nothing here copies records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from reconciler.lifecycles.mounting import MigrationState
from reconciler.resources.migration import Direction

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.archiving.writing import ArchivedTopic
    from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import TransactionalSink
    from reconciler.records.offsetmap import OffsetMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
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
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Of an unmount in `cut_over`: last stable offset and end of each partition, up to which it was compared."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic that is there now, and what an archive keeps of it."""

    id: str
    archived: ArchivedTopic


class Hibernation(Protocol):
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

    def kept(self, mounting: str) -> Kept | None:
        """Return the move that a mounting has begun."""
        ...

    def keep(self, move: Kept) -> None:
        """Keep how far a move is; durable when it returns."""
        ...

    def end(self, move: Kept) -> None:
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

    def finish(self, full_name: str, found: TopicManifest) -> None:
        """Give a topic that is filled the configs it had: from now on records expire."""
        ...

    def filler(self, move: Kept, begins: Mapping[int, int]) -> TransactionalSink:
        """Return what fills the topic of a mount, exactly once; its partitions begin at `begins` in object storage."""
        ...

    def maps(self, move: Kept) -> Mapping[int, OffsetMap]:
        """Return where the records of each partition of a mount went that is filled."""
        ...

    def shut_out(self, move: Kept, may_go_on: Callable[[], None]) -> Mapping[int, int]:
        """Keep everybody from writing to the topic of an unmount, and return where each partition ends.

        That it is so is kept before it is done. May be repeated.

        Raises:
            RetryableError: Somebody cannot be shut out, or a transaction stays open.
            StalePlanError: It is another topic by now.
        """
        ...

    def is_shut_out(self, move: Kept) -> bool:
        """Tell whether everybody is kept from writing now."""
        ...

    def let_in(self, move: Kept) -> None:
        """Take back `shut_out`; the topic says what it said before."""
        ...

    def remove(self, full_name: str, topic_id: str) -> None:
        """Delete a topic by its id and return once it does not show any more; gone already is good."""
        ...
