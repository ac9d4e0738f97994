"""What a run says while it goes: JSON lines for programs, bars on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal, assert_never

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
from reconciler.cli.failing import Failures
from reconciler.cli.logs import note, speaks
from reconciler.cli.render.amounts import counted
from reconciler.cli.render.events_text import (
    done_line,
    of_the_run,
    progress_text,
)
from reconciler.cli.render.lines import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        from reconciler.cli.bars import Bars

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
    from reconciler.cli.documents.events import event_line

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
