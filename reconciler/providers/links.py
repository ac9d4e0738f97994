"""What a platform must do with links and mirrors: its own side only. Whoever drives a transition reads both sides.

Every call is one durable step and may be done again; `operation` is the id that tells one transition from the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
    from reconciler.providers.syncing import SyncsOfCluster
    from reconciler.records.log import Bounds
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen, Position, Trouble, Truncated

from reconciler.providers.base import go_on


class LinksOfCluster(Protocol):
    """The links whose destination is one cluster, their mirrors, and topics that become mirrors of others."""

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
