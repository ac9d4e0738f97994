"""The table of running actions on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, assert_never

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
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
from reconciler.cli.console import open_stderr
from reconciler.cli.hint_rewrite import add_typed_options_to_lines
from reconciler.cli.text.runs_text import (
    FailureFormatter,
    format_action_done,
    format_bytes_rate,
    format_partitions_done,
    format_run_event,
)
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import (
    escape_invisible,
    format_count,
    format_elapsed,
    format_estimate,
    format_rough_count,
    pluralize,
)

if TYPE_CHECKING:
    from reconciler.cli.text.lines import Line


_REFRESHES_PER_SECOND: Final = 4
_NOTABLE_S: Final = 1.0
"""Minimum seconds of an action without records to be listed."""
_BAR_COLUMNS: Final = 12
_MIN_COLUMNS_WITH_BARS: Final = 100
_MIN_COLUMNS_WITH_AMOUNTS: Final = 72
_RESERVED_LINES: Final = 3


@dataclass(slots=True)
class _RunningAction:
    id: str
    began: float
    progress: Progress | None = None


class LiveTable:
    """Table of running actions; actions that failed, moved records or took long are listed above it."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or _open_console()
        self._clock = clock
        self._began = clock()
        self._rows: dict[str, _RunningAction] = {}
        self._total = self._done = self._failed = 0
        self._failures = FailureFormatter()
        # Elapsed times change between events, so a thread redraws the table.
        self._live = Live(
            console=self._console,
            get_renderable=self.build_table,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        """Draw nothing yet: a question may be on the screen."""
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def handle_event(self, event: Event) -> None:
        """Update the table for an event."""
        match event:
            case PlanMade():
                # Elapsed time excludes an earlier question.
                self._total, self._began = len(event.plan.actions), self._clock()
            case ActionStarted():
                self._find_row(event.id)
            case Progress():
                self._find_row(event.id).progress = event
            case ActionDone():
                self._done += 1
                self._rows.pop(event.id, None)
                if event.records or event.bytes or event.seconds >= _NOTABLE_S:
                    self._print_lines([format_action_done(event)])
            case ActionFailed():
                self._failed += 1
                self._rows.pop(event.id, None)
                self._print_lines(self._failures.format_next_failure(event))
            case LeaseLost() | RunRecovered() | RunHandedOver() | ResultMissing():
                self._print_lines(format_run_event(event))
            case Approval():
                pass
            case Summary():
                self._live.stop()
            case _:
                assert_never(event)

    def build_table(self) -> Table:
        """Build the current table, no larger than the screen."""
        now, size = self._clock(), self._console.size
        rows, most = list(self._rows.values()), max(1, size.height - _RESERVED_LINES)
        cells = [_build_cells(row, now, size.width) for row in rows[:most]]
        view = Table.grid(padding=(0, 0, 0, 2), expand=True)
        view.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for _ in range(max(map(len, cells), default=0)):
            view.add_column(no_wrap=True, justify="right")
        view.add_row(Text(self._format_counts(now)))
        for row, texts in zip(rows, cells, strict=False):
            view.add_row(Text(f"  {escape_invisible(row.id)}"), *texts)
        if len(rows) > most:
            view.add_row(Text(f"  and {format_count(len(rows) - most)} more in progress"))
        return view

    def _format_counts(self, now: float) -> str:
        ended = self._done + self._failed
        of_all = (
            f"{format_count(ended)} of {pluralize(self._total, 'action')}"
            if self._total
            else pluralize(ended, "action")
        )
        failed = f", {format_count(self._failed)} failed" if self._failed else ""
        return f"{of_all} done{failed}, {_format_duration(now - self._began)}"

    def _find_row(self, name: str) -> _RunningAction:
        row = self._rows.setdefault(name, _RunningAction(name, self._clock()))
        self._live.start()
        return row

    def _print_lines(self, lines: list[Line]) -> None:
        for spans in add_typed_options_to_lines(lines):
            self._console.print(Text("".join(span.text for span in spans)), soft_wrap=True)


def _build_cells(row: _RunningAction, now: float, width: int) -> list[Text | ProgressBar]:
    passed, progress = Text(_format_duration(now - row.began)), row.progress
    is_wide, bars = width >= _MIN_COLUMNS_WITH_AMOUNTS, [Text("")] if width >= _MIN_COLUMNS_WITH_BARS else []
    if progress is not None and progress.phase:
        return [*bars, *[Text("")] * (3 if is_wide else 0), Text(progress.phase), passed]
    if not is_wide:
        return [Text("" if progress is None else _format_share(progress)), passed]
    if progress is None:
        return [*bars, *[Text("")] * 4, passed]
    total = max(progress.records_total, progress.records)
    return [
        *([ProgressBar(total, progress.records, width=_BAR_COLUMNS)] if bars and progress.records_total else bars),
        Text(
            format_rough_count(progress.records)
            + (f" of {format_rough_count(total)}" if progress.records_total else "")
        ),
        Text(format_bytes_rate(progress) if progress.bytes else ""),
        Text(f"{format_partitions_done(progress)} p" if progress.partitions else ""),
        Text(f"{format_estimate(progress.seconds_left)} left" if progress.seconds_left else ""),
        passed,
    ]


def _format_share(progress: Progress) -> str:
    total = max(progress.records_total, progress.records)
    return f"{100 * progress.records // total} %" if total else ""


def _format_duration(seconds: float) -> str:
    """Format whole seconds; decimals would flicker."""
    return format_elapsed(float(int(seconds)))


def _open_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False, no_color=not open_stderr().has_colours)
