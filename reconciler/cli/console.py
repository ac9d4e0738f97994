"""Standard output and error; no other module writes to them."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TextIO, cast

from reconciler.cli import signals
from reconciler.cli.hint_rewrite import add_typed_options_to_lines
from reconciler.cli.text.lines import Line, Tone, to_plain_text
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_commands

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
    """Standard output or error, with colours if supported or requested."""

    stream: TextIO

    @property
    def is_terminal(self) -> bool:
        """Return whether the stream is a terminal."""
        return not self.stream.closed and self.stream.isatty()

    @property
    def has_colours(self) -> bool:
        """Return whether colour codes may be written.

        Precedence: NO_COLOR (https://no-color.org), FORCE_COLOR (https://force-color.org), CLICOLOR_FORCE, CLICOLOR
        (https://bixense.com/clicolors).
        """
        environ = os.environ
        if environ.get("NO_COLOR"):
            return False
        if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
            return True
        return self.is_terminal and environ.get("CLICOLOR") != "0" and environ.get("TERM") != "dumb"

    @property
    def can_redraw(self) -> bool:
        """Return whether lines may be redrawn; CI logs would show every redraw."""
        return self.is_terminal and os.environ.get("TERM") not in {"dumb", "unknown"} and detect_pipeline() is None

    @property
    def width(self) -> int | None:
        """Return the terminal's width in columns, or `None`."""
        return os.get_terminal_size(self.stream.fileno()).columns or None if self.is_terminal else None

    def show(self, lines: Iterable[Line]) -> None:
        """Write lines; ignore a closed pipe."""
        again = add_typed_options_to_lines(lines)
        self.write(_colour_text(again) if self.has_colours else to_plain_text(again))

    def show_paged(self, lines: Iterable[Line]) -> None:
        """Write lines; use RECONCILER_PAGER if they do not fit the terminal."""
        pager = os.environ.get("RECONCILER_PAGER", "").strip() if self.is_terminal else ""
        held = list(lines)
        if pager and len(held) >= os.get_terminal_size(self.stream.fileno()).lines:
            again = add_typed_options_to_lines(held)
            if _show_in_pager(
                pager, escape_commands(_colour_text(again) if self.has_colours else to_plain_text(again))
            ):
                return
        self.show(held)

    def write(self, text: str) -> None:
        """Write text; CI runners execute no commands in it."""
        text = escape_commands(text)
        _ignore_broken_pipe(self.stream, lambda: _write_text(self.stream, text))

    def write_command(self, text: str) -> None:
        """Write a command that the CI runner executes."""
        _ignore_broken_pipe(self.stream, lambda: _write_text(self.stream, text))

    @contextmanager
    def fold_output(self, title: str) -> Iterator[None]:
        """Fold the block's output in a CI log, but not in a file."""
        runner = detect_pipeline()
        if runner is None or self._is_file:
            yield
            return
        from reconciler.cli.text.job_log import LogFold

        fold = LogFold(runner, title, time.time())
        self.write_command(fold.opening_text)
        try:
            yield
        finally:
            self.write_command(fold.build_closing_text(time.time()))

    @property
    def _is_file(self) -> bool:
        try:
            return stat.S_ISREG(os.fstat(self.stream.fileno()).st_mode)
        except (OSError, ValueError):
            return True

    def write_bytes(self, body: bytes) -> None:
        """Write bytes unchanged."""
        _ignore_broken_pipe(self.stream, lambda: _write_all(self.stream, body))


def detect_pipeline() -> Pipeline | None:
    """Return the kind of CI pipeline, or `None`."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return "github"
    if os.environ.get("GITLAB_CI") == "true":
        return "gitlab"
    return "other" if os.environ.get("CI", "") not in {"", "0", "false"} else None


def open_stdout() -> Screen:
    """Return standard output, for results."""
    return Screen(sys.stdout)


def open_stderr() -> Screen:
    """Return standard error, for progress, warnings, errors and questions."""
    return Screen(sys.stderr)


def prepare_streams() -> None:
    """Replace closed standard streams; escape characters that the locale lacks."""
    if sys.stdin is None:
        sys.stdin = _open_null("r")
    if sys.stdout is None:
        sys.stdout = _open_null("w")
    if sys.stderr is None:
        sys.stderr = _open_null("w")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _open_null(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def is_stdin_terminal() -> bool:
    """Return whether standard input is a terminal."""
    return not sys.stdin.closed and sys.stdin.isatty()


def open_binary_stdin() -> BinaryIO:
    """Return standard input as bytes."""
    return sys.stdin.buffer


def open_binary_stdout() -> BinaryIO:
    """Return standard output as a binary writer without partial writes."""
    buffer = sys.stdout.buffer
    return cast("BinaryIO", _CompleteWriter(buffer)) if isinstance(buffer, io.RawIOBase) else buffer


class _CompleteWriter:
    """Completes partial writes, which signals cause under PYTHONUNBUFFERED."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def write(self, body: bytes) -> int:
        left = memoryview(body)
        while left:
            left = left[self._raw.write(left) or 0 :]
        return len(body)

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return self._raw.fileno()


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to the null device, so closing cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _show_in_pager(pager: str, text: str) -> bool:
    import shlex
    import subprocess

    environ = {"LESS": "FRX", **os.environ}  # git's default: show colours; exit if the text fits
    sys.stdout.flush()
    try:
        with signals.leave_interrupts_to_child():
            subprocess.run(shlex.split(pager), input=text.encode(errors="backslashreplace"), env=environ, check=False)  # noqa: S603 - the user's own
    except (OSError, ValueError):
        return False
    return True


def _ignore_broken_pipe(stream: TextIO, write: Callable[[], object]) -> None:
    try:
        write()
        stream.flush()
    except BrokenPipeError:
        discard_output(stream)
    except OSError as error:
        error.filename = error.filename or _name_stream(stream)
        discard_output(stream)
        raise


def _name_stream(stream: TextIO) -> str:
    return "standard output" if stream is sys.stdout else "standard error"


def streams_share_target() -> bool:
    """Return whether standard output and error go to the same file or terminal."""
    try:
        ends = [os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError):
        return False
    return len({(end.st_dev, end.st_ino) for end in ends}) == 1


def _write_all(stream: TextIO, body: bytes) -> None:
    stream.flush()
    buffer = stream.buffer
    (_CompleteWriter(buffer) if isinstance(buffer, io.RawIOBase) else buffer).write(body)
    buffer.flush()


def _write_text(stream: TextIO, text: str) -> None:
    # The stream may be a FileProxy of rich, which has no encoding.
    if isinstance(getattr(stream, "buffer", None), io.RawIOBase) and stream.encoding:
        _write_all(stream, text.encode(stream.encoding, stream.errors or "strict"))
    else:
        stream.write(text)


def _colour_text(lines: Iterable[Line]) -> str:
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
