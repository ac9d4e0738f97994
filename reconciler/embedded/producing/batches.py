"""What users hand in, as batches of `INPUT_SCHEMA`: single records and any record batch."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.embedded.producing.fields import content_of, headers_of, optional_whole
from reconciler.errors import UserError
from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAKEN: Final = ("value", "key", "headers", "timestamp_ms", "partition")
_MILLISECONDS: Final = pa.timestamp("ms")
_LEFT_OUT: Final = frozenset({"offset", "timestamp_type", "topic"})
"""What records that were read have besides: they get these anew."""


def row_of(
    topic: str,
    value: str | bytes | None,
    *,
    key: str | bytes | None,
    headers: Mapping[str, str | bytes | None] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> dict[str, Any]:
    """Return one record for a topic as a row of `INPUT_SCHEMA`.

    Raises:
        UserError: A field is not of a type it takes; says which, and what it takes.
    """
    return {
        "partition": optional_whole(topic, "partition", partition, bits=32),
        "timestamp_ms": optional_whole(topic, "timestamp_ms", timestamp_ms, bits=64),
        "timestamp_type": CREATE_TIME,
        "key": content_of(topic, "key", key),
        "value": content_of(topic, "value", value),
        "headers": headers_of(topic, headers),
    }


def conformed(topic: str, records: pa.RecordBatch, *, partition: int | None = None) -> pa.RecordBatch:
    """Return a batch for a topic as `INPUT_SCHEMA`: columns in order and of their types, null where they are missing.

    With a `partition` all records go there.

    Raises:
        UserError: It has a column no record has, or one that is not of its type.
    """
    _check_columns(topic, records)
    columns: list[pa.Array[Any]] = []
    for field in INPUT_SCHEMA:
        index = records.schema.get_field_index(field.name)
        if field.name == "partition" and partition is not None:
            columns.append(pa.repeat(pa.scalar(partition, field.type), records.num_rows))
        elif index >= 0 and field.name != "timestamp_type":
            columns.append(_cast(topic, field, records.column(index)))
        else:
            columns.append(_absent(field, records.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _check_columns(topic: str, records: object) -> None:
    if not isinstance(records, pa.RecordBatch):
        message = f"{topic}: append takes a pyarrow.RecordBatch, not {type(records).__name__}"
        raise UserError(
            message, hint="Of a table, append each of to_batches(); of rows, RecordBatch.from_pylist(rows)."
        )
    for name, count in Counter(records.schema.names).items():
        if name in _TAKEN and count > 1:
            raise UserError(f"{topic}: {count} columns are named {name}", hint="Leave out or rename all but one.")
        if name not in _TAKEN and name not in _LEFT_OUT:
            near = get_close_matches(name.lower(), _TAKEN, n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            hint = f"{guess}A record has the columns {', '.join(_TAKEN)}: rename it, or leave it out."
            raise UserError(f"{topic}: {name} is no column of a record", hint=hint)


def _cast(topic: str, field: pa.Field[Any], column: pa.Array[Any]) -> pa.Array[Any]:
    if column.type == field.type and not (column.null_count and not field.nullable):
        return column
    try:
        # The numbers of a time may be of any unit; what is finer than milliseconds is cut off.
        times = pa.types.is_temporal(column.type)
        found = column.cast(_MILLISECONDS, safe=False).cast(field.type) if times else column.cast(field.type)
        return found if field.nullable else pc.coalesce(found, pa.scalar([], field.type))
    except pa.ArrowException as error:
        said = str(error).split("\n", 1)[0].rstrip(".")
        raise UserError(
            f"{topic}: column {field.name} takes {field.type}, not {column.type}: {said}",
            hint="Cast the column first; nothing of this batch was taken, what came before it was.",
        ) from error


def _absent(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    if field.name == "headers":
        none = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], field.type.value_type), type=field.type)
    if field.name == "timestamp_type":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), rows)
    return pa.nulls(rows, field.type)
