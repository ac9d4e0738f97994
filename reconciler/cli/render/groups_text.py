"""Consumer groups as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import count_text, counted
from reconciler.cli.render.lines import EMPTY, Line, Span, Tone, line
from reconciler.cli.render.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.groups import ConsumerGroup, GroupOffset, OffsetMove
    from reconciler.workflow.groups import DescribedGroup, GroupDeletion, GroupNames, GroupReset


def names_text(found: GroupNames) -> list[Line]:
    """Return one group a line."""
    if not found.groups:
        return [line(f"Nobody has committed offsets on cluster {found.cluster}.")]
    return [line(name) for name in found.groups]


def group_text(described: DescribedGroup) -> list[Line]:
    """Return one group: whether it is reading, and every partition with its lag."""
    group = described.group
    rows = [
        (
            *(row.topic, str(row.partition), _known(row.committed), _known(row.lag), *_ends(row)),
            *(time_text(row.at_ms), _outside(row)),
        )
        for row in group.offsets
    ]
    headings = ("topic", "partition", "committed", "lag", "start", "stable", "end", "last commit", "")
    return [
        line(Span(group.name, Tone.STRONG), f" on {described.cluster}"),
        line(f"  {reading_text(group)}, lag {count_text(group.lag)}"),
        *([EMPTY, *table(headings, rows, numbers=(1, 2, 3, 4, 5, 6))] if rows else []),
    ]


def readers_text(groups: Sequence[ConsumerGroup] | None) -> list[Line]:
    """Return the groups of one topic; the lag of each partition where there is more than one."""
    if groups is None:
        return [
            line(Span("Which groups read it cannot be told: there are too many, or one cannot be read.", Tone.QUIET))
        ]
    if not groups:
        return []
    rows = [(group.name, reading_text(group), count_text(group.lag), _lags(group)) for group in groups]
    return table(("group", "", "lag", "by partition"), rows, numbers=(2,))


def reset_text(reset: GroupReset) -> list[Line]:
    """Return what moves from where to where."""
    if not reset.moves:
        return [line(f"Group {reset.group} is there already: nothing moves")]
    rows = [(move.topic, str(move.partition), _known(move.before), "→", *_move(move)) for move in reset.moves]
    return [
        line(Span("~ ", Tone.CHANGE), Span(reset.group, Tone.STRONG), f" on {reset.cluster}"),
        *table(("topic", "partition", "from", "", "to", ""), rows, numbers=(1, 2, 4)),
    ]


def deletion_text(deletion: GroupDeletion) -> list[Line]:
    """Return what is forgotten."""
    group, topic = deletion.group, deletion.topic
    rows = [row for row in group.offsets if row.committed is not None and topic in {None, row.topic}]
    what = "all it has" if topic is None else f"what it has of {topic}"
    cells = [(row.topic, str(row.partition), _known(row.committed), _known(row.lag)) for row in rows]
    return [
        line(Span("- ", Tone.DANGER), Span(group.name, Tone.STRONG), f" on {deletion.cluster}: {what}"),
        *(table(("topic", "partition", "committed", "lag"), cells, numbers=(1, 2, 3)) if cells else []),
    ]


def reset_done_text(reset: GroupReset) -> list[Line]:
    """Return that it was done."""
    return [line(f"Reset {counted(len(reset.moves), 'partition')} of group {reset.group}")] if reset.moves else []


def deletion_done_text(deletion: GroupDeletion) -> list[Line]:
    """Return that it was done."""
    what = f"group {deletion.group.name}"
    return [line(f"Deleted {what}" if deletion.topic is None else f"Deleted what {what} had of {deletion.topic}")]


def reading_text(group: ConsumerGroup) -> str:
    """Return whether a group is reading, and since when it is not."""
    if group.is_reading:
        return "reading"
    return "idle" if group.last_commit_ms is None else f"idle since {time_text(group.last_commit_ms)}"


def time_text(at_ms: int | None) -> str:
    """Return a time to the second, in UTC; nothing where there is none."""
    if at_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(at_ms // 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def _lags(group: ConsumerGroup) -> str:
    shown = [f"{row.partition}: {_known(row.lag)}" for row in group.offsets if row.lag != 0]
    more = f", … {counted(len(shown) - _FEW, 'more partition')}" if len(shown) > _FEW else ""
    return ", ".join(shown[:_FEW]) + more


_FEW = 10


def _ends(row: GroupOffset) -> tuple[str, str, str]:
    return count_text(row.start), count_text(row.stable), count_text(row.end)


def _outside(row: GroupOffset) -> str:
    """Say where a committed offset is none of the log: its reader begins where it is set to for that."""
    if row.committed is None or row.start <= row.committed <= row.end:
        return ""
    return "behind the log's start" if row.committed < row.start else "beyond the log's end"


def _move(move: OffsetMove) -> tuple[str, str]:
    if move.before is None:
        return count_text(move.after), ""
    by = move.after - move.before
    return count_text(
        move.after
    ), f"{counted(-by, 'offset')} again" if by < 0 else f"{counted(by, 'offset')} passed over"


def _known(count: int | None) -> str:
    return "-" if count is None else count_text(count)
