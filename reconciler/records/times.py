"""Columns of times as milliseconds since 1970: ISO 8601 (without an offset UTC), dates, or numbers of milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AFTER_TIME: Final = 1 << 63
"""Milliseconds are kept in 63 bits."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class BadTimeError(ValueError):
    """A cell that is no time; `row` counts from 0 in its batch. `is_early`: it is one, from before 1970."""

    def __init__(self, row: int, cell: object, *, is_early: bool = False) -> None:
        """Keep which cell it was."""
        super().__init__(f"{cell!r} is before 1970" if is_early else f"{cell!r} is not a time")
        self.row, self.cell, self.is_early = row, cell, is_early


def to_milliseconds(column: pa.Array | Sequence[object]) -> pa.Array:
    """Return cells as int64 milliseconds since 1970; null stays null.

    Raises:
        BadTimeError: A cell is not a time, or lies before 1970.
    """
    found = _column(column) if isinstance(column, pa.Array) else _cells(column)
    early = pc.index(pc.less(found, 0), pa.scalar(value=True)).as_py()
    if early >= 0:
        raise BadTimeError(early, found[early].as_py(), is_early=True)
    return found


def _column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.cast(pa.timestamp("us" if pa.types.is_date(kind) else kind.unit))
        return pc.floor_temporal(times, unit="millisecond").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    return _cells(column.to_pylist())


def _cells(cells: Sequence[object]) -> pa.Array:
    return pa.array([_milliseconds(row, cell) for row, cell in enumerate(cells)], pa.int64())


def _milliseconds(row: int, cell: object) -> int | None:
    match cell:
        case None:
            return None
        case bool():
            raise BadTimeError(row, cell)
        case int() | float() if cell % 1 == 0 and abs(cell) < _AFTER_TIME:
            return int(cell)
        case str():
            try:
                return ms_of(cell)
            except (ValueError, OverflowError):
                raise BadTimeError(row, cell) from None
        case _:
            raise BadTimeError(row, cell)


def ms_of(text: str) -> int:
    """Return an ISO 8601 time in ms; without an offset it is UTC.

    Raises:
        ValueError: It is none.
    """
    time = datetime.fromisoformat(text.strip())
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
