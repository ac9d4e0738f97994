"""What moves on a terminal while a run goes: the actions under way.

It is imported where standard error is a terminal whose lines may be drawn over, and leaves nothing behind but the lines
it was told to keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, assert_never

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

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
from reconciler.cli.console import err
from reconciler.cli.hint_rewrite import lines_again
from reconciler.cli.text.runs_text import Failures, bytes_rate, done_line, of_the_run, partitions_text
from reconciler.runtime.text import about, count_text, counted, rough_count, took, visible

if TYPE_CHECKING:
    from reconciler.cli.text.lines import Line


_PER_SECOND: Final = 4
_NOTABLE_S: Final = 1.0
"""What took less, and moved nothing, is counted and gets no line of its own."""
_WIDE: Final = 72
"""Columns below which a row says how much is done and for how long it takes, and no more."""
_BESIDE: Final = 3
"""Lines of a screen that no row takes: the count, how many rows are not shown, and the cursor."""


@dataclass(slots=True)
class _Row:
    """An action under way."""

    id: str
    began: float
    progress: Progress | None = None


class LiveTable:
    """Takes events of a run; draws how far it is, and says above it what failed, moved records or took long."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or _console()
        self._clock = clock
        self._began = clock()
        self._rows: dict[str, _Row] = {}
        self._total = self._done = self._failed = 0
        self._failures = Failures()
        # Drawn by a thread of its own: times go on while nothing is told.
        self._live = Live(
            console=self._console, get_renderable=self.view, refresh_per_second=_PER_SECOND, transient=True
        )

    def __enter__(self) -> Self:
        """Draw nothing before the first action: until then a question may stand here."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Take the table away."""
        self._live.stop()

    def take(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case PlanMade():
                # From here on: before it a question may have stood for long.
                self._total, self._began = len(event.plan.actions), self._clock()
            case ActionStarted():
                self._row(event.id)
            case Progress():
                self._row(event.id).progress = event
            case ActionDone():
                self._done += 1
                self._rows.pop(event.id, None)
                if event.records or event.bytes or event.seconds >= _NOTABLE_S:
                    self._say([done_line(event)])
            case ActionFailed():
                self._failed += 1
                self._rows.pop(event.id, None)
                self._say(self._failures.lines(event))
            case LeaseLost() | RunRecovered() | RunHandedOver() | ResultMissing():
                self._say(of_the_run(event))
            case Approval():
                pass
            case Summary():
                self._live.stop()
            case _:
                assert_never(event)

    def view(self) -> Table:
        """Return the table as it is now: no wider and no higher than the screen."""
        now, size = self._clock(), self._console.size
        rows, most = list(self._rows.values()), max(1, size.height - _BESIDE)
        cells = [_cells(row, now, is_wide=size.width >= _WIDE) for row in rows[:most]]
        view = Table.grid(padding=(0, 0, 0, 2), expand=True)
        view.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for _ in range(max(map(len, cells), default=0)):
            view.add_column(no_wrap=True, justify="right")
        view.add_row(Text(self._counts(now)))
        for row, texts in zip(rows, cells, strict=False):
            view.add_row(Text(f"  {visible(row.id)}"), *map(Text, texts))
        if len(rows) > most:
            view.add_row(Text(f"  and {count_text(len(rows) - most)} more in progress"))
        return view

    def _counts(self, now: float) -> str:
        ended = self._done + self._failed
        of_all = f"{count_text(ended)} of {counted(self._total, 'action')}" if self._total else counted(ended, "action")
        failed = f", {count_text(self._failed)} failed" if self._failed else ""
        return f"{of_all} done{failed}, {_passed(now - self._began)}"

    def _row(self, name: str) -> _Row:
        row = self._rows.setdefault(name, _Row(name, self._clock()))
        self._live.start()
        return row

    def _say(self, lines: list[Line]) -> None:
        for spans in lines_again(lines):
            self._console.print(Text("".join(span.text for span in spans)), soft_wrap=True)


def _cells(row: _Row, now: float, *, is_wide: bool) -> list[str]:
    """Return what stands beside an action: how much, how fast, how many partitions, how long still, for how long."""
    passed, progress = _passed(now - row.began), row.progress
    if not is_wide:
        return ["" if progress is None else _share(progress), passed]
    if progress is None:
        return ["", "", "", "", passed]
    total = f" of {rough_count(progress.records_total)}" if progress.records_total else ""
    return [
        f"{rough_count(progress.records)}{total}",
        bytes_rate(progress) if progress.bytes else "",
        f"{partitions_text(progress)} p" if progress.partitions else "",
        f"{about(progress.seconds_left)} left" if progress.seconds_left else "",
        passed,
    ]


def _share(progress: Progress) -> str:
    total = max(progress.records_total, progress.records)
    return f"{100 * progress.records // total} %" if total else ""


def _passed(seconds: float) -> str:
    """Return a time that goes on, in whole seconds: its decimals would only flicker."""
    return took(float(int(seconds)))


def _console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False, no_color=not err().has_colours)
