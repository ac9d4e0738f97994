"""Add the given options to commands in hints.

A copied command must act on the same environment and no further resources.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Final, Protocol, runtime_checkable

from reconciler.cli.text.lines import Line, Span
from reconciler.runtime.dataclass import dataclass

_COMMAND: Final = re.compile(
    r"(?P<command>\breconciler (?:apply|plan|drift|destroy|run|verify|show|export"
    r"|(?:cluster|state|mount|mirror|link|topic|group|namespace) [a-z-]+))\b"
    r"(?P<more>(?! --help)(?: --resume| '[^']*'| [\w./]\S*)?)"
)
_PART_COMMANDS: Final = ("reconciler apply", "reconciler plan", "reconciler drift", "reconciler destroy")
"""Commands that accept options such as `--target`."""
_FILE_COMMANDS: Final = ("reconciler state ", "reconciler show", "reconciler export")
"""Commands that do not accept `--state`."""
_ORDER_COMMAND: Final = re.compile(
    r"reconciler (?:topic|namespace|mirror|link) (?!(?:list|describe|errors|storage|profile|produce|consume)$)"
)
"""Commands that accept `--cluster NAME=URL`."""


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """Options of the command line, as words for hints."""

    place: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    def merge(self, other: TypedOptions) -> TypedOptions:
        """Return these options, and those of `other` for missing ones."""
        return TypedOptions(
            self.place or other.place,
            self.environment or other.environment,
            self.variables or other.variables,
            self.part or other.part,
            self.state or other.state,
            self.clusters or other.clusters,
        )

    def select_for_command(self, command: str, more: str) -> tuple[str, ...]:
        """Return the options for a command in a hint; `more` is its first argument."""
        if command not in _PART_COMMANDS:
            state = () if command.startswith(_FILE_COMMANDS) else self.state
            state += self.clusters if _ORDER_COMMAND.match(command) else ()
            return (*state, *self.place, *self.environment, *self.variables)
        if more == " --resume":
            return (*self.place, *self.environment)  # The open run stores the other options.
        if more:
            return self.place  # A saved plan stores the other options.
        return (*self.place, *self.environment, *self.variables, *self.part)


@runtime_checkable
class TypedBundle(Protocol):
    """Bundle of options that hints repeat."""

    def list_typed_options(self) -> TypedOptions:
        """Return the options that the user gave."""
        ...


_NOTHING: Final = TypedOptions()
_TYPED: Final = ContextVar("_TYPED", default=_NOTHING)


def forget_typed_options() -> None:
    """Forget the previous command line."""
    _TYPED.set(_NOTHING)


def remember_typed_options(bundles: Iterable[object]) -> None:
    """Store the options of this command line."""
    typed = _NOTHING
    for bundle in bundles:
        if isinstance(bundle, TypedBundle):
            typed = typed.merge(bundle.list_typed_options())
    _TYPED.set(typed)


def add_typed_options(text: str) -> str:
    """Add the stored options to commands in a text."""
    typed = _TYPED.get()
    return (
        text if typed == _NOTHING or not _has_command(text) else _COMMAND.sub(lambda at: _fill_options(typed, at), text)
    )


def add_typed_options_to_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Add the stored options to commands in lines."""
    for spans in lines:
        if any(_has_command(span.text) for span in spans):
            yield tuple(Span(add_typed_options(span.text), span.tone) for span in spans)
        else:
            yield spans


def _has_command(text: str) -> bool:
    return "reconciler " in text


def _fill_options(typed: TypedOptions, match: re.Match[str]) -> str:
    command, more = match["command"], match["more"]
    return " ".join([command, *map(shlex.quote, typed.select_for_command(command, more))]) + more
