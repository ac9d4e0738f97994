"""What every platform must do with consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset


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
