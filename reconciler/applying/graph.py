"""Which actions may start: the plan's graph, worked off action by action."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.actions import Action


class Graph:
    """The actions of a plan and what leans on what. Every action leaves it once: done, failed or skipped."""

    def __init__(self, actions: Sequence[Action]) -> None:
        """Take the plan's order as the order of what may start at the same time."""
        self._actions = {action.id: action for action in actions}
        self._position = {action.id: position for position, action in enumerate(actions)}
        self._missing: dict[str, int] = {}
        self._dependents: defaultdict[str, list[str]] = defaultdict(list)
        for action in actions:
            leans_on = {needed for needed in action.depends_on if needed in self._actions}
            self._missing[action.id] = len(leans_on)
            for needed in sorted(leans_on):
                self._dependents[needed].append(action.id)
        self._ready = [self._position[name] for name, missing in self._missing.items() if not missing]
        heapq.heapify(self._ready)
        self._order = [action.id for action in actions]

    def take_ready(self) -> list[Action]:
        """Return what may start now, in plan order; each is returned once."""
        taken = []
        while self._ready:
            name = self._order[heapq.heappop(self._ready)]
            if name in self._missing:
                taken.append(self._actions[name])
        return taken

    def finish(self, name: str) -> None:
        """Let what leans on `name` come nearer."""
        del self._missing[name]
        for dependent in self._dependents[name]:
            if dependent in self._missing:
                self._missing[dependent] -= 1
                if not self._missing[dependent]:
                    heapq.heappush(self._ready, self._position[dependent])

    def fail(self, name: str) -> list[str]:
        """Take out `name` and all that leans on it; return the latter, in plan order."""
        del self._missing[name]
        lost: set[str] = set()
        open_ends = [name]
        while open_ends:
            for dependent in self._dependents[open_ends.pop()]:
                if dependent in self._missing and dependent not in lost:
                    lost.add(dependent)
                    open_ends.append(dependent)
        for dependent in lost:
            del self._missing[dependent]
        return sorted(lost, key=self._position.__getitem__)

    def left(self) -> list[str]:
        """Return what has neither finished nor been taken out, in plan order."""
        return sorted(self._missing, key=self._position.__getitem__)
