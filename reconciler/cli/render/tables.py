"""Tables without lines: a quiet heading, columns one under the other, numbers to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.lines import Line, Span, Tone, aligned, line, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP: Final = "  "


def table(headings: Sequence[str], rows: Sequence[Sequence[str | Span]], *, numbers: Sequence[int] = ()) -> list[Line]:
    """Return rows under headings; `numbers` are the columns that stand to the right."""
    cells = [[Span(heading, Tone.QUIET) for heading in headings]]
    cells += [[Span(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for column in numbers:
        widest = max(width_of(row[column].text) for row in cells)
        for row in cells:
            row[column] = Span(" " * (widest - width_of(row[column].text)) + row[column].text, row[column].tone)
    return aligned(cells)


def plain_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), widest: int | None = None
) -> list[Line]:
    """Return the same of text without tones: one piece a line where every letter takes one cell; quick.

    A cell longer than `widest` makes its own row longer, and no other.
    """
    columns = list(zip(*rows, strict=True))
    if not all(_is_plain("".join(column)) for column in columns):
        return table(headings, rows, numbers=numbers)
    most = widest or max(len(cell) for column in columns for cell in column)
    widths = [
        max(len(heading), *(len(cell) for cell in column if len(cell) <= most), 0)
        for heading, column in zip(headings, columns, strict=True)
    ]
    cells = [f"{{:{'>' if column in numbers else '<'}{width}}}" for column, width in enumerate(widths)]
    fill = _GAP.join(cells).format
    return [line(Span(fill(*headings).rstrip(), Tone.QUIET)), *[(Span(fill(*row).rstrip()),) for row in rows]]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
