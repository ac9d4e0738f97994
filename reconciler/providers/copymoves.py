"""What a platform that cannot rename topics must do so that jobs can move them: copy, switch groups, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.records.digest import Digest
    from reconciler.records.log import TransactionalSink


@dataclass(frozen=True, slots=True)
class CopyMove:
    """A topic that moves by being copied: full names, and the ids of both as they are now."""

    old: str
    old_id: str
    new: str
    new_id: str
    is_keyed: bool
    """Whether records find their partition by their key, since the new topic has another number of them."""


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

    def sink(self, move: CopyMove) -> TransactionalSink:
        """Return what fills the new topic, exactly once."""
        ...

    def written(self, move: CopyMove) -> Callable[[], Digest] | None:
        """Return what tells what was written by key so far; `None`: records lie in the new topic as they lay."""
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

    def switch_groups(self, move: CopyMove, ends: Mapping[int, int]) -> int:
        """Give every group of the old topic its place in the new one; return how many there are.

        Raises:
            UserError: A group is reading: only its members commit then.
        """
        ...

    def end(self, move: CopyMove, ends: Mapping[int, int]) -> None:
        """Give the new topic its configs, and keep where the old one ended: it is deleted only where it still does."""
        ...
