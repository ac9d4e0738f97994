"""When a link's tasks are due, and what the last look settled: kept by the process that runs them, lost with it.

Whoever starts anew looks once more: that is all that is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

INFINITE = -1


@dataclass
class Settled:
    """Groups of a link of which nothing is to be brought until they commit again: their versions at the source."""

    of: Hashable = None
    """What else it rests on: which mirrors there are, and which groups are taken."""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class Pace:
    """The memory of one runner."""

    _looked_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _groups: dict[str, Settled] = field(default_factory=dict)
    _worlds: dict[tuple[str, str], Hashable] = field(default_factory=dict)

    def is_due(self, link_id: str, task: str, interval_ms: int, now_ms: int) -> bool:
        """Tell whether a task is to be done now, and take note. A clock that was set back does not stop it."""
        last = self._looked_ms.get((link_id, task))
        is_due = last is None or now_ms < last or (interval_ms != INFINITE and now_ms - last >= interval_ms)
        if is_due:
            self._looked_ms[link_id, task] = now_ms
        return is_due

    def again(self, link_id: str, task: str) -> None:
        """Let a task be due at once: it could not be done."""
        self._looked_ms.pop((link_id, task), None)

    def is_settled(self, link_id: str, task: str, world: Hashable) -> bool:
        """Tell whether nothing is to be done in a world, as both clusters say it by their versions."""
        return self._worlds.get((link_id, task)) == world

    def settle(self, link_id: str, task: str, world: Hashable) -> None:
        """Take note that all is done in a world: until it is another one, nobody has to look."""
        self._worlds[link_id, task] = world

    def groups(self, link_id: str, of: Hashable) -> dict[str, str]:
        """Return the versions of groups that are settled; none where what that rests on is another now."""
        known = self._groups.setdefault(link_id, Settled())
        if known.of != of:
            known.of, known.versions = of, {}
        return known.versions
