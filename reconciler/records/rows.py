"""Rows of a table as JSON values: columns are made plain at once, and one call of orjson per row does the rest.

Times are ISO 8601 in UTC (`…Z`; without an offset they are UTC), bytes are text or `{"base64": "…"}`, decimals are
strings with every digit, durations are numbers in the unit of their column, NaN and infinities are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.records.lines import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS


def json_values(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object, its fields in the order of the columns."""
    names = batch.schema.names
    dumps, options = orjson.dumps, _OPTIONS
    rows: Iterable[tuple[Any, ...]] = zip(*map(_plain, batch.columns), strict=True)
    objects = [dumps(dict(zip(names, row, strict=False)), _as_json, options) for row in rows]
    return pa.array(objects, pa.binary())


def json_texts(column: pa.Array) -> pa.Array:
    """Return each cell as the bytes of a key: text as it is, anything else as JSON; null stays null."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if _is_text(kind) or _is_bytes(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return _iso(column).cast(pa.binary())
    cells = [None if cell is None else key_bytes(cell) for cell in _plain(column)]
    return pa.array(cells, pa.binary())


def key_bytes(cell: object) -> bytes:
    """Return one JSON value as the bytes of a key: text as it is, anything else as JSON."""
    return cell.encode() if isinstance(cell, str) else orjson.dumps(cell, _as_json, _OPTIONS)


def _plain(column: pa.Array) -> list[Any]:
    """Return a column as Python values that orjson takes; several times as fast as `to_pylist` where that is slow."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        cells: list[Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy().tolist()
        if column.null_count:
            for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                cells[index] = None
        return cells
    if pa.types.is_timestamp(kind):
        column = _iso(column)
    if _is_text(column.type):
        try:
            return list(column.to_numpy(zero_copy_only=False).tolist())
        except pa.ArrowException:  # Parquet files may hold anything as text: it is written like other bytes
            return list(column.cast(pa.binary()).to_pylist())
    if pa.types.is_temporal(kind):
        return list(column.cast(pa.string()).to_pylist())
    return list(column.to_pylist(maps_as_pydicts="strict"))


def _iso(column: pa.Array) -> pa.Array:
    """Return times as text; fractions of a second only where the column has any."""
    naive = column.cast(pa.timestamp(column.type.unit))
    whole = pc.floor_temporal(naive, unit="second") if column.type.unit != "s" else naive
    if column.type.unit != "s" and pc.all(pc.equal(whole, naive)).as_py() is not False:
        naive = whole.cast(pa.timestamp("s"))
    return pc.binary_join_element_wise(pc.replace_substring(naive.cast(pa.string()), " ", "T"), "Z", "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _as_json(cell: object) -> object:
    return as_text(cell) if isinstance(cell, bytes) else str(cell)
