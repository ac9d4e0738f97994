"""Progress on a terminal or in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from reconciler.cli.console import detect_pipeline, open_stderr, open_stdout
from reconciler.cli.environment import is_log_enabled, log_event
from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.cli.text.runs_text import FailureFormatter, format_action_done, format_progress, format_run_event
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import format_bytes, format_count, format_elapsed, pluralize

_TERMINAL_S: Final = 0.1
_PIPE_S: Final = 5.0


@contextmanager
def open_count_reporter(word: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the records and bytes moved."""
    screen = open_stderr()
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
            log_event(word, records=records, bytes=size)
            return
        pace = f"{format_count(round(records / (now - began)))} records/s"
        elapsed = format_elapsed(float(int(now - began)))
        text = f"{word}: {pluralize(records, 'record')}, {format_bytes(size)}, {pace}, {elapsed}"
        if screen.can_redraw:
            widest = max(widest, len(text))
            screen.write(f"\r{text.ljust(widest)}")
        else:
            screen.show([make_line(text)])

    try:
        yield report
    finally:
        if widest:
            screen.write(f"\r{' ' * widest}\r")


_BETWEEN_LINES_S: Final = 5.0


@dataclass(slots=True)
class FinishedRun:
    """A run's summary, once it has ended."""

    summary: Summary | None = None


@contextmanager
def open_reporter(
    form: Literal["text", "json"], ending: FinishedRun | None = None
) -> Iterator[Callable[[Event], None]]:
    """Yield a thread-safe function that prints events; `ending` receives the summary."""
    lock = threading.Lock()
    ending = ending or FinishedRun()
    if form == "json":
        yield _serialize(_print_json, lock, ending)
    elif is_log_enabled():
        # The log of `--verbose` has every event, and the result repeats failures.
        yield _serialize(_ignore_event, lock, ending)
    elif open_stderr().can_redraw:
        from reconciler.cli.live import LiveTable

        with LiveTable() as table:
            yield _serialize(table.handle_event, lock, ending)
    else:
        yield _serialize(LinePrinter(is_timed=detect_pipeline() is not None).handle_event, lock, ending)


def _serialize(take: Callable[[Event], None], lock: threading.Lock, ending: FinishedRun) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        with lock:
            take(event)
            if is_log_enabled() and not isinstance(event, PlanMade):
                log_event(type(event).__name__, **asdict(event))
            if isinstance(event, Summary):
                ending.summary = event

    return report


def _ignore_event(_event: Event) -> None:
    """Do nothing: the log has the event."""


def _print_json(event: Event) -> None:
    from reconciler.cli.json.runs_json import format_event

    open_stdout().write_bytes(format_event(event))


class LinePrinter:
    """Prints failures at once, other actions at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, is_timed: bool = False) -> None:
        """`is_timed` prefixes lines with the elapsed time."""
        self._clock = clock
        self._began = clock()
        self._printed_at: dict[str, float] = {}
        self._is_timed = is_timed
        self._done = 0
        self._printed_count = 0
        self._failures = FailureFormatter()

    def handle_event(self, event: Event) -> None:
        """Print an event, unless another was printed just before."""
        match event:
            case ActionFailed():
                self._print_lines(self._failures.format_next_failure(event))
            case LeaseLost() | RunRecovered() | RunHandedOver() | ResultMissing():
                self._print_lines(format_run_event(event))
            case Progress():
                if self._is_due(event.id):
                    self._print_lines([make_line(format_progress(event))])
            case ActionDone():
                self._done += 1
                self._printed_at.pop(event.id, None)
                if event.records or event.bytes:
                    self._print_lines([format_action_done(event)])
                elif self._is_due():
                    self._print_done_count()
            case Summary():
                if 0 < self._printed_count < self._done:
                    self._print_done_count()
            case Approval() | PlanMade() | ActionStarted():
                pass
            case _:
                assert_never(event)

    def _print_lines(self, lines: list[Line]) -> None:
        if self._is_timed:
            passed = Span(f"[{format_elapsed(float(int(self._clock() - self._began)))}] ", Tone.QUIET)
            lines = [(passed, *spans) for spans in lines]
        open_stderr().show(lines)

    def _print_done_count(self) -> None:
        self._printed_count = self._done
        self._print_lines([make_line(f"{pluralize(self._done, 'action')} done")])

    def _is_due(self, name: str = "") -> bool:
        now = self._clock()
        if now - self._printed_at.get(name, self._began) < _BETWEEN_LINES_S:
            return False
        self._printed_at[name] = now
        return True
