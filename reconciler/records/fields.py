"""Which fields of a row give a record its key and its time, and how rows become records."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reconciler.errors import UserError
from reconciler.records.rows import json_texts, json_values
from reconciler.records.schema import CREATE_TIME, HEADERS, INPUT_SCHEMA
from reconciler.records.times import BadTimeError, to_milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

TIME_HINT: Final = "Times are ISO 8601 such as 2013-01-01T05:00:00Z, or milliseconds since 1970; null means now."


@dataclass(frozen=True, slots=True)
class Fields:
    """What of a row is more than its value; `None`: no key, the time of producing."""

    key: str | None = None
    timestamp: str | None = None


NO_FIELDS: Final = Fields()


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of an input: where they come from, and how many came before them.

    `unit` is what they are counted in: rows, or lines of a file as an editor counts them.
    """

    source: str
    before: int
    batch: pa.RecordBatch
    unit: str = "row"


def to_records(rows: Rows, fields: Fields) -> pa.RecordBatch:
    """Return rows as records of `INPUT_SCHEMA`, their partitions left open.

    Raises:
        UserError: A field is not there, or a cell is not a time; says which row.
    """
    batch = rows.batch
    keys = json_texts(_column(rows, fields.key, "--key-field")) if fields.key else pa.nulls(len(batch), pa.binary())
    times = _times(rows, fields.timestamp) if fields.timestamp else pa.nulls(len(batch), pa.int64())
    try:
        values = json_values(batch)
    except (UnicodeDecodeError, KeyError) as error:
        message = (
            f"{rows.source}: {rows.unit}s {rows.before + 1} to {rows.before + len(batch)} cannot be written as JSON: "
            f"{error}"
        )
        raise UserError(message, hint="Nested texts must be UTF-8, and a map may have each key once.") from None
    return input_batch(keys, times, values)


def input_batch(keys: pa.Array, times: pa.Array, values: pa.Array) -> pa.RecordBatch:
    """Return records without headers, their partitions left open."""
    size = len(values)
    kinds = pa.array(np.full(size, CREATE_TIME, np.int8))
    headers = pa.ListArray.from_arrays(pa.array(np.zeros(size + 1, np.int32)), pa.array([], HEADERS.value_type))
    columns = [pa.nulls(size, pa.int32()), times, kinds, keys, values, headers.cast(HEADERS)]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def no_such_field(name: str, known: Sequence[str], *, where: str, option: str) -> UserError:
    """Return the error for a field that rows do not have, with the nearest they do."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {option} {near[0]}?" if near else f"Fields there: {', '.join(known) or 'none'}."
    return UserError(f"{where}: {name}: no such field ({option})", hint=hint)


def _column(rows: Rows, name: str, option: str) -> pa.Array:
    if name not in rows.batch.schema.names:
        raise no_such_field(name, rows.batch.schema.names, where=rows.source, option=option)
    return rows.batch.column(name)


def _times(rows: Rows, name: str) -> pa.Array:
    try:
        return to_milliseconds(_column(rows, name, "--timestamp-field"))
    except BadTimeError as error:
        message = (
            f"{rows.source}: {rows.unit} {rows.before + error.row + 1}: {name}: {error.cell} is not a time since 1970"
        )
        raise UserError(message, hint=TIME_HINT) from None
