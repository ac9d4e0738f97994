"""What of a plan needs no decision, in a comment: all of it, as much as fits, or only its counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.comments import LIMIT
from reconciler.cli.render.markdown import block, cell, folded, row
from reconciler.foreign import visible
from reconciler.resources.address import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.cli.render.sections import Row, Sections

MOST_ROWS: Final = LIMIT // 20
"""A row takes 20 bytes at least: with more of them there is no need to try."""

_FRAME: Final = 200
"""Bytes of what stands around the rows of one part: its fold, its title, its fence."""

_DIFF_SIGNS: Final = {"+": "+", "✗": "-", "=": "+", "-": "-"}
"""How a line of a diff begins so that the page colours it; anything else is a change."""


def ordinary_rows(found: Sections) -> list[str]:
    """Return every row."""
    return _rows(_ordinary(found), found.drift, found.waiting)


def as_many_rows_as_fit(found: Sections, room: int) -> list[str]:
    """Return rows up to `room` bytes, what drifted and what is half-way first, and counts of the others by kind."""
    room -= len("\n".join(ordinary_counts(found)).encode()) + _FRAME
    kept: list[Sequence[Row]] = []
    for rows in (found.drift, found.waiting, _ordinary(found)):
        count, used = _fitting(rows, room - _FRAME)
        kept.append(rows[:count])
        room -= used + _FRAME if count else 0
    drift, waiting, ordinary = kept
    if not any(kept):
        return ordinary_counts(found)
    rest = _counts(_ordinary(found)[len(ordinary) :], found.drift[len(drift) :], found.waiting[len(waiting) :])
    return [*_rows(ordinary, drift, waiting), *(["And these, which do not fit here:", "", *rest] if rest else [])]


def ordinary_counts(found: Sections) -> list[str]:
    """Return counts by sign, kind and cluster."""
    return _counts(_ordinary(found), found.drift, found.waiting)


def few_counts(found: Sections) -> list[str]:
    """Return ordinary rows as one number: where there are so many clusters that a table of them is too long."""
    rows = (len(_ordinary(found)), "ordinary change", None), (len(found.drift), "drifted field", None)
    others = [counted(number, noun, many) for number, noun, many in rows if number]
    return [f"{', '.join(others)}.", ""] if others else []


def _ordinary(found: Sections) -> Sequence[Row]:
    return (*found.changes, *found.jobs)


def _fitting(rows: Sequence[Row], room: int) -> tuple[int, int]:
    """Return how many rows fit, and how many bytes those take."""
    used = 0
    for count, each in enumerate(rows[:MOST_ROWS]):
        length = len(visible(_diff_line(each)).encode()) + len("\n")
        if used + length > room:
            return count, used
        used += length
    return min(len(rows), MOST_ROWS), used


def _rows(ordinary: Sequence[Row], drift: Sequence[Row], waiting: Sequence[Row]) -> list[str]:
    named = (
        (ordinary, counted(len(ordinary), "ordinary change")),
        (drift, counted(len(drift), "drifted field")),
        (waiting, counted(len(waiting), "resource half-way", "resources half-way")),
    )
    parts = [
        line
        for rows, title in named
        if rows
        for line in folded(title, block("diff", [_diff_line(each) for each in rows]))
    ]
    return [*parts, ""] if parts else []


def _diff_line(each: Row) -> str:
    sign = _DIFF_SIGNS.get(each.sign, "!")
    own = "" if sign == each.sign else f"{each.sign} "
    return "  ".join(
        part for part in (f"{sign} {own}{each.name}", each.whole, each.note, each.blocked, each.after) if part
    )


def _counts(ordinary: Sequence[Row], drift: Sequence[Row], waiting: Sequence[Row]) -> list[str]:
    groups = Counter(
        (each.sign, kind_of(each.action.address), each.action.cluster or "") for each in ordinary if each.action
    )
    lines = [
        row((sign, kind, cell(cluster), count_text(count))) for (sign, kind, cluster), count in sorted(groups.items())
    ]
    table = ["| | kind | cluster | count |", "| --- | --- | --- | ---: |", *lines, ""] if lines else []
    others = [counted(len(drift), "drifted field")] if drift else []
    others += [counted(len(waiting), "resource half-way", "resources half-way")] if waiting else []
    return [*table, *([f"{', '.join(others)}.", ""] if others else [])]
