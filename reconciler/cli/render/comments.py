"""What fits into one comment: names as densely as they can still be read, and how many of them do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.markdown import code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIMIT: Final = 50_000
"""Bytes of UTF-8 a comment may have; the page itself takes 65,536 characters."""

_A_LINE: Final = 20
"""Names in one line: what does not fit is left out by the line."""
_ROOM: Final = 200
"""Bytes for the line that says what is missing."""


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line of markdown, and how many names are in it."""

    text: str
    names: int


def named_lines(head: str, addresses: Iterable[str]) -> list[NamedLine]:
    """Return addresses in as few bytes as they can be read in: those that begin alike behind one beginning."""
    by_start: dict[str, list[str]] = {}
    for address in addresses:
        cut = max(address.rfind(":"), address.rfind("/")) + 1
        by_start.setdefault(address[:cut], []).append(address[cut:])
    lines: list[NamedLine] = []
    for start, names in by_start.items():
        for position in range(0, len(names), _A_LINE):
            some = names[position : position + _A_LINE]
            text = code(start + some[0]) if len(some) == 1 else f"{code(start)} {code(' '.join(some))}"
            lines.append(NamedLine(f"- {head} {text}", len(some)))
    return lines


def as_many_as_fit(lines: Sequence[NamedLine], room: int) -> list[str]:
    """Return lines up to `room` bytes, and where some do not fit one that says how many names are in those."""
    if sum(len(line.text.encode()) + 1 for line in lines) <= room:
        return [line.text for line in lines]
    kept: list[str] = []
    used = _ROOM
    for position, line in enumerate(lines):
        used += len(line.text.encode()) + 1
        if used > room:
            missing = counted(sum(each.names for each in lines[position:]), "more row", "more rows")
            return [*kept, "", f"**{missing} of danger do not fit here: read the whole of it first.**"]
        kept.append(line.text)
    return kept
