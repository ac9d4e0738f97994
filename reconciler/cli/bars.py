"""Progress on a terminal: one bar for all actions, one for each job under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, assert_never

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
from reconciler.cli.console import err
from reconciler.cli.failing import Failures
from reconciler.cli.render.events_text import (
    done_line,
    of_the_run,
    pace_text,
)
from reconciler.foreign import visible

if TYPE_CHECKING:
    from reconciler.cli.render.lines import Line


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
