"""Where in a file each field stands: worked out only when something has to be said about one.

Keeping a place for every value of ten thousand topics would cost more than the values; reading one file again costs
milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.manifests.scalars import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

Path: TypeAlias = tuple[str | int, ...]


class Spot(NamedTuple):
    """A place in a file; both count from 1."""

    line: int
    column: int


def spots(raw: bytes, parser: Any) -> tuple[Mapping[Path, Spot], ...]:
    """Return, for each document that is not empty, where each key and each entry of a list begins.

    Of a key written twice it is the first. Stops without an error where the file stops being YAML.
    """
    walker = _Walker()
    try:
        events = parser(raw)
        while (event := events.get_event()) is not None:
            walker.take(event)
    except (yaml.YAMLError, UnicodeError):
        walker.end()
    return tuple(walker.documents)


class _Walker:
    def __init__(self) -> None:
        self.documents: list[dict[Path, Spot]] = []
        self._spots: dict[Path, Spot] = {}
        self._is_empty = True
        self._stack: list[tuple[Path, int]] = []
        self._here: Path = ()
        self._next = _ROOT
        """The index of the next entry of a list, or what a mapping waits for."""
        self._key = ""

    def take(self, event: Any) -> None:
        match event:
            case DocumentStartEvent():
                self._spots, self._here, self._next, self._is_empty = {}, (), _ROOT, True
                self._stack.clear()
            case DocumentEndEvent():
                self.end()
            case ScalarEvent() if self._next == _KEY:
                self._take_key(event)
            case MappingStartEvent() | SequenceStartEvent():
                self._stack.append((self._here, self._next))
                self._here = self._child(event)
                self._next = _KEY if isinstance(event, MappingStartEvent) else 0
            case MappingEndEvent() | SequenceEndEvent():
                self._here, self._next = self._stack.pop()
                self._advance()
            case ScalarEvent() | AliasEvent():
                self._child(event)
                self._advance()
            case _:
                pass  # the stream's own beginning and end

    def end(self) -> None:
        """Keep the document unless it says nothing: the reader leaves those out, too."""
        if not self._is_empty:
            self.documents.append(self._spots)
        self._is_empty = True

    def _take_key(self, event: Any) -> None:
        self._key = event.value
        self._spots.setdefault((*self._here, self._key), _spot(event))
        self._next = _VALUE

    def _child(self, event: Any) -> Path:
        """Return the path of what begins here; entries of lists are noted where they begin."""
        if self._next == _ROOT:
            is_null = isinstance(event, ScalarEvent) and event.implicit[0] and resolve(event.value) is None
            self._is_empty = is_null
            self._spots.setdefault((), _spot(event))
            return ()
        if self._next >= 0:
            path = (*self._here, self._next)
            self._spots[path] = _spot(event)
            return path
        return (*self._here, self._key)

    def _advance(self) -> None:
        if self._next == _VALUE:
            self._next = _KEY
        elif self._next == _KEY:
            self._next = _VALUE  # a collection stood as a key
        elif self._next >= 0:
            self._next += 1


_ROOT = -1
_KEY = -2
_VALUE = -3


def _spot(event: Any) -> Spot:
    return Spot(event.start_mark.line + 1, event.start_mark.column + 1)
