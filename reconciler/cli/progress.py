"""Progress on a terminal or in a log."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, assert_never

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Approval,
    Detached,
    Event,
    LeaseLost,
    PlanMade,
    Progress,
    Recovered,
    ResultMissing,
    Summary,
)
from reconciler.cli.console import err, out
from reconciler.cli.environment import note, speaks
from reconciler.cli.text.lines import line
from reconciler.cli.text.runs_text import Failures, done_line, of_the_run, pace_text, progress_text
from reconciler.runtime.text import bytes_text, counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.cli.text.lines import Line


# Progress on a terminal: one bar for all actions, one for each job under way.


class Bars:
    """Takes events; draws on standard error and leaves nothing behind."""

    def __init__(self, console: Console | None = None) -> None:
        # What stands in the columns is text, never markup: users name topics.
        self._progress = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}", markup=False),
            TimeElapsedColumn(),
            console=console or _console(),
            transient=True,
        )
        self._all: TaskID | None = None
        self._jobs: dict[str, TaskID] = {}
        self._failures = Failures()

    def __enter__(self) -> Self:
        """Draw nothing before the first event: until then a question may stand here."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Take the bars away."""
        self._progress.stop()

    def take(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case ActionStarted():
                self._progress.start()
                self._overall(total=1)
            case Progress():
                self._progress.start()
                self._job(event)
            case ActionDone():
                self._overall(done=1)
                self._end(event.id, done_line(event) if event.records or event.bytes else None)
            case ActionFailed():
                self._overall(done=1)
                self._end(event.id, None)
                for told in self._failures.lines(event):
                    self._say(told)
            case LeaseLost() | Recovered() | Detached() | ResultMissing():
                for told in of_the_run(event):
                    self._say(told)
            case Approval() | PlanMade():
                pass
            case Summary():
                self._progress.stop()
            case _:
                assert_never(event)

    def _overall(self, *, total: int = 0, done: int = 0) -> None:
        if self._all is None:
            self._all = self._progress.add_task("actions", total=0, pace="")
        task = self._progress.tasks[self._progress.task_ids.index(self._all)]
        self._progress.update(self._all, total=(task.total or 0) + total, advance=done)

    def _job(self, event: Progress) -> None:
        if event.id not in self._jobs:
            self._jobs[event.id] = self._progress.add_task(
                visible(event.id), total=event.records_total or None, pace=""
            )
        self._progress.update(
            self._jobs[event.id], completed=event.records, total=event.records_total or None, pace=pace_text(event)
        )

    def _end(self, name: str, said: Line | None) -> None:
        if (task := self._jobs.pop(name, None)) is not None:
            self._progress.remove_task(task)
        if said is not None:
            self._say(said)

    def _say(self, said: Line) -> None:
        self._progress.console.print(Text("".join(span.text for span in said)), soft_wrap=True)


def _console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False, no_color=not err().has_colours)


_TERMINAL_S: Final = 0.1
_PIPE_S: Final = 5.0


@contextmanager
def counting(word: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes records and bytes so far."""
    screen = err()
    every = _TERMINAL_S if screen.is_terminal else _PIPE_S
    said_at = time.monotonic()
    widest = 0

    def report(records: int, size: int) -> None:
        nonlocal said_at, widest
        now = time.monotonic()
        if now - said_at < every:
            return
        said_at = now
        if speaks():
            note(word, records=records, bytes=size)
            return
        text = f"{word}: {counted(records, 'record')}, {bytes_text(size)}"
        if screen.is_terminal:
            widest = max(widest, len(text))
            screen.write(f"\r{text.ljust(widest)}")
        else:
            screen.show([line(text)])

    try:
        yield report
    finally:
        if widest:
            screen.write(f"\r{' ' * widest}\r")


# What a run says while it goes: JSON lines for programs, bars on a terminal, a line now and then in a pipe.


_BETWEEN_LINES_S: Final = 5.0


@dataclass(slots=True)
class Ending:
    """How a run ended, once it has."""

    summary: Summary | None = None


@contextmanager
def reporter(form: Literal["text", "json"], ending: Ending | None = None) -> Iterator[Callable[[Event], None]]:
    """Give a function that takes a run's events, from any thread; `ending` is told how it ended."""
    lock = threading.Lock()
    ending = ending or Ending()
    if form == "json":
        yield _serial(_as_json, lock, ending)
    elif speaks():
        # Standard error is for who reads JSON there: events are among its lines, and what failed is said at the end.
        yield _serial(_as_log_only, lock, ending)
    elif err().is_terminal:
        with Bars() as bars:
            yield _serial(bars.take, lock, ending)
    else:
        yield _serial(Lines().take, lock, ending)


def _serial(take: Callable[[Event], None], lock: threading.Lock, ending: Ending) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        with lock:
            take(event)
            if speaks() and not isinstance(event, PlanMade):
                note(type(event).__name__, **asdict(event))
            if isinstance(event, Summary):
                ending.summary = event

    return report


def _as_log_only(_event: Event) -> None:
    """Say nothing more: every event is noted."""


def _as_json(event: Event) -> None:
    from reconciler.cli.json.runs_json import event_line

    out().write_bytes(event_line(event))


class Lines:
    """For a pipe: failures at once, the rest at most every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = clock()
        self._done = 0
        self._told = 0
        self._failures = Failures()

    def take(self, event: Event) -> None:
        """Tell what is worth a line."""
        match event:
            case ActionFailed():
                err().show(self._failures.lines(event))
            case LeaseLost() | Recovered() | Detached() | ResultMissing():
                err().show(of_the_run(event))
            case Progress():
                if self._is_time():
                    err().show([line(progress_text(event))])
            case ActionDone():
                self._done += 1
                if event.records or event.bytes:
                    err().show([done_line(event)])
                elif self._is_time():
                    self._tell_done()
            case Summary():
                if 0 < self._told < self._done:
                    self._tell_done()
            case Approval() | PlanMade() | ActionStarted():
                pass
            case _:
                assert_never(event)

    def _tell_done(self) -> None:
        self._told = self._done
        err().show([line(f"{counted(self._done, 'action')} done")])

    def _is_time(self) -> bool:
        now = self._clock()
        if now - self._said_at < _BETWEEN_LINES_S:
            return False
        self._said_at = now
        return True
