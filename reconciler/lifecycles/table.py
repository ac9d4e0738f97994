"""A lifecycle as a table of legal moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Generic, TypeVar

from reconciler.errors import UserError

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[State]):
    """One legal move. `by_itself`: the platform makes it, nobody may ask for it."""

    start: State
    verb: str
    end: State
    by_itself: bool = False
    condition: str = ""
    """Where one verb leads to several states from here: when it leads to this one."""


@dataclass(frozen=True)
class Lifecycle(Generic[State]):
    """A closed table: what is not in it is refused. `refusals` say more about a (state, verb) people often try."""

    name: str
    initial: State
    moves: tuple[Move[State], ...]
    refusals: tuple[tuple[State, str, str], ...] = ()

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Every state, in the order of its definition."""
        return tuple(type(self.initial))

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """Every verb somebody may ask for, in the order of the table."""
        return tuple(dict.fromkeys(move.verb for move in self.moves if not move.by_itself))

    def legal(self, state: State) -> tuple[str, ...]:
        """Return the verbs that may be asked for in `state`."""
        return tuple(dict.fromkeys(move.verb for move in self._from.get(state, ()) if not move.by_itself))

    def by_itself(self, state: State) -> tuple[State, ...]:
        """Return where `state` leads without anybody asking."""
        return tuple(dict.fromkeys(move.end for move in self._from.get(state, ()) if move.by_itself))

    def step(self, state: State, verb: str, *, condition: str = "") -> State:
        """Return where `verb` leads from `state`. `condition` chooses where the table has several ends.

        Raises:
            UserError: The move is not in the table; names the state and the verbs that are legal there.
        """
        ends = [
            move.end
            for move in self._from.get(state, ())
            if move.verb == verb and not move.by_itself and move.condition == condition
        ]
        if not ends:
            raise UserError(self.refuse(state, verb), hint=self._advice(state))
        return ends[0]

    def follow(self, state: State, end: State) -> State:
        """Return `end`, if `state` moves there by itself.

        Raises:
            UserError: It does not.
        """
        if end not in self.by_itself(state):
            raise UserError(f"{self.name}: {state} does not become {end} by itself", hint=self._advice(state))
        return end

    def path(self, start: State, end: State) -> tuple[Move[State], ...] | None:
        """Return the shortest way from `start` to `end`, moves made by themselves included; `None` where none is."""
        ways: dict[State, tuple[Move[State], ...]] = {start: ()}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here == end:
                return ways[here]
            for move in self._from.get(here, ()):
                if move.end not in ways:
                    ways[move.end] = (*ways[here], move)
                    queue.append(move.end)
        return None

    def refuse(self, state: State, verb: str) -> str:
        """Say why `verb` is not possible in `state`."""
        known = {(start, word): text for start, word, text in self.refusals}
        return known.get((state, verb)) or f"{self.name}: cannot {verb} while {state}"

    @cached_property
    def _from(self) -> Mapping[State, tuple[Move[State], ...]]:
        table: dict[State, list[Move[State]]] = {}
        for move in self.moves:
            table.setdefault(move.start, []).append(move)
        return {state: tuple(moves) for state, moves in table.items()}

    def _advice(self, state: State) -> str:
        legal = self.legal(state)
        itself = self.by_itself(state)
        ways = f"Possible in this state: {', '.join(legal)}." if legal else "Nothing can be asked for there."
        return f"{ways} It becomes {' or '.join(itself)} by itself." if itself and not legal else ways
