"""Progress on a terminal or in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final, Literal, assert_never

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Approval,
    Event,
    LeaseLost,
    PlanMade,
    Progress,
    ResultMissing,
    RunHandedOver,
    RunRecovered,
    Summary,
)
from reconciler.cli.console import err, out, pipeline
from reconciler.cli.environment import is_log_enabled, note
from reconciler.cli.text.lines import Line, Span, Tone, line
from reconciler.cli.text.runs_text import Failures, done_line, progress_text, run_event_lines
from reconciler.runtime.text import format_bytes, format_count, format_elapsed, pluralize

_TERMINAL_S: Final = 0.1
_PIPE_S: Final = 5.0


@contextmanager
def show_counts(word: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the number of records and bytes moved."""
    screen = err()
    every = _TERMINAL_S if screen.can_redraw else _PIPE_S
    began = said_at = time.monotonic()
    widest = 0

    def report(records: int, size: int) -> None:
        nonlocal said_at, widest
        now = time.monotonic()
        if now - said_at < every:
            return
        said_at = now
        if is_log_enabled():
            note(word, records=records, bytes=size)
            return
        pace = f"{format_count(round(records / (now - began)))} records/s"
        elapsed = format_elapsed(float(int(now - began)))
        text = f"{word}: {pluralize(records, 'record')}, {format_bytes(size)}, {pace}, {elapsed}"
        if screen.can_redraw:
            widest = max(widest, len(text))
            screen.write(f"\r{text.ljust(widest)}")
        else:
            screen.show([line(text)])

    try:
        yield report
    finally:
        if widest:
            screen.write(f"\r{' ' * widest}\r")


# Events are JSON lines for programs, a table on a terminal, occasional lines in a pipe.


_BETWEEN_LINES_S: Final = 5.0


@dataclass(slots=True)
class FinishedRun:
    """How a run ended, once it has."""

    summary: Summary | None = None


@contextmanager
def open_reporter(
    form: Literal["text", "json"], ending: FinishedRun | None = None
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes a run's events, from any thread; `ending` receives the outcome."""
    lock = threading.Lock()
    ending = ending or FinishedRun()
    if form == "json":
        yield _serial(_as_json, lock, ending)
    elif is_log_enabled():
        # Standard error is JSON, which has the events; failures are printed at the end.
        yield _serial(_as_log_only, lock, ending)
    elif err().can_redraw:
        from reconciler.cli.live import LiveTable

        with LiveTable() as table:
            yield _serial(table.take, lock, ending)
    else:
        yield _serial(Lines(is_timed=pipeline() is not None).take, lock, ending)


def _serial(take: Callable[[Event], None], lock: threading.Lock, ending: FinishedRun) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        with lock:
            take(event)
            if is_log_enabled() and not isinstance(event, PlanMade):
                note(type(event).__name__, **asdict(event))
            if isinstance(event, Summary):
                ending.summary = event

    return report


def _as_log_only(_event: Event) -> None:
    """Print nothing: every event is logged."""


def _as_json(event: Event) -> None:
    from reconciler.cli.json.runs_json import event_line

    out().write_bytes(event_line(event))


class Lines:
    """For a pipe: failures at once, other actions at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, is_timed: bool = False) -> None:
        """`is_timed`: lines have the time since the beginning, for logs without times."""
        self._clock = clock
        self._began = clock()
        self._told_at: dict[str, float] = {}
        self._is_timed = is_timed
        self._done = 0
        self._told = 0
        self._failures = Failures()

    def take(self, event: Event) -> None:
        """Print an event that deserves a line."""
        match event:
            case ActionFailed():
                self._say(self._failures.lines(event))
            case LeaseLost() | RunRecovered() | RunHandedOver() | ResultMissing():
                self._say(run_event_lines(event))
            case Progress():
                if self._is_time(event.id):
                    self._say([line(progress_text(event))])
            case ActionDone():
                self._done += 1
                self._told_at.pop(event.id, None)
                if event.records or event.bytes:
                    self._say([done_line(event)])
                elif self._is_time():
                    self._tell_done()
            case Summary():
                if 0 < self._told < self._done:
                    self._tell_done()
            case Approval() | PlanMade() | ActionStarted():
                pass
            case _:
                assert_never(event)

    def _say(self, lines: list[Line]) -> None:
        if self._is_timed:
            passed = Span(f"[{format_elapsed(float(int(self._clock() - self._began)))}] ", Tone.QUIET)
            lines = [(passed, *spans) for spans in lines]
        err().show(lines)

    def _tell_done(self) -> None:
        self._told = self._done
        self._say([line(f"{pluralize(self._done, 'action')} done")])

    def _is_time(self, name: str = "") -> bool:
        """Return whether the action, or the total, was printed long enough ago."""
        now = self._clock()
        if now - self._told_at.get(name, self._began) < _BETWEEN_LINES_S:
            return False
        self._told_at[name] = now
        return True
