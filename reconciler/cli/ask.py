"""Ask once, about a finished plan."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, Final, Literal

from reconciler.cli import signals
from reconciler.cli.console import err, out, stdin_is_terminal
from reconciler.cli.text.lines import Span, Tone, line, text_of
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.cli.text.lines import Line


_LOOK_S: Final = 0.2
"""A signal that comes just before a read begins does not end it: Python runs its handler when the read is over."""


def ask(question: str) -> bool:
    """Ask on the terminal and return whether the answer was `yes`.

    Raises:
        EOFError: Nobody answers any more.
    """
    screen = err()
    try:
        with signals.asking():
            screen.show([line(Span(question, Tone.STRONG))])
            screen.write(text_of([line("Only 'yes' goes on: ")]).rstrip("\n") + " ")
            while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
                pass
            answer = sys.stdin.readline()
    except KeyboardInterrupt:
        screen.write("\n")  # what is said next does not stand behind the question
        raise
    if not answer:
        screen.write("\n")
        raise EOFError
    return answer.strip() == "yes"


def approved(lines: Iterable[Line], question: str, *, yes: bool, form: Literal["text", "json"]) -> bool:
    """Show what is about to happen, and ask unless that was answered before; with JSON it does not mix with the result.

    Raises:
        UsageError: Standard input is no terminal; nothing was done.
    """
    (out() if form == "text" else err()).show(lines)
    if not yes:
        require_someone_to_ask("Give --yes")
    return yes or ask(question)


def require_someone_to_ask(instead: str) -> None:
    """Refuse to start what needs an answer where nobody can give one.

    Raises:
        UsageError: Standard input is no terminal.
    """
    if not stdin_is_terminal():
        raise UsageError("there is no terminal to confirm on, so nothing was done", hint=instead)
