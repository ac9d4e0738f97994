"""Errors as text on standard error, and the exit code."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Final

from typer import TyperException

from reconciler.cli.console import Screen, err, silence
from reconciler.cli.text.lines import Line, Span, Tone, line
from reconciler.errors import BrokenInvariantError, DriftError, MissingRecordsError, PendingError, ReconcilerError
from reconciler.runtime.text import one_line, visible

USAGE: Final = 64
INTERRUPTED: Final = 130
_LONGEST: Final = 2_000
"""Characters of a line of a traceback: what others said may be a page."""

_BUG_HINT: Final = (
    "This is our bug. Please report it with the command and what `--verbose` adds; apply again when it is mended"
)


def exit_code_of(error: BaseException, *, is_verbose: bool) -> int:
    """Say what went wrong and return the code to leave with."""
    screen = err()
    match error:
        case ReconcilerError():
            _say_ours(screen, error)
            code = error.exit_code
        case TyperException():
            code = _say_usage(screen, error)
        case KeyboardInterrupt():
            screen.show([line("\nInterrupted: nothing was started.")])
            code = INTERRUPTED
        case BrokenPipeError():
            # A process that read our output has enough of it; the rest of it goes nowhere.
            silence(sys.stdout)
            code = 0
        case _:
            code, message, hint = unexpected(error)
            _say(screen, "Error", message, hint)
    if is_verbose and not isinstance(error, TyperException | KeyboardInterrupt):
        lines = "".join(traceback.format_exception(error)).splitlines()
        screen.write("".join(f"{visible(each[:_LONGEST])}\n" for each in lines))
    return code


def unexpected(error: BaseException) -> tuple[int, str, str]:
    """Return exit code, message and hint of what none of us raised."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED, "Interrupted: nothing was started", "Run the same command again"
        case ImportError() if missing := MissingRecordsError.of(error):
            return missing.exit_code, missing.message, missing.hint
        case OSError():
            return 1, _of_the_system(error), "Mend that, then run the same command again"
        case MemoryError():
            return 1, "Not enough memory", "Plan less at once with --target, or give the process more memory"
        case RecursionError():
            return 1, "The input is nested too deeply", "Flatten the file that was being read"
        case _:
            return 1, f"Unexpected {type(error).__name__}: {one_line(str(error))}", _BUG_HINT


def _say_ours(screen: Screen, error: ReconcilerError) -> None:
    match error:
        case PendingError():
            return  # the plan has just said so
        case DriftError():
            _say(screen, "Drift", error.message, error.hint)
        case BrokenInvariantError():
            _say(screen, "Bug", error.message, error.hint)
        case _:
            problems = getattr(error, "problems", ())
            screen.show([each for problem in problems for each in _problem(problem, error)])
            said = error.message.split("\n", 1)[0] if problems else error.message
            _say(screen, "Error", said, error.hint, _code_of(said))


def _problem(problem: object, error: ReconcilerError) -> list[Line]:
    """Return a problem, and the line of its file below it."""
    excerpt = getattr(error, "excerpts", {}).get(problem, ())
    return [line(str(problem)), *(line(Span(each, Tone.QUIET)) for each in excerpt)]


def misread(error: BaseException) -> tuple[str, str] | None:
    """Return message and hint of a command line that cannot be read as a whole; `None`: it was read."""
    if not isinstance(error, TyperException) or type(error).__name__ == "NoArgsIsHelpError":
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "reconciler"
    return _plainly(error.format_message()), f"See `{path} --help`"


def _say_usage(screen: Screen, error: TyperException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        screen.write(f"{error.format_message()}\n")
        return USAGE
    if (said := misread(error)) is not None:
        _say(screen, "Error", *said)
    return USAGE


_WORDINGS: Final = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be greater than or equal to (\S+?)\.?$"), r"it is at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+?)\.?$"), r"it is at most \1"),
    (re.compile(r"Input should be a valid integer.*"), "it is a whole number"),
    (re.compile(r"Input should be a valid number.*"), "it is a number"),
    (re.compile(r"Input should be "), "it is "),
)
"""What the library that reads options says, and what people are told."""


def _plainly(message: str) -> str:
    for found, said in _WORDINGS:
        message = found.sub(said, message)
    return message.removesuffix(".")


def _of_the_system(error: OSError) -> str:
    reason = one_line(error.strerror or str(error)) or type(error).__name__
    return f"{visible(str(error.filename))}: {reason}" if error.filename else reason


def _say(screen: Screen, word: str, message: str, hint: str, code: str | None = None) -> None:
    more = [] if code is None else [line("  ", Span("more: ", Tone.QUIET), f"reconciler explain {code}")]
    screen.show(
        [_first(word, message), *_rest(message), line("  ", Span("hint: ", Tone.QUIET), hint.removesuffix(".")), *more]
    )


def _code_of(message: str) -> str | None:
    from reconciler.cli.explanations import explanation_of  # only errors pay for it

    found = explanation_of(message)
    return None if found is None else found.code


def _first(word: str, message: str) -> Line:
    return line(Span(f"{word}: ", Tone.DANGER), message.split("\n", 1)[0])


def _rest(message: str) -> list[Line]:
    return [line("  ", part) for part in message.split("\n")[1:]]
