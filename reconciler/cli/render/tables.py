"""Tables without lines: a quiet heading, columns one under the other, numbers to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.lines import Line, Span, Tone, aligned, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str | Span]], *, numbers: Sequence[int] = ()) -> list[Line]:
    """Return rows under headings; `numbers` are the columns that stand to the right."""
    cells = [[Span(heading, Tone.QUIET) for heading in headings]]
    cells += [[Span(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for column in numbers:
        widest = max(width_of(row[column].text) for row in cells)
        for row in cells:
            row[column] = Span(" " * (widest - width_of(row[column].text)) + row[column].text, row[column].tone)
    return aligned(cells)
