"""What users hand in, as batches of `INPUT_SCHEMA`: single records and any record batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reconciler.records.schema import CREATE_TIME, INPUT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping


def row_of(
    value: str | bytes | None,
    *,
    key: str | bytes | None,
    headers: Mapping[str, str | bytes | None] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> dict[str, Any]:
    """Return one record as a row of `INPUT_SCHEMA`."""
    return {
        "partition": partition,
        "timestamp_ms": timestamp_ms,
        "timestamp_type": CREATE_TIME,
        "key": _bytes(key),
        "value": _bytes(value),
        "headers": [{"key": name, "value": _bytes(content)} for name, content in (headers or {}).items()],
    }


def conformed(records: pa.RecordBatch, *, partition: int | None = None) -> pa.RecordBatch:
    """Return a batch as `INPUT_SCHEMA`: columns in order and of their types, null where they are missing.

    With a `partition` all records go there.
    """
    columns: list[pa.Array[Any]] = []
    for field in INPUT_SCHEMA:
        index = records.schema.get_field_index(field.name)
        if field.name == "partition" and partition is not None:
            columns.append(pa.repeat(pa.scalar(partition, field.type), records.num_rows))
        elif index >= 0 and field.name != "timestamp_type":
            column = records.column(index)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(_absent(field, records.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _absent(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    if field.name == "headers":
        none = pa.array(np.zeros(rows + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], field.type.value_type), type=field.type)
    if field.name == "timestamp_type":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), rows)
    return pa.nulls(rows, field.type)


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
