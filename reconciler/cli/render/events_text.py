"""Events of a run as single lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.applying.alike import first_few
from reconciler.applying.events import (
    Detached,
    LeaseLost,
    Recovered,
    ResultMissing,
)
from reconciler.cli.render.amounts import about, bytes_text, counted, rough_count, took
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.applying.events import (
        ActionDone,
        ActionFailed,
        Progress,
    )

_FEW: Final = 10
_SETTLED: Final[Mapping[str, str]] = {
    "absent": "had not happened",
    "done": "had happened, and is recorded now",
    "partial": "had happened in part, and was completed",
    "under way": "is under way; its mirror says where it stands",
    "conflict": "what is there is neither what it was nor what it was to be; the plan starts from there",
    "unknown": "nobody could look; the next plan of its cluster does",
}


def of_the_run(event: LeaseLost | Recovered | Detached | ResultMissing) -> list[Line]:
    """Return what to say of a run, and not of one of its actions."""
    match event:
        case LeaseLost():
            return [lost_line(event)]
        case Recovered():
            return recovered_lines(event)
        case Detached():
            return [detached_line(event)]
        case ResultMissing():
            return [missing_line(event)]
        case _:
            assert_never(event)


def failed_line(event: ActionFailed) -> Line:
    """Return what was refused, and what to do about it."""
    return line(Span("✗ ", Tone.DANGER), f"{event.id}: {event.error}. {event.hint}")


def lost_line(event: LeaseLost) -> Line:
    """Return who took over."""
    return line(Span("Lease lost: ", Tone.DANGER), f"{event.message}. Nothing more is started.")


def recovered_lines(event: Recovered) -> list[Line]:
    """Return whose run was settled, and what became of the actions it left in doubt: many of them once each fate."""
    who = f" of {event.who}" if event.who else ""
    head = line(f"Run {event.run}{who} {_parted(event)}")
    if len(event.settled) <= _FEW:
        return [head, *(line(f"  {name}: {_SETTLED[verdict]}") for name, verdict in event.settled.items())]
    fates: dict[str, list[str]] = {}
    for name, verdict in event.settled.items():
        fates.setdefault(verdict, []).append(name)
    return [head, *(line(f"  {first_few(names)}: {_SETTLED[verdict]}") for verdict, names in fates.items())]


def _parted(event: Recovered) -> str:
    """Say how a run came to be open; doubt only where there is some."""
    doubt = f"{counted(len(event.settled), 'action')} in doubt" if event.settled else ""
    left = f"{counted(event.left, 'action')} not begun" if event.left else ""
    match event.parting:
        case "stopped":
            return f"was stopped: {doubt or left or 'nothing of it is left'}"
        case "detached":
            return f"left {counted(event.left, 'action')} to others{doubt and f', and {doubt}'}"
        case None:
            return f"had not closed: {doubt or left or 'all of it is done'}"
        case _:
            assert_never(event.parting)


def detached_line(event: Detached) -> Line:
    """Return how much is left."""
    return line(
        Span("Left: ", Tone.CHANGE), f"{counted(len(event.left), 'action')}. Go on with: reconciler apply --resume"
    )


def missing_line(event: ResultMissing) -> Line:
    """Return that a run has ended as it says, though one file of it is not there."""
    return line(
        Span("! ", Tone.CHANGE),
        f"What was done is recorded as state #{event.serial}. Only the summary of run {event.run} is missing: "
        f"{event.error}. Nothing has to be run again for it.",
    )


def done_line(event: ActionDone) -> Line:
    """Return what a job moved."""
    moved = f"{counted(event.records, 'record')}, {bytes_text(event.bytes)}"
    return line(Span("✓ ", Tone.ADD), f"{event.id}: {moved} in {took(event.seconds)}")


def progress_text(event: Progress) -> str:
    """Return how far a job is, how fast, and how long it will still take."""
    total = f" of {rough_count(event.records_total)}" if event.records_total else ""
    return f"{event.id}: {rough_count(event.records)}{total} records, {pace_text(event)}"


def pace_text(event: Progress) -> str:
    """Return rate and time left."""
    rate = event.records / event.seconds if event.seconds > 0 else 0
    left = "" if not event.seconds_left else f", {about(event.seconds_left)} left"
    return f"{rough_count(round(rate))} records/s{left}"
