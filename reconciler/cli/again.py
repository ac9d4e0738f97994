"""What was typed to choose a workspace and a part of it, put into every command that is hinted at.

A hint names a command from far below, where nobody knows what was typed. Typed as it is shown, it has to act on the
same environment, and on no more than the command before it looked at.
"""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.cli.options import Chosen, Files, Place
from reconciler.cli.reaching import ByState
from reconciler.cli.render.lines import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.cli.render.lines import Line

_COMMAND: Final = re.compile(
    r"(?P<command>\breconciler (?:apply|plan|drift|destroy|(?:state|mount|mirror) [a-z-]+))\b"
    r"(?P<more>(?! --help)(?: --resume| [\w./]\S*)?)"
)
_OF_ALL: Final = ("reconciler state ", "reconciler mount ", "reconciler mirror ")
"""What these act on is not chosen by a part of the workspace."""


@dataclass(frozen=True, slots=True)
class Typed:
    """Options of the command line, as they would be typed again."""

    place: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    """What stands in for a workspace, where a command takes that."""

    def after(self, command: str, more: str) -> tuple[str, ...]:
        """Return what belongs behind a command; `more` is what follows it."""
        if command.startswith(_OF_ALL):
            return (*self.state, *self.place, *self.environment, *self.variables)
        if more == " --resume":
            return (*self.place, *self.environment)  # the open run brings the rest
        if more:
            return self.place  # so does a saved plan
        return (*self.place, *self.environment, *self.variables, *self.part)


_NOTHING: Final = Typed()
_TYPED: Final = ContextVar("_TYPED", default=_NOTHING)


def forget_typed() -> None:
    """Begin a command line."""
    _TYPED.set(_NOTHING)


def remember_typed(bundles: Iterable[object]) -> None:
    """Keep what a command was given, for as long as it is spoken of."""
    place: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    from reconciler.cli.emergency import Acting  # it prints, and what is printed comes through here

    for bundle in bundles:
        if isinstance(bundle, Place) and bundle.workspace is not None:
            place = ("--workspace", str(bundle.workspace))
        if isinstance(bundle, Files):
            environment = () if bundle.environment is None else ("-e", bundle.environment)
            variables = (*_each("--var", bundle.var), *_each("--var-file", bundle.var_file))
        if isinstance(bundle, Chosen):
            part = tuple(_part(bundle))
        if isinstance(bundle, ByState | Acting) and bundle.state is not None:
            state = ("--state", bundle.state)
    _TYPED.set(Typed(place, environment, variables, part, state))


def typed_again(text: str) -> str:
    """Return a text whose commands act on what the one before acted on."""
    typed = _TYPED.get()
    return text if typed == _NOTHING or not _speaks(text) else _COMMAND.sub(lambda at: _filled(typed, at), text)


def lines_again(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines in the same way."""
    for each in lines:
        if any(_speaks(span.text) for span in each):
            yield tuple(Span(typed_again(span.text), span.tone) for span in each)
        else:
            yield each


def _speaks(text: str) -> bool:
    return "reconciler " in text


def _filled(typed: Typed, found: re.Match[str]) -> str:
    command, more = found["command"], found["more"]
    return " ".join([command, *map(shlex.quote, typed.after(command, more))]) + more


def _part(chosen: Chosen) -> Iterator[str]:
    yield from _each("--target", chosen.target)
    yield from _each("--exclude", chosen.exclude)
    yield from _each("--label", chosen.label)
    yield from _each("--changed-since", [chosen.changed_since] if chosen.changed_since else None)


def _each(option: str, values: Iterable[object] | None) -> Iterator[str]:
    for value in values or ():
        yield from (option, str(value))
