"""Lines and tables of text, with tones instead of colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_invisible


class Tone(StrEnum):
    """Meaning of a text; terminals show it as a colour."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    MOVE = "move"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a line; control characters are escaped."""

    text: str
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", escape_invisible(self.text))


Line: TypeAlias = tuple[Span, ...]

EMPTY: Line = ()
_GAP: Final = "  "

_SINGLE_CELL_TEXT: Final = re.compile("[ -\u02ff→·…✗±≠»▶✓▁-█]*")


def make_line(*pieces: str | Span) -> Line:
    """Build a line from texts and spans."""
    return tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces)


def join_spans(spans: Sequence[Span]) -> Line:
    """Join spans with a gap between them."""
    return tuple(piece for position, span in enumerate(spans) for piece in ([Span(_GAP)] if position else []) + [span])


def pack_cells(cells: Sequence[Span], width: int) -> list[Line]:
    """Distribute cells over lines of `width`; longer cells wrap with a hanging indent."""
    lines: list[list[Span]] = [[]]
    used = 0
    for cell in (cell for cell in cells if cell.text):
        size = measure_width(cell.text)
        if lines[-1] and used + len(_GAP) + size > width:
            lines.append([])
            used = 0
        if size > width:
            first, *more = _break_words(cell.text, width)
            lines[-1].append(Span(first, cell.tone))
            lines.extend([Span(_GAP + part, cell.tone)] for part in more)
            used = width
        else:
            lines[-1] += [Span(_GAP), cell] if lines[-1] else [cell]
            used += size + (len(_GAP) if used else 0)
    return [tuple(part) for part in lines]


def break_lines(lines: Iterable[Line], width: int | None) -> list[Line]:
    """Wrap lines at `width`; only a line's first span keeps its tone."""
    fitting: list[Line] = []
    for whole in lines:
        if width is None or sum(measure_width(span.text) for span in whole) <= width:
            fitting.append(whole)
            continue
        first, *more = _break_words("".join(span.text for span in whole), width)
        head = whole[0] if first.startswith(whole[0].text) else Span("")
        fitting += [make_line(head, first.removeprefix(head.text)), *(make_line(_GAP, part) for part in more)]
    return fitting


def _break_words(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        room = width if len(lines) == 1 else width - len(_GAP)
        if lines[-1] and measure_width(lines[-1]) + 1 + measure_width(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def to_plain_text(lines: Iterable[Line]) -> str:
    """Format lines as plain text."""
    return "".join(f"{''.join(span.text for span in spans).rstrip()}\n" for spans in lines)


def measure_width(text: str) -> int:
    """Return a text's width in terminal cells."""
    if text.isascii() or _SINGLE_CELL_TEXT.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut_text(text: str, width: int) -> str:
    """Cut a text at `width` cells, with an ellipsis."""
    if measure_width(text) <= width:
        return text
    while text and measure_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def align_rows(rows: Sequence[Sequence[Span]], *, limits: Sequence[int] = (), indent: str = "") -> list[Line]:
    """Align cells in columns; cells wider than `limits` do not widen their column."""
    widths: list[int] = []
    for row in rows:
        for column, cell in enumerate(row):
            if column == len(widths):
                widths.append(0)
            width = measure_width(cell.text)
            if column >= len(limits) or width <= limits[column]:
                widths[column] = max(widths[column], width)
    return [_pad_row(row, widths, indent) for row in rows]


def _pad_row(row: Sequence[Span], widths: Sequence[int], indent: str) -> Line:
    last = max((column for column, cell in enumerate(row) if cell.text), default=-1)
    spans = [Span(indent)] if indent else []
    for column, cell in enumerate(row[: last + 1]):
        blanks = max(0, widths[column] - measure_width(cell.text)) + len(_GAP) if column < last else 0
        spans.append(Span(cell.text + " " * blanks, cell.tone) if blanks else cell)
    return tuple(spans)


def make_table(
    headings: Sequence[str], rows: Sequence[Sequence[str | Span]], *, numbers: Sequence[int] = ()
) -> list[Line]:
    """Format a table with headings; columns in `numbers` are right-aligned."""
    cells = [[Span(heading, Tone.QUIET) for heading in headings]]
    cells += [[Span(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for column in numbers:
        widest = max(measure_width(row[column].text) for row in cells)
        for row in cells:
            row[column] = Span(" " * (widest - measure_width(row[column].text)) + row[column].text, row[column].tone)
    return align_rows(cells)


def make_plain_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), widest: int | None = None
) -> list[Line]:
    """Format a table without tones; cells longer than `widest` do not widen their column."""
    columns = list(zip(*rows, strict=True))
    if not all(_is_plain("".join(column)) for column in columns):
        return make_table(headings, rows, numbers=numbers)
    most = widest or max(len(cell) for column in columns for cell in column)
    widths = [
        max(len(heading), *(len(cell) for cell in column if len(cell) <= most), 0)
        for heading, column in zip(headings, columns, strict=True)
    ]
    cells = [f"{{:{'>' if column in numbers else '<'}{width}}}" for column, width in enumerate(widths)]
    fill = _GAP.join(cells).format
    return [make_line(Span(fill(*headings).rstrip(), Tone.QUIET)), *[(Span(fill(*row).rstrip()),) for row in rows]]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
