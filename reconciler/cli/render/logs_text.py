"""`verify` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import table

if TYPE_CHECKING:
    from reconciler.jobs.comparison import PartitionComparison, Side
    from reconciler.workflow.verify import Verified


def verified_text(verified: Verified) -> list[Line]:
    """Return a row for each partition, and whether the logs are equal."""
    partitions = verified.comparison.partitions
    rows = [(str(each.partition), *_sides(each), _verdict(each)) for each in partitions]
    records = [sum(side.records for side in sides if side) for sides in zip(*map(_both, partitions), strict=True)]
    how = "every record read" if verified.comparison.is_deep else "by kept digests"
    word, tone = ("Equal", Tone.ADD) if verified.comparison.is_equal else ("Different", Tone.DANGER)
    counts = " and ".join(counted(count, "record") for count in dict.fromkeys(records)) or "no records"
    return [
        line(Span("left   ", Tone.QUIET), verified.left),
        line(Span("right  ", Tone.QUIET), verified.right),
        EMPTY,
        *table(
            ("partition", "offsets left", "offsets right", "records left", "records right", ""), rows, numbers=_RIGHT
        ),
        EMPTY,
        line(Span(f"{word}: ", tone), f"{counted(len(partitions), 'partition')}, {counts}, {how}"),
    ]


_HEADINGS: Final = ("partition", "offsets left", "offsets right", "records left", "records right", "")
_RIGHT: Final = (0, 1, 2, 3, 4)


def _both(each: PartitionComparison) -> tuple[Side | None, Side | None]:
    return each.left, each.right


def _sides(each: PartitionComparison) -> tuple[str, str, str, str]:
    offsets = [f"{side.start:,}-{side.end:,}" if side else "none" for side in _both(each)]
    records = [count_text(side.records) if side else "none" for side in _both(each)]
    return offsets[0], offsets[1], records[0], records[1]


def _verdict(each: PartitionComparison) -> Span:
    if each.is_equal:
        return Span(f"equal, {count_text(each.superseded)} superseded" if each.superseded else "equal", Tone.ADD)
    where = "" if each.first_difference is None else f" from offset {count_text(each.first_difference)}"
    return Span(f"differs in {', '.join(each.differences)}{where}", Tone.DANGER)
