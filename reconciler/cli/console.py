"""The two streams of a terminal or a pipe: the only module that writes."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TextIO, cast

from reconciler.cli import signals
from reconciler.cli.hint_rewrite import lines_again
from reconciler.cli.text.lines import Line, Tone, text_of
from reconciler.runtime.text import without_commands

if TYPE_CHECKING:
    from reconciler.cli.text.job_log import Pipeline


_STYLES: Final = {
    Tone.STRONG: "bold",
    Tone.QUIET: "dim",
    Tone.ADD: "green",
    Tone.CHANGE: "yellow",
    Tone.REMOVE: "red",
    Tone.MOVE: "cyan",
    Tone.DANGER: "bold red",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """One stream. Colours where it is a terminal that wants them, or where they are asked for."""

    stream: TextIO

    @property
    def is_terminal(self) -> bool:
        """Tell whether a person is looking."""
        return not self.stream.closed and self.stream.isatty()

    @property
    def has_colours(self) -> bool:
        """Tell whether colour codes may be written.

        NO_COLOR wins (https://no-color.org), then FORCE_COLOR (https://force-color.org) and CLICOLOR_FORCE, which hold
        in a pipe too, then CLICOLOR (https://bixense.com/clicolors).
        """
        environ = os.environ
        if environ.get("NO_COLOR"):
            return False
        if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
            return True
        return self.is_terminal and environ.get("CLICOLOR") != "0" and environ.get("TERM") != "dumb"

    @property
    def can_redraw(self) -> bool:
        """Tell whether lines may be drawn over: the log of a pipeline keeps each, even where it seems a terminal."""
        return self.is_terminal and os.environ.get("TERM") not in {"dumb", "unknown"} and pipeline() is None

    @property
    def width(self) -> int | None:
        """Return the columns of a terminal; `None` in a pipe, where a line may be as long as it is."""
        return os.get_terminal_size(self.stream.fileno()).columns or None if self.is_terminal else None

    def show(self, lines: Iterable[Line]) -> None:
        """Write lines. A reader that has gone is no error: what is left has nobody to read it."""
        again = lines_again(lines)
        self.write(_coloured(again) if self.has_colours else text_of(again))

    def page(self, lines: Iterable[Line]) -> None:
        """Show lines; through RECONCILER_PAGER where it is set, this is a terminal, and they are more than it has."""
        pager = os.environ.get("RECONCILER_PAGER", "").strip() if self.is_terminal else ""
        held = list(lines)
        if pager and len(held) >= os.get_terminal_size(self.stream.fileno()).lines:
            again = lines_again(held)
            if _paged(pager, without_commands(_coloured(again) if self.has_colours else text_of(again))):
                return
        self.show(held)

    def write(self, text: str) -> None:
        """Write text; its lines are ours, and no pipeline takes one for a command."""
        text = without_commands(text)
        _ignore_a_gone_reader(self.stream, lambda: _written_text(self.stream, text))

    def command(self, text: str) -> None:
        """Write a command to the runner of a pipeline, which `write` would disarm; what is in it is escaped already."""
        _ignore_a_gone_reader(self.stream, lambda: _written_text(self.stream, text))

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """Fold what the block writes where the log of a pipeline can; a file gets what it would get elsewhere."""
        runner = pipeline()
        if runner is None or self._is_file:
            yield
            return
        from reconciler.cli.text.job_log import Fold

        fold = Fold(runner, title, time.time())
        self.command(fold.begin)
        try:
            yield
        finally:
            self.command(fold.end(time.time()))

    @property
    def _is_file(self) -> bool:
        try:
            return stat.S_ISREG(os.fstat(self.stream.fileno()).st_mode)
        except (OSError, ValueError):
            return True

    def write_bytes(self, body: bytes) -> None:
        """Write bytes as they are: JSON, whose encoding is not the terminal's to choose."""
        _ignore_a_gone_reader(self.stream, lambda: _written(self.stream, body))


def pipeline() -> Pipeline | None:
    """Return whose pipeline this runs in, by what runners set."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    if os.environ.get("GITLAB_CI") == "true":
        return "gitlab"
    return "other" if os.environ.get("CI", "") not in {"", "0", "false"} else None


def out() -> Screen:
    """Return standard output: results."""
    return Screen(sys.stdout)


def err() -> Screen:
    """Return standard error: progress, warnings, errors, questions."""
    return Screen(sys.stderr)


def prepare_streams() -> None:
    """Let no locale turn a plan into an encoding error; a stream that was closed beforehand leads nowhere."""
    if sys.stdin is None:
        sys.stdin = _nowhere("r")
    if sys.stdout is None:
        sys.stdout = _nowhere("w")
    if sys.stderr is None:
        sys.stderr = _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def stdin_is_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return not sys.stdin.closed and sys.stdin.isatty()


def binary_stdin() -> BinaryIO:
    """Return standard input as bytes."""
    return sys.stdin.buffer


def binary_stdout() -> BinaryIO:
    """Return standard output as bytes; what is written to it is written whole."""
    buffer = sys.stdout.buffer
    return cast("BinaryIO", _Whole(buffer)) if isinstance(buffer, io.RawIOBase) else buffer


class _Whole:
    """Writes all it is given.

    With PYTHONUNBUFFERED nothing else does: a system call that a signal interrupts takes a part of it, and no more.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def write(self, body: bytes) -> int:
        """Write until nothing is left."""
        left = memoryview(body)
        while left:
            left = left[self._raw.write(left) or 0 :]
        return len(body)

    def flush(self) -> None:
        """Keep nothing back."""

    def fileno(self) -> int:
        """Return what the system calls it."""
        return self._raw.fileno()


def silence(stream: TextIO) -> None:
    """Send what is still to come on a stream nowhere, so that closing it cannot fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _paged(pager: str, text: str) -> bool:
    """Tell whether a pager showed a text. It is a command with its options, and no line of a shell."""
    import shlex
    import subprocess

    environ = {"LESS": "FRX", **os.environ}  # as git does: colours, and nothing where it all fits
    sys.stdout.flush()
    try:
        with signals.left_to_another():
            subprocess.run(shlex.split(pager), input=text.encode(errors="backslashreplace"), env=environ, check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError):
        return False
    return True


def _ignore_a_gone_reader(stream: TextIO, write: Callable[[], object]) -> None:
    try:
        write()
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        error.filename = error.filename or _name_of(stream)
        silence(stream)
        raise


def _name_of(stream: TextIO) -> str:
    return "standard output" if stream is sys.stdout else "standard error"


def are_one() -> bool:
    """Tell whether standard output and standard error go to the same place: what one says need not be said twice."""
    try:
        ends = [os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError):
        return False
    return len({(end.st_dev, end.st_ino) for end in ends}) == 1


def _written(stream: TextIO, body: bytes) -> None:
    stream.flush()
    buffer = stream.buffer
    (_Whole(buffer) if isinstance(buffer, io.RawIOBase) else buffer).write(body)
    buffer.flush()


def _written_text(stream: TextIO, text: str) -> None:
    if (
        isinstance(getattr(stream, "buffer", None), io.RawIOBase) and stream.encoding
    ):  # A live table's stand-in has none.
        _written(stream, text.encode(stream.encoding, stream.errors or "strict"))
    else:
        stream.write(text)


def _coloured(lines: Iterable[Line]) -> str:
    from rich.color import ColorSystem
    from rich.style import Style

    styles = {tone: Style.parse(words) for tone, words in _STYLES.items()}
    return "".join(
        "".join(
            styles[span.tone].render(span.text, color_system=ColorSystem.STANDARD) if span.tone in styles else span.text
            for span in spans
        ).rstrip()
        + "\n"
        for spans in lines
    )
