"""Tables without lines: a quiet heading, columns one under the other, numbers to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.lines import Line, Span, Tone, aligned, line, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = 2


def table(headings: Sequence[str], rows: Sequence[Sequence[str | Span]], *, numbers: Sequence[int] = ()) -> list[Line]:
    """Return rows under headings; `numbers` are the columns that stand to the right."""
    plain = [
        row for row in rows if all(isinstance(cell, str) and cell.isascii() and cell.isprintable() for cell in row)
    ]
    if len(plain) == len(rows):
        return _plain_table(headings, plain, numbers)  # type: ignore[arg-type]  # every cell was seen to be text
    cells = [[Span(heading, Tone.QUIET) for heading in headings]]
    cells += [[Span(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for column in numbers:
        widest = max(width_of(row[column].text) for row in cells)
        for row in cells:
            row[column] = Span(" " * (widest - width_of(row[column].text)) + row[column].text, row[column].tone)
    return aligned(cells)


def _plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> list[Line]:
    """Return the same of text that takes one cell a letter: a piece a line, so that ten thousand are quick."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    layout = (" " * _GAP).join(
        f"{{:{'>' if column in numbers else '<'}{width}}}" for column, width in enumerate(widths)
    )
    fill = layout.format
    return [line(Span(fill(*headings).rstrip(), Tone.QUIET)), *[line(fill(*row).rstrip()) for row in rows]]
