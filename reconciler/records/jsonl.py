"""JSON lines, one row each: the value of a record is the line as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from reconciler.errors import UserError
from reconciler.records.fields import TIME_HINT, Fields, input_batch, no_such_field
from reconciler.records.lines import BATCH_BYTES, BATCH_ROWS
from reconciler.records.rows import key_bytes
from reconciler.records.times import BadTimeError, to_milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def read_jsonl(lines: Iterable[bytes], fields: Fields, source: str) -> Iterator[pa.RecordBatch]:
    """Yield batches of `INPUT_SCHEMA`. Empty lines are skipped; a field that is null gives no key, or the time now.

    Raises:
        UserError: A line is not JSON, or lacks a field asked for; says which line.
    """
    gathered = _Gathered(fields, source)
    for number, line in enumerate(lines, start=1):
        if not line.isspace():
            gathered.add(number, line.strip())
            if gathered.is_full:
                yield gathered.taken()
    if gathered.values:
        yield gathered.taken()


class _Gathered:
    """Rows on their way into one batch."""

    def __init__(self, fields: Fields, source: str) -> None:
        self.fields, self.source = fields, source
        self._clear()

    def _clear(self) -> None:
        self.numbers: list[int] = []
        self.keys: list[bytes | None] = []
        self.times: list[Any] = []
        self.values: list[bytes] = []
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.values) >= BATCH_ROWS or self.bytes >= BATCH_BYTES

    def add(self, number: int, line: bytes) -> None:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            message = f"{self.source}: line {number}: not JSON: {error.msg} at column {error.colno}"
            raise UserError(
                message, hint="Every line is one JSON value; name other formats with --input-format."
            ) from None
        key = self._cell(number, row, self.fields.key, "--key-field")
        self.keys.append(None if key is None else key_bytes(key))
        self.times.append(self._cell(number, row, self.fields.timestamp, "--timestamp-field"))
        self.numbers.append(number)
        self.values.append(line)
        self.bytes += len(line)

    def _cell(self, number: int, row: object, field: str | None, option: str) -> object:
        if field is None:
            return None
        where = f"{self.source}: line {number}"
        if not isinstance(row, dict):
            raise UserError(f"{where}: not a JSON object, so it has no field {field}", hint=f"Leave out {option}.")
        if field not in row:
            raise no_such_field(field, list(row), where=where, option=option)
        return row[field]

    def taken(self) -> pa.RecordBatch:
        """Return the batch and begin the next."""
        keys, values = pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())
        try:
            batch = input_batch(keys, to_milliseconds(self.times), values)
        except BadTimeError as error:
            where = f"{self.source}: line {self.numbers[error.row]}: {self.fields.timestamp}"
            raise UserError(f"{where}: {error.cell} is not a time since 1970", hint=TIME_HINT) from None
        self._clear()
        return batch
